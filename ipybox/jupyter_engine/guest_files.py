"""The files that a kernel of another server imports: the runtime of generated packages, and the packages themselves."""

import hashlib
import io
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path

from ipybox.support.errors import ExecutionError
from ipybox.support.sizes import format_bytes

#: Limits of the generated packages of a workspace: bytes and files.
MAX_BYTES = 32 << 20
MAX_FILES = 10_000

#: The modules of the runtime, which a test compares with what they import.
RUNTIME = (
    "errors",
    "guest/__init__",
    "guest/marks",
    "guest/protocol",
    "guest/streams",
    "guest/tools/__init__",
    "guest/tools/arguments",
    "guest/tools/client",
    "guest/tools/content",
    "guest/tools/files",
    "guest/tools/models",
    "guest/tools/protocol",
    "guest/tools/schema_check",
    "guest/tools/tool",
    "guest/variables",
    "support/__init__",
    "support/arrow_stream",
    "support/bounded_json",
    "support/printable",
    "support/safe_directory",
    "support/sizes",
    "support/tables",
    "support/value_text",
    "support/variables",
    "tool_exec/__init__",
    "tool_exec/client",
    "tool_exec/models",
)

_ROOT = Path(__file__).parents[1]

#: Files that generated packages consist of.
_SUFFIXES = (".py", ".schema.json")

#: The path, time of change and size of each file.
Fingerprint = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class Archive:
    """Files for a kernel, as a ZIP archive.

    Attributes:
        data: The archive.
        sha256: Its hash, hexadecimal.
        has_packages: Whether there are generated packages among them.
    """

    data: bytes
    sha256: str
    has_packages: bool


class GuestFiles:
    """Reads the files for kernels, again if those of the workspace have changed.

    Args:
        packages: The directory of the generated packages, which need not exist.
    """

    def __init__(self, packages: Path):
        self._packages = packages
        self._fingerprint: Fingerprint | None = None
        self._archive = Archive(b"", "", False)

    def archive(self) -> Archive:
        """Returns the current files; the same object as long as none has changed.

        Raises:
            ExecutionError: If they are too many or too large.
            OSError: If they can't be read.
        """
        fingerprint = self._current()
        if fingerprint != self._fingerprint:
            self._archive = _zipped(self._packages, fingerprint)
            self._fingerprint = fingerprint
        return self._archive

    def _current(self) -> Fingerprint:
        found: list[tuple[str, int, int]] = []
        size = 0
        for parent, directories, files in os.walk(self._packages):
            directories[:] = sorted(name for name in directories if name != "__pycache__")
            for name in sorted(files):
                path = Path(parent, name)
                if not name.endswith(_SUFFIXES) or path.is_symlink():
                    continue
                status = path.stat()
                found.append((path.relative_to(self._packages).as_posix(), status.st_mtime_ns, status.st_size))
                size += status.st_size
                if size > MAX_BYTES or len(found) > MAX_FILES:
                    raise ExecutionError(
                        f"the generated packages in {self._packages} can't be sent to the kernel: they have more than "
                        f"{format_bytes(MAX_BYTES)} or {MAX_FILES:,} files. Delete those that are not needed"
                    )
        return tuple(found)


def _zipped(packages: Path, fingerprint: Fingerprint) -> Archive:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        archive.writestr("ipybox/__init__.py", "")
        for module in RUNTIME:
            archive.write(_ROOT / f"{module}.py", f"ipybox/{module}.py")
        archive.write(_ROOT / "guest/comm/http.py", "ipybox/guest/tools/http.py")
        for path, _, _ in fingerprint:
            archive.write(packages / path, f"{packages.name}/{path}")
    data = written.getvalue()
    return Archive(data, hashlib.sha256(data).hexdigest(), bool(fingerprint))
