"""Files that two machines keep equal, on one of them: finds what has changed, and reads, writes and deletes files.

Both ends of an engine's link use it (`ipybox.engine.file_sync`, `ipybox.node.files`). The other end may be hostile, and
code may write these directories at the same time, so the rules of a transfer hold: no link is followed, only regular
files are read and written, within limits, and a written file is complete before it takes the place of another one.

A scan reads the status of all files, and the content only of those whose status has changed since the last scan.
"""

import errno
import hashlib
import os
import stat
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import IO

from ipybox.kernel_mgr.transfer.files import (
    MAX_DEPTH,
    Item,
    Refused,
    Transfer,
    kind,
    open_file,
    write_tree,
)
from ipybox.kernel_mgr.transfer.synced_state import BATCH_BYTES, Bounds, FileState, Scan
from ipybox.kernel_mgr.transfer.tar import pack, unpack
from ipybox.support.safe_directory import Directory, open_directory
from ipybox.support.sizes import format_bytes

#: Seconds after a change in which another one may leave the status of a file unchanged: file systems count in ticks.
UNSETTLED = 1.0

#: Why a file was not written that is not as expected.
CHANGED = "it has changed in the meantime"

#: Paths of which it is known whether a rule denies them.
CACHED_PATHS = 50_000

_CACHE = "__pycache__"
_CHUNK = 1 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass
class Written:
    """What was written or deleted.

    Attributes:
        done: The paths.
        failed: The paths that were not, with the reason.
    """

    done: set[str] = field(default_factory=set[str])
    failed: dict[str, str] = field(default_factory=dict[str, str])


#: Device, number, size, times and mode of a file.
_Status = tuple[int, ...]


class SyncedTree:
    """Files below one directory. Paths are relative to it, with slashes. All calls block.

    Args:
        base: The directory.
        unreadable: Returns why a path is not read; None if it is.
        unwritable: Returns why a path is neither written nor deleted; None if it is.
        bounds: How much is read.
    """

    def __init__(self, base: Path, unreadable: Refused, unwritable: Refused, bounds: Bounds | None = None):
        self._base = base
        self.unreadable = lru_cache(CACHED_PATHS)(unreadable)
        self.unwritable = lru_cache(CACHED_PATHS)(unwritable)
        self._bounds = bounds or Bounds()
        self._known: dict[str, tuple[_Status, FileState]] = {}

    def scan(self, roots: Iterable[str]) -> Scan:
        """Returns the state of all files in these directories, and of these files.

        Raises:
            OSError: If the base can't be opened.
        """
        found = Scan()
        known, self._known = self._known, {}
        with open_directory(self._base, create=False) as base:
            for root in roots:
                names = tuple(root.split("/"))
                try:
                    with _parent(base, names) as parent:
                        self._visit(parent, names, found, known)
                except FileNotFoundError:
                    continue
                except OSError as exc:
                    found.omitted[root] = _reason(exc)
        return found

    def states(self, paths: Iterable[str]) -> dict[str, FileState]:
        """Returns the state of those of these files that exist and can be read."""
        states: dict[str, FileState] = {}
        with open_directory(self._base, create=False) as base:
            for path in paths:
                names = tuple(path.split("/"))
                with suppress(OSError), _parent(base, names) as parent:
                    states[path] = self._state(parent, names[-1], path, self._known)
        return states

    def packed(self, paths: Iterable[str]) -> bytes:
        """Returns files as tar; without those that can't be read anymore.

        Raises:
            ValueError: If they have become too large together.
        """
        return pack(self._items(paths), Transfer(max(self._bounds.one, BATCH_BYTES)))

    def write(self, packed: bytes, expected: Mapping[str, FileState]) -> Written:
        """Writes files from a tar, those that are as expected. Each replaces an existing file.

        Raises:
            ValueError: If it is not a valid tar.
            OSError: If the base can't be opened.
        """
        written = Written()
        with open_directory(self._base, create=False) as base:
            try:
                write_tree(base, self._verified(packed, expected, written), self._transfer())
            except OSError:  # nothing was written: find out which of them can't be
                written.done.clear()
                self._write_each(base, packed, expected, written)
        for path in expected.keys() - written.done - written.failed.keys():
            written.failed[path] = CHANGED
        return written

    def delete(self, paths: Iterable[str]) -> Written:
        """Deletes files, and the directories that are then empty, apart from the first one of each path.

        Raises:
            OSError: If the base can't be opened.
        """
        deleted = Written()
        with open_directory(self._base, create=False) as base:
            for path in paths:
                names = tuple(path.split("/"))
                if reason := self.unwritable(names):
                    deleted.failed[path] = reason
                    continue
                try:
                    with _parent(base, names) as parent:
                        if stat.S_ISREG(parent.stat(names[-1]).st_mode):
                            os.unlink(names[-1], dir_fd=parent.fd)
                except FileNotFoundError:
                    pass
                except OSError as exc:
                    deleted.failed[path] = _reason(exc)
                    continue
                deleted.done.add(path)
                _prune(base, names[:-1])
        return deleted

    def _transfer(self) -> Transfer:
        return Transfer(max(self._bounds.one, BATCH_BYTES))

    def _visit(
        self, parent: Directory, names: tuple[str, ...], found: Scan, known: dict[str, tuple[_Status, FileState]]
    ) -> None:
        path, name = "/".join(names), names[-1]
        if reason := _unnamable(path) or self.unreadable(names):
            found.omitted[path] = reason
            return
        try:
            status = parent.stat(name)
            found.items += 1
            if len(names) > MAX_DEPTH:
                found.omitted[path] = f"only {MAX_DEPTH} levels are synchronized"
                return
            if stat.S_ISDIR(status.st_mode):
                with parent.open(name) as directory:
                    names_in, more = _listed(directory, self._bounds.files)
                    if more:
                        found.omitted[path] = f"it has more than {self._bounds.files:,} entries"
                        return
                    for each in names_in:
                        if found.items >= self._bounds.files:
                            found.omitted[path] = (
                                f"only {self._bounds.files:,} files and directories are synchronized together"
                            )
                            return
                        self._visit(directory, (*names, each), found, known)
            elif not stat.S_ISREG(status.st_mode):
                found.omitted[path] = kind(status)
            elif status.st_size > self._bounds.one:
                found.omitted[path] = (
                    f"it has {format_bytes(status.st_size)}, and a file may have {format_bytes(self._bounds.one)}"
                )
            elif found.size + status.st_size > self._bounds.total:
                found.omitted[path] = f"all files together may have {format_bytes(self._bounds.total)}"
            else:
                state = self._state(parent, name, path, known)
                found.size += state.size
                found.files[path] = state
        except FileNotFoundError:
            return  # removed since it was listed
        except OSError as exc:
            found.omitted[path] = _reason(exc)

    def _state(
        self, parent: Directory, name: str, path: str, known: Mapping[str, tuple[_Status, FileState]]
    ) -> FileState:
        before = known.get(path)
        if before is not None and before[0] == _status(parent.stat(name)):
            self._known[path] = before
            return before[1]
        with open_file(parent, name) as (file, status):
            sha256, size = _hash(file, self._bounds.one)
        state = FileState(sha256, size, bool(status.st_mode & stat.S_IXUSR))
        if time.time() - max(status.st_ctime, status.st_mtime) >= UNSETTLED:
            self._known[path] = (_status(status), state)
        return state

    def _items(self, paths: Iterable[str]) -> Iterator[Item]:
        with open_directory(self._base, create=False) as base:
            for path in paths:
                names = tuple(path.split("/"))
                if self.unreadable(names):
                    continue
                try:
                    with _parent(base, names) as parent, open_file(parent, names[-1]) as (file, status):
                        if status.st_size <= self._bounds.one:
                            yield Item(names, file, bool(status.st_mode & stat.S_IXUSR))
                except OSError:
                    continue

    def _verified(self, packed: bytes, expected: Mapping[str, FileState], written: Written) -> Iterator[Item]:
        def refused(names: tuple[str, ...]) -> str | None:
            return self.unwritable(names) if "/".join(names) in expected else "it was not requested"

        for item in unpack(packed, self._transfer(), refused):
            path = "/".join(item.names)
            if item.file is None or (wanted := expected.get(path)) is None:
                continue
            if _hash(item.file, self._bounds.one)[0] == wanted.sha256:
                item.file.seek(0)
                written.done.add(path)
                yield Item(item.names, item.file, wanted.executable)

    def _write_each(self, base: Directory, packed: bytes, expected: Mapping[str, FileState], written: Written) -> None:
        for item in self._verified(packed, expected, written):
            path = "/".join(item.names)
            try:
                write_tree(base, [item], self._transfer())
            except OSError as exc:
                written.done.discard(path)
                written.failed[path] = _reason(exc)


