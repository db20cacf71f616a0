"""Whole outputs, in a directory of the workspace that only the host writes where there is a sandbox.

Without one code can write there, too. So no link is followed, and a name is all that is believed of a file. Names are
times, so that they tell the order. Servers of the same workspace share the directory.
"""

import codecs
import re
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ipybox.beneath import Directory, open_directory
from ipybox.state import make_state_dir_in
from ipybox.transfer.files import open_file
from ipybox.workspace.names import STATE_DIR

#: How many outputs are kept, and how many bytes they have together; the newest one is kept whatever it has.
MAX_FILES = 100
MAX_BYTES = 256 << 20

#: Bytes of one page: what clients pass on to a model without cutting it themselves.
PAGE_BYTES = 32 << 10

#: How many names are tried if others have taken them at the same time.
TRIES = 100

_SUFFIX = ".txt"
_NAME = re.compile(r"[0-9a-f]{11}", re.ASCII)


@dataclass(frozen=True)
class Kept:
    """An output that is kept.

    Attributes:
        name: Its name, which sorts by age.
        size: Bytes of its text in UTF-8.
    """

    name: str
    size: int


@dataclass(frozen=True)
class Page:
    """A part of an output.

    Attributes:
        text: The part; no character is cut in two, and a line only if it is long.
        end: The offset, in bytes, of what follows.
        size: Bytes of the whole.
    """

    text: str
    end: int
    size: int


class OutputStore:
    """The outputs of one workspace. Its methods block, and can be called from several threads.

    Args:
        workspace: The workspace.
        max_files: How many outputs are kept; the oldest ones are removed for a new one.
        max_bytes: How many bytes they have together.
    """

    def __init__(self, workspace: Path, *, max_files: int = MAX_FILES, max_bytes: int = MAX_BYTES):
        self._workspace = workspace
        self._max_files = max_files
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        #: The time that the last name stands for: what is removed at once must not leave its name to what is newer.
        self._last = 0

    def keep(self, text: str) -> str:
        """Writes an output, and returns its name.

        Raises:
            OSError: If it can't be written.
        """
        data = text.encode(errors="replace")
        make_state_dir_in(self._workspace)
        with self._lock, self._open(create=True) as directory:
            self._make_room(directory, len(data))
            return self._write(directory, data)

    def path(self, name: str) -> Path:
        """Returns where an output is."""
        return self._workspace / STATE_DIR / "outputs" / f"{name}{_SUFFIX}"

    def page(self, name: str, offset: int = 0) -> Page:
        """Returns the part of an output that begins at an offset in bytes, or with the next whole character.

        Raises:
            ValueError: If there is no such output, or it ends before the offset.
            OSError: If it can't be read.
        """
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of an output")
        try:
            with self._open() as directory, open_file(directory, f"{name}{_SUFFIX}") as (file, state):
                file.seek(offset)
                data, size = file.read(PAGE_BYTES), state.st_size
        except FileNotFoundError:
            raise ValueError(
                f"the output {name} is not there: the last {self._max_files} are kept, "
                f"with {self._max_bytes >> 20} MiB together"
            ) from None
        if offset > size:
            raise ValueError(f"the output {name} ends at {size}, before the offset {offset}")
        if offset + len(data) < size and (lines := data.rfind(b"\n") + 1) > PAGE_BYTES // 2:
            data = data[:lines]
        begun = next((i for i, byte in enumerate(data) if byte & 0xC0 != 0x80), len(data))
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(data[begun:], final=offset + len(data) >= size)
        return Page(text, offset + len(data) - len(decoder.getstate()[0]), size)

    def kept(self) -> list[Kept]:
        """Returns what is kept, the newest first."""
        try:
            with self._open() as directory:
                return _kept(directory)[::-1]
        except OSError:
            return []

    @contextmanager
    def _open(self, *, create: bool = False) -> Generator[Directory]:
        with open_directory(self.path("").parent, beneath=self._workspace, create=create) as directory:
            yield directory

    def _make_room(self, directory: Directory, size: int) -> None:
        kept = _kept(directory)
        size += sum(one.size for one in kept)
        count = len(kept) + 1
        for one in kept:
            if count <= self._max_files and size <= self._max_bytes:
                break
            directory.remove(f"{one.name}{_SUFFIX}")
            count -= 1
            size -= one.size

    def _write(self, directory: Directory, data: bytes) -> str:
        first = max(time.time_ns() // 1_000_000, self._last + 1)
        for milliseconds in range(first, first + TRIES):
            name = f"{milliseconds:011x}"
            try:
                directory.write_new(f"{name}{_SUFFIX}", data)
            except FileExistsError:
                continue
            self._last = milliseconds
            return name
        raise FileExistsError(f"{directory.path} has files with all the names that a new one could have: remove them")


def _kept(directory: Directory) -> list[Kept]:
    """Returns what is kept, the oldest first."""
    kept: list[Kept] = []
    for file in sorted(directory.names()):
        name = file.removesuffix(_SUFFIX)
        if name != file and _NAME.fullmatch(name):
            with suppress(OSError):  # another server has removed it
                kept.append(Kept(name, directory.stat(file).st_size))
    return kept
