"""The application's own record of a generated package: hashes of its manifest and inputs, its seal, and its modules.

Code in a kernel can change the package or restore an earlier one, but can't write the user's state directory. So only
the last registration in one place under one name is trusted. The file is also the lock for generating the package. Its
first line contains the hashes and the seal, and can be read without the lock; the second contains the modules as JSON.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import cast

from ipybox.support.state import make_directory, state_dir

#: Maximum number of modules in a record. The oldest are dropped.
MAX_MODULES = 20_000

_MAX_LINE = 1024


class Registration:
    """The record of one package, valid while its lock is held."""

    def __init__(self, fd: int):
        self._fd = fd
        lines = os.pread(fd, os.fstat(fd).st_size, 0).split(b"\n")
        #: The hash of the package's inputs at the last registration; may be empty.
        self._manifest, self.origin, _ = [*lines[0].decode(errors="replace").split(" ", 2), "", "", ""][:3]
        try:
            modules: object = json.loads(lines[1])
        except (IndexError, ValueError, RecursionError):
            modules = None  # the write was interrupted
        #: The tool of each current or former module of the package, by module name.
        self.modules: dict[str, str] = cast("dict[str, str]", modules) if isinstance(modules, dict) else {}

    def matches(self, manifest: bytes) -> bool:
        """Returns whether this is the manifest of the last registration."""
        return self._manifest == hashlib.sha256(manifest).hexdigest()

    def write(self, manifest: bytes, origin: str, seal: str, modules: Mapping[str, str]) -> None:
        """Records the manifest, the hash of the package's inputs, and the seal, which replaces any earlier seal.

        Keeps former modules: a module name stays reserved for its tool, even if the server removes the tool.
        """
        known = {name: tool for name, tool in self.modules.items() if name not in modules}
        known.update(modules)
        known = dict(islice(known.items(), max(0, len(known) - MAX_MODULES), None))
        data = f"{hashlib.sha256(manifest).hexdigest()} {origin} {seal}\n{json.dumps(known)}\n".encode()
        os.pwrite(self._fd, data, 0)  # before truncating, so that no reader finds it empty
        os.truncate(self._fd, len(data))
        self.modules = known


@contextmanager
def locked_registration(place: Path) -> Generator[Registration]:
    """Waits for the lock on the record of a package, and opens the record. `place` is a path without links."""
    file = record_file(place)
    make_directory(file.parent)
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield Registration(fd)
    finally:
        os.close(fd)


def current_seal(file: Path) -> str:
    """Returns the seal of the last registration in a `record_file`, without locking; empty if there is none."""
    try:
        with file.open("rb", buffering=0) as record:
            fields = record.read(_MAX_LINE).partition(b"\n")[0].split(b" ", 2)
            return b"".join(fields[2:]).decode(errors="replace")
    except FileNotFoundError:
        return ""


def record_file(place: Path) -> Path:
    """Returns the path of a package's record. `place` is the package's path without links."""
    return state_dir() / "packages" / hashlib.sha256(os.fsencode(place)).hexdigest()
