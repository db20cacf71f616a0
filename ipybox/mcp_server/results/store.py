"""Full outputs, in a directory of the workspace that sandboxed code can't write to.

Without a sandbox, code can write there, so links are not followed and only file names are trusted. Names are
timestamps, which sort by age. Servers of the same workspace share the directory.
"""

import codecs
import os
import re
import threading
import time
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import NamedTuple

from ipybox.support.names import STATE_DIR
from ipybox.support.safe_directory import Directory, open_directory
from ipybox.support.state import make_ipybox_dir

#: Limits of the kept outputs: their number and total bytes. The newest one is kept at any size.
MAX_FILES = 100
MAX_BYTES = 256 << 20

#: Bytes of one page: clients pass this much to a model without truncating it.
PAGE_BYTES = 32 << 10

#: How many names to try if other servers use the same ones.
TRIES = 100

_SUFFIX = ".txt"
_NAME = re.compile(r"[0-9a-f]{11}", re.ASCII)


class StoredOutput(NamedTuple):
    """A kept output: its name, which sorts by age, and its size in bytes of UTF-8."""

    name: str
    size: int


class OutputPage(NamedTuple):
    """A part of an output, cut between characters and, unless a line is long, between lines.

    `end` is the byte offset of the next part, and `size` the bytes of the full output.
    """

    text: str
    end: int
    size: int


class OutputStore:
    """The outputs of one workspace. Its methods block, and can be called from several threads."""

    def __init__(self, workspace: Path, *, max_files: int = MAX_FILES, max_bytes: int = MAX_BYTES):
        self._workspace = workspace
        self._max_files = max_files
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        #: The timestamp in the last name, which is never reused, even if that output is removed.
        self._last = 0

    def save(self, text: str) -> str:
        """Writes an output, and returns its name; raises an OSError if that fails."""
        data = text.encode(errors="replace")
        make_ipybox_dir(self._workspace)
        with self._lock, self._open(create=True) as directory:
            self._make_room(directory, len(data))
            return self._write(directory, data)

    def path(self, name: str) -> Path:
        """Returns the path of an output's file."""
        return self._workspace / STATE_DIR / "outputs" / f"{name}{_SUFFIX}"

    def page(self, name: str, offset: int = 0) -> OutputPage:
        """Returns the page of an output that starts at a byte offset, or at the next whole character.

        Raises a ValueError if the output does not exist or ends before the offset, and an OSError if it can't be read.
        """
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of an output")
        try:
            with self._open() as directory, directory.open_file(f"{name}{_SUFFIX}") as file:
                file.seek(offset)
                data, size = file.read(PAGE_BYTES), os.fstat(file.fileno()).st_size
        except FileNotFoundError:
            raise ValueError(
                f"output {name} not found: ipybox keeps the last {self._max_files} outputs, up to "
                f"{self._max_bytes >> 20} MiB in total"
            ) from None
        if offset > size:
            raise ValueError(f"offset {offset} is past the end of output {name} ({size} bytes)")
        if offset + len(data) < size and (lines := data.rfind(b"\n") + 1) > PAGE_BYTES // 2:
            data = data[:lines]
        start = next((i for i, byte in enumerate(data) if byte & 0xC0 != 0x80), len(data))
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(data[start:], final=offset + len(data) >= size)
        return OutputPage(text, offset + len(data) - len(decoder.getstate()[0]), size)

    def kept(self) -> list[StoredOutput]:
        """Returns the kept outputs, newest first."""
        try:
            with self._open() as directory:
                return _list_outputs(directory)[::-1]
        except OSError:
            return []

    def _open(self, *, create: bool = False) -> AbstractContextManager[Directory]:
        return open_directory(self.path("").parent, untrusted_root=self._workspace, create=create)

    def _make_room(self, directory: Directory, size: int) -> None:
        kept = _list_outputs(directory)
        size += sum(one.size for one in kept)
        while kept and (len(kept) >= self._max_files or size > self._max_bytes):
            oldest = kept.pop(0)
            directory.remove(f"{oldest.name}{_SUFFIX}")
            size -= oldest.size

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
        raise FileExistsError(f"{directory.path} has no free file name left: remove old files")


def _list_outputs(directory: Directory) -> list[StoredOutput]:
    """Returns the kept outputs, oldest first."""
    kept: list[StoredOutput] = []
    for file in sorted(directory.names()):
        name = file.removesuffix(_SUFFIX)
        if name != file and _NAME.fullmatch(name):
            with suppress(OSError):  # another server has removed it
                kept.append(StoredOutput(name, directory.stat(file).st_size))
    return kept
