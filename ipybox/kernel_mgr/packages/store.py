"""The packages of a workspace on disk, replaced as a whole.

A new generation of the directory is built next to the old one: newly installed files are copied, the others are linked.
Then it replaces the old one. A process that is killed in between leaves the old or the new generation, or, between two
renames, neither: the next install restores the old one first.
"""

import asyncio
import csv
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import AsyncGenerator, Collection, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import chain, islice
from pathlib import Path, PurePosixPath

from ipybox.guest.packages import packages_dir
from ipybox.kernel_mgr.packages.distributions import Installed, find
from ipybox.support.errors import IpyboxError
from ipybox.support.safe_directory import open_untrusted
from ipybox.support.scratch import remove_tree
from ipybox.support.state import make_ipybox_dir, workspace_state_dir

#: Maximum bytes to read of a distribution's list of files.
MAX_RECORD = 16 << 20

#: Maximum files of a distribution: each takes 400 bytes and 6 µs.
MAX_FILES = 100_000

#: Maximum number of directories in each other. Python's functions call themselves for each.
MAX_DEPTH = 100

#: Seconds between polls of a lock that another process holds, because nothing signals its release.
LOCK_INTERVAL = 0.05


class InstallError(IpyboxError):
    """A package can't be installed or removed, and nothing was changed; the message says why."""


class PackageStore:
    """The packages of one workspace, while one process reads or replaces them (`PackageStore.turn`)."""

    def __init__(self, workspace: Path):
        self.directory = packages_dir(workspace)
        self._new = self.directory.with_name("packages.new")
        self._old = self.directory.with_name("packages.old")
        self._repair()

    @classmethod
    @asynccontextmanager
    async def turn(cls, workspace: Path) -> AsyncGenerator["PackageStore"]:
        """Waits until no other process installs into this workspace, and locks it.

        Raises:
            NotADirectoryError: If the workspace's `.ipybox` is not a directory.
        """
        make_ipybox_dir(workspace)
        # Not in the workspace: any process that can read a file can lock it.
        lock = os.open(workspace_state_dir(workspace) / "packages.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            while not _locked(lock):  # noqa: ASYNC110 -- the holder may be another process
                await asyncio.sleep(LOCK_INTERVAL)
            yield await asyncio.to_thread(cls, workspace)
        finally:
            os.close(lock)

    def installed(self) -> dict[str, Installed]:
        """Returns the installed distributions by their names."""
        return find(self.directory)

    def replace(self, names: Collection[str], staged: Path | None = None) -> None:
        """Removes the distributions with these names, and adds all files in the directory `staged`.

        Raises:
            InstallError: If there are entries other than files and directories, or the disk is full.
        """
        replaced = [found for name, found in self.installed().items() if name in names]
        infos, files = {found.info.name for found in replaced}, {*chain(*map(_files_of, replaced))}
        try:
            self._new.mkdir()
            if staged is not None:
                for path in _files(staged):
                    _copy(staged / path, self._new / path)
            for path in _files(self.directory, strict=False):
                if path.parts[0] not in infos and not _belongs_to(path, files):
                    _link(self.directory / path, self._new / path)
            self._swap()
        except OSError as exc:
            if exc.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise InstallError(f"the disk is full: free up space for {self.directory}") from exc
        finally:
            _remove(self._new)

    def _swap(self) -> None:
        with suppress(FileNotFoundError):
            os.rename(self.directory, self._old)
        os.rename(self._new, self.directory)
        _remove(self._old)

    def _repair(self) -> None:
        """Completes the work of an install that was killed."""
        if not os.path.lexists(self.directory) and self._old.is_dir():
            os.rename(self._old, self.directory)
        _remove(self._old)
        _remove(self._new)
        if self.directory.is_symlink() or (self.directory.exists() and not self.directory.is_dir()):
            raise InstallError(f"{self.directory} was not created by ipybox: remove it")


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _files_of(found: Installed) -> Iterator[PurePosixPath]:
    """Yields the recorded files of a distribution, relative to its directory."""
    try:
        with open_untrusted(found.info / "RECORD") as file:
            lines = file.read(MAX_RECORD).decode(errors="replace").splitlines()
    except OSError:
        return
    with suppress(csv.Error):  # code of a package may have written anything
        for file, *_ in filter(None, islice(csv.reader(lines), MAX_FILES)):
            parts = [part for part in PurePosixPath(file).parts if part not in ("..", "/")]
            if parts:
                yield PurePosixPath(*parts)


def _belongs_to(path: PurePosixPath, replaced: set[PurePosixPath]) -> bool:
    if path in replaced:
        return True
    if path.parent.name != "__pycache__":
        return False
    return path.parent.parent / f"{path.name.partition('.')[0]}.py" in replaced


def _files(directory: Path, *, strict: bool = True) -> Iterator[PurePosixPath]:
    """Yields all files below a directory, without following links; if `strict`, other entries are an InstallError."""
    pending = [PurePosixPath()]
    while pending:
        current = pending.pop()
        try:
            entries = list(os.scandir(directory / current))
        except FileNotFoundError:
            continue
        for entry in entries:
            path = current / entry.name
            state = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(state.st_mode) and len(path.parts) <= MAX_DEPTH:
                pending.append(path)
            elif stat.S_ISREG(state.st_mode) and (not strict or state.st_nlink == 1):
                yield path
            elif strict:
                what = f"directories more than {MAX_DEPTH} deep" if stat.S_ISDIR(state.st_mode) else "something else"
                raise InstallError(f"a package may contain files and directories, not {what}: {str(path)[:200]}")


def _copy(source: Path, target: Path) -> None:
    """Copies a file with its times, which Python checks for compiled modules, and whether it is executable."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with open_untrusted(source) as opened, open(target, "xb") as copy:
        state = os.fstat(opened.fileno())
        shutil.copyfileobj(opened, copy, 1 << 20)
        os.fchmod(copy.fileno(), 0o755 if state.st_mode & stat.S_IXUSR else 0o644)
    os.utime(target, ns=(state.st_atime_ns, state.st_mtime_ns))


def _link(source: Path, target: Path) -> None:
    """Links a file of the old generation into the new one, unless that contains a newer file."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(source, target, follow_symlinks=False)
    except (FileExistsError, NotADirectoryError):
        pass
    except OSError:  # a file system without links
        _copy(source, target)


def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    else:
        remove_tree(path)
