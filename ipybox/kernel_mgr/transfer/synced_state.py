"""What two machines compare of files that they keep equal (`synced_tree`). Nothing here touches the file system."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ipybox.kernel_mgr.transfer.files import MAX_BYTES, MAX_ITEMS

#: Bytes and files that are packed together, unless one file is larger.
BATCH_BYTES = 16 << 20
BATCH_FILES = 500


@dataclass(frozen=True)
class FileState:
    """What is compared of a file.

    Attributes:
        sha256: The hash of its content, hexadecimal.
        size: The bytes of its content.
        executable: Whether its owner can execute it.
    """

    sha256: str
    size: int
    executable: bool


@dataclass(frozen=True)
class Bounds:
    """How much is synchronized.

    Attributes:
        total: Bytes of all files together.
        one: Bytes of one file.
        files: Number of files and directories.
    """

    total: int = 512 << 20
    one: int = MAX_BYTES
    files: int = MAX_ITEMS


@dataclass
class Scan:
    """What a scan has found.

    Attributes:
        files: The files, by their paths.
        omitted: Files and directories that are left as they are, with the reason.
        size: The bytes of the files.
        items: The number of files and directories that were looked at.
    """

    files: dict[str, FileState] = field(default_factory=dict[str, FileState])
    omitted: dict[str, str] = field(default_factory=dict[str, str])
    size: int = 0
    items: int = 0

    def covers(self, path: str) -> bool:
        """Returns whether a path that was not found does not exist: neither it nor a parent was omitted."""
        return not self.omitted or all(parent not in self.omitted for parent in _with_parents(path))


def changed(before: Mapping[str, FileState], now: Mapping[str, FileState]) -> dict[str, FileState]:
    """Returns the files that are new or not as they were."""
    return {path: state for path, state in now.items() if before.get(path) != state}


def batches(files: Mapping[str, FileState]) -> Iterator[dict[str, FileState]]:
    """Yields files in parts that are packed together."""
    batch: dict[str, FileState] = {}
    size = 0
    for path, state in files.items():
        if batch and (size + state.size > BATCH_BYTES or len(batch) >= BATCH_FILES):
            yield batch
            batch, size = {}, 0
        batch[path] = state
        size += state.size
    if batch:
        yield batch


def _with_parents(path: str) -> Iterator[str]:
    names = path.split("/")
    return ("/".join(names[:end]) for end in range(1, len(names) + 1))
