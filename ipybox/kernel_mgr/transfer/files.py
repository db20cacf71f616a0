"""Reads and writes transferred files: regular files and directories, within limits, complete or not at all."""

import os
import stat
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import IO

from ipybox.support.printable import printable
from ipybox.support.safe_directory import Directory, kind
from ipybox.support.sizes import format_bytes

#: Default maximum bytes of one transfer, before any encoding.
MAX_BYTES = 64 * 1024**2
#: Maximum files and directories of one transfer.
MAX_ITEMS = 10_000
#: Maximum directory levels of one transfer; each level costs a descriptor.
MAX_DEPTH = 30
#: How many omitted names a report lists.
MAX_OMITTED = 20
#: Maximum bytes of files that are packed together, unless a single file is larger.
PART = 16 * 1024**2
#: The directory of bytecode that Python writes next to modules.
CACHE = "__pycache__"

_CHUNK = 1024**2
_SCRATCH = ".transfer"

#: The names that were written; None for a file, the entries for a directory.
Tree = dict[str, "Tree | None"]

#: Returns why a path, relative to the root of the transfer, is omitted; None if it is not.
Refused = Callable[[tuple[str, ...]], str | None]

#: Returns whether to skip a regular file, by its path and status, without reporting it as omitted.
Skipped = Callable[[tuple[str, ...], os.stat_result], bool]


@dataclass(frozen=True)
class Item:
    """A file or directory to transfer.

    Attributes:
        names: Its path relative to the root of the transfer.
        file: Its content, open until the next item; None for a directory.
        executable: Whether its owner can execute it.
    """

    names: tuple[str, ...]
    file: IO[bytes] | None = None
    executable: bool = False


@dataclass
class Transfer:
    """One transfer: its limits, and the number and bytes of the files transferred so far.

    A ValueError says which limit would be exceeded.
    """

    max_bytes: int = field(default_factory=lambda: MAX_BYTES)
    max_items: int = field(default_factory=lambda: MAX_ITEMS)
    files: int = 0
    size: int = 0
    _items: int = 0
    _omitted: dict[tuple[str, ...], str] = field(default_factory=dict[tuple[str, ...], str])

    @property
    def omitted(self) -> tuple[str, ...]:
        """The first omitted files, each with the reason."""
        first = islice(self._omitted.items(), MAX_OMITTED)
        more = len(self._omitted) - MAX_OMITTED
        omitted = [f"{printable('/'.join(names))} ({why})" for names, why in first]
        return (*omitted, f"{more} more") if more > 0 else tuple(omitted)

    def omit(self, names: tuple[str, ...], why: str) -> None:
        """Records an omitted path; paths below it are not recorded."""
        if not any(names[:depth] in self._omitted for depth in range(1, len(names) + 1)):
            self._omitted[names] = why

    def count(self, names: tuple[str, ...]) -> None:
        """Counts a file or directory."""
        self._items += 1
        if self._items > self.max_items or len(names) > MAX_DEPTH:
            what = f"{MAX_DEPTH} levels" if len(names) > MAX_DEPTH else f"{self.max_items} files and directories"
            raise ValueError(f"at {printable('/'.join(names))}: the limit per transfer is {what}; transfer it in parts")

    def chunks(self, item: Item) -> Iterator[bytes]:
        """Yields the content of a file, and counts it, even if the file grows."""
        assert item.file is not None
        self.files += 1
        while chunk := item.file.read(_CHUNK):
            self.size += len(chunk)
            if self.size > self.max_bytes:
                raise ValueError(
                    f"at {printable('/'.join(item.names))}: the limit per transfer is {format_bytes(self.max_bytes)}; "
                    "transfer it in parts"
                )
            yield chunk


@contextmanager
def open_item(parent: Directory, names: tuple[str, ...]) -> Generator[Item]:
    """Opens a regular file in the directory that contains it, as `Directory.open_file` does."""
    with parent.open_file(names[-1]) as file:
        yield Item(names, file, bool(os.fstat(file.fileno()).st_mode & stat.S_IXUSR))


def walk(
    directory: Directory,
    transfer: Transfer,
    refused: Refused,
    names: tuple[str, ...] = (),
    skipped: Skipped = lambda _names, _state: False,
) -> Iterator[Item]:
    """Yields the entries of a directory, sorted by name; links and the like are omitted.

    Args:
        transfer: Counts entries and records omitted paths.
        names: The directory's path relative to the root of the transfer.
    """
    for name in sorted(_names(directory)):
        yield from visit(directory, (*names, name), transfer, refused, skipped)


