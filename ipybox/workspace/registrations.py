"""The application's own record of a registered server and its package: hashes of both, the seal, and module names.

Code in a kernel can change the package, and restore an earlier one, but not the user's state directory. So only the
last registration in one place under one name is trusted. The file is also the lock for generating the package. Its
first line contains the hashes and the seal, and can be read without the lock; the second, the modules as JSON.
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

#: Modules that a record remembers; the newest ones.
MAX_MODULES = 20_000

_MAX_LINE = 1024


class Registration:
    """The record of one package, while its lock is held."""

    def __init__(self, fd: int):
        self._fd = fd
        lines = os.pread(fd, os.fstat(fd).st_size, 0).split(b"\n")
        #: The hash of the package's inputs at the last registration; it may be empty.
        self._manifest, self.origin, _ = [*lines[0].decode(errors="replace").split(" ", 2), "", "", ""][:3]
        try:
            modules: object = json.loads(lines[1])
        except (IndexError, ValueError, RecursionError):
            modules = None  # it was not written to its end
        #: The tool of each module that the package has or had, by the module's name.
        self.modules: dict[str, str] = cast("dict[str, str]", modules) if isinstance(modules, dict) else {}

    def is_of(self, manifest: bytes) -> bool:
        """Returns whether this is the manifest that was written last."""
        return self._manifest == hashlib.sha256(manifest).hexdigest()

    def write(self, manifest: bytes, origin: str, seal: str, modules: Mapping[str, str]) -> None:
        """Records the manifest, the inputs of the package, and the only seal that is valid from now on.

        The modules add to those that are known: a name stays that of its tool, even if the server drops the tool.
        """
        known = {name: tool for name, tool in self.modules.items() if name not in modules}
        known.update(modules)
        known = dict(islice(known.items(), max(0, len(known) - MAX_MODULES), None))
        data = f"{hashlib.sha256(manifest).hexdigest()} {origin} {seal}\n{json.dumps(known)}\n".encode()
        os.pwrite(self._fd, data, 0)  # first, so that no reader finds it empty
        os.truncate(self._fd, len(data))
        self.modules = known


@contextmanager
def locked_registration(place: Path) -> Generator[Registration]:
    """Opens the record of the package at a place, which is a path without links, and waits for its lock."""
    file = record_file(place)
    make_directory(file.parent)
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield Registration(fd)
    finally:
        os.close(fd)


def current_seal(file: Path) -> str:
    """Returns the seal of the last registration in a `record_file`, without waiting; empty if there was none."""
    try:
        with file.open("rb", buffering=0) as record:
            fields = record.read(_MAX_LINE).partition(b"\n")[0].split(b" ", 2)
            return b"".join(fields[2:]).decode(errors="replace")
    except FileNotFoundError:
        return ""


def record_file(place: Path) -> Path:
    """Returns the path of the record of the package at a place, which is a path without links."""
    return state_dir() / "packages" / hashlib.sha256(os.fsencode(place)).hexdigest()