def _listed(directory: Directory, limit: int) -> tuple[list[str], bool]:
    """Returns the names in a directory, in their order, and whether there are more than the limit."""
    with os.scandir(directory.fd) as entries:
        names = [entry.name for entry in islice(entries, limit + 1)]
    return sorted(name for name in names if name != _CACHE), len(names) > limit


@contextmanager
def _parent(base: Directory, names: tuple[str, ...]) -> Generator[Directory]:
    """Opens the directory that contains a path."""
    with ExitStack() as stack:
        for name in names[:-1]:
            base = stack.enter_context(base.open(name))
        yield base


def _prune(base: Directory, names: tuple[str, ...]) -> None:
    """Removes a directory if it has no files, and then its parents, but not the first of them."""
    while len(names) > 1:
        try:
            with _parent(base, names) as parent:
                with parent.open(names[-1]) as directory:
                    if directory.names() == [_CACHE]:
                        directory.remove(_CACHE)
                os.rmdir(names[-1], dir_fd=parent.fd)
        except OSError:
            return
        names = names[:-1]


def _hash(file: IO[bytes], limit: int) -> tuple[str, int]:
    """Returns the hash of a content and its size; of a file that grows, no more than the limit."""
    digest, size = hashlib.sha256(), 0
    while size <= limit and (chunk := file.read(_CHUNK)):
        digest.update(chunk)
        size += len(chunk)
    return digest.hexdigest(), size


def _status(status: os.stat_result) -> _Status:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_mode)


def _unnamable(path: str) -> str | None:
    try:
        path.encode()
    except UnicodeEncodeError:
        return "its name is not valid UTF-8"
    return None


def _reason(exc: OSError) -> str:
    reason = exc.strerror or str(exc)
    return f"{reason}: free space there" if exc.errno in _FULL else reason