def visit(
    parent: Directory, names: tuple[str, ...], transfer: Transfer, refused: Refused, skipped: Skipped
) -> Iterator[Item]:
    """Yields a file, or a directory and its entries, as `walk` does; nothing if it does not exist.

    `parent` is the directory that contains it, `names` its path relative to the root of the transfer.
    """
    name = names[-1]
    transfer.count(names)
    if reason := refused(names):
        transfer.omit(names, reason)
        return
    with ExitStack() as stack:
        try:
            state = parent.stat(name)
            if stat.S_ISDIR(state.st_mode):
                entered = stack.enter_context(parent.open(name))
            elif stat.S_ISREG(state.st_mode):
                if skipped(names, state):
                    return
                entered = stack.enter_context(open_item(parent, names))
            else:
                transfer.omit(names, kind(state))
                return
        except FileNotFoundError:
            return  # removed since it was listed
        except OSError:
            transfer.omit(names, "can't be read")
            return
        if isinstance(entered, Directory):
            yield Item(names)
            yield from walk(entered, transfer, refused, names, skipped)
        else:
            yield entered


@contextmanager
def open_below(directory: Directory, names: tuple[str, ...], *, create: bool = False) -> Generator[Directory]:
    """Opens a directory below another one, as `Directory.open` opens one in it."""
    with ExitStack() as stack:
        for name in names:
            directory = stack.enter_context(directory.open(name, create=create))
        yield directory


def open_items(directory: Directory, paths: Iterable[tuple[str, ...]]) -> Iterator[Item]:
    """Yields files below a directory by their paths, skipping those that can no longer be read."""
    for names in paths:
        with suppress(OSError), open_below(directory, names[:-1]) as parent, open_item(parent, names) as item:
            yield item


def remove_file(directory: Directory, names: tuple[str, ...]) -> None:
    """Deletes a file below a directory, and then its parents that contain no other file, except the topmost one."""
    with suppress(FileNotFoundError):
        with open_below(directory, names[:-1]) as parent:
            os.unlink(names[-1], dir_fd=parent.fd)
        for depth in range(len(names) - 1, 1, -1):
            with open_below(directory, names[: depth - 1]) as outer:
                with outer.open(names[depth - 1]) as parent:
                    if parent.names() not in ([], [CACHE]):
                        return
                outer.remove(names[depth - 1])


def write_tree(directory: Directory, items: Iterable[Item], transfer: Transfer) -> Tree:
    """Writes files and directories into a directory, adding to or replacing its entries; returns their names.

    Writes everything to a scratch directory first: if that fails, nothing has changed.

    Raises:
        IsADirectoryError: If a directory is where a file must be.
        NotADirectoryError: If something else, such as a link to a directory, is where a directory must be.
    """
    tree: Tree = {}
    with directory.scratch(_SCRATCH) as scratch:
        for item in items:
            _stage(scratch, tree, item, transfer)
        _fits(directory, tree)
        _move(scratch, directory, tree)
    return tree


def _stage(scratch: Directory, tree: Tree, item: Item, transfer: Transfer) -> None:
    with ExitStack() as stack:
        *parents, name = item.names
        for parent in parents if item.file is not None else item.names:
            scratch = stack.enter_context(scratch.open(parent, create=True))
            inner = tree.setdefault(parent, {})
            assert inner is not None, "a file was opened as a directory"
            tree = inner
        if item.file is not None:
            scratch.write_new(name, transfer.chunks(item), 0o777 if item.executable else 0o666)
            tree[name] = None


def _fits(directory: Directory, tree: Tree) -> None:
    """Checks that a whole tree can be moved into place."""
    for name, inner in tree.items():
        try:
            found = directory.stat(name)
        except FileNotFoundError:
            continue
        path, is_directory = printable(directory.path / name), stat.S_ISDIR(found.st_mode)
        if inner is None and is_directory:
            raise IsADirectoryError(f"{path} is a directory, not a file: nothing was changed")
        if inner is not None:
            if not is_directory:
                raise NotADirectoryError(f"{path} is not a directory: nothing was changed")
            with directory.open(name) as there:
                _fits(there, inner)


def _move(scratch: Directory, target: Directory, tree: Tree) -> None:
    # Only the names that were written: other processes may have added files.
    for name, inner in tree.items():
        if inner is None:
            scratch.rename(name, target, name)
        else:
            with scratch.open(name) as source, target.open(name, create=True) as destination:
                _move(source, destination, inner)


def _names(directory: Directory) -> list[str]:
    with os.scandir(directory.fd) as entries:
        names = [entry.name for entry in islice(entries, MAX_ITEMS + 1)]
    if len(names) > MAX_ITEMS:
        raise ValueError(f"{printable(directory.path)} contains more than {MAX_ITEMS} files, the limit per transfer")
    return names
