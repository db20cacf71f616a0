"""The packages of a workspace on disk, replaced as a whole.

A new generation of the directory is built beside it: what was just installed is copied in, what stays is linked.
Then it takes the old one's place. Whoever is killed in between leaves the old generation or the new one, or, between
two renames, none: the next install puts the old one back before anything else.
"""

import asyncio
import csv
import fcntl
import os
import shutil
import stat
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress
from importlib.metadata import Distribution
from pathlib import Path, PurePosixPath

from packaging.utils import canonicalize_name

from ipybox.errors import IpyboxError
from ipybox.guest.packages import packages_dir
from ipybox.state import make_state_dir_in, workspace_state_dir

#: Seconds between two looks at a lock that another process holds, which gives no signal.
LOCK_INTERVAL = 0.05


class InstallError(IpyboxError):
    """A package can't be installed, and nothing was; the message says why."""


class PackageStore:
    """The packages of one workspace, for the time of one install. Others wait for their turn (`PackageStore.turn`)."""

    def __init__(self, workspace: Path):
        self.directory = packages_dir(workspace)
        self._new = self.directory.with_name("packages.new")
        self._old = self.directory.with_name("packages.old")
        self._repair()

    @classmethod
    @asynccontextmanager
    async def turn(cls, workspace: Path) -> AsyncGenerator["PackageStore"]:
        """Waits until no one else installs into this workspace, and keeps it so.

        Raises:
            NotADirectoryError: If something else is in place of our directory.
        """
        make_state_dir_in(workspace)
        # Not in the workspace: who can read a file can lock it.
        lock = os.open(workspace_state_dir(workspace) / "packages.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            while not _locked(lock):  # noqa: ASYNC110 -- the holder may be another process
                await asyncio.sleep(LOCK_INTERVAL)
            yield await asyncio.to_thread(cls, workspace)
        finally:
            os.close(lock)

    def installed(self) -> list[Distribution]:
        """Returns the distributions that are there."""
        return _distributions(self.directory)

    def describe(self, target: Path) -> None:
        """Puts the metadata of all distributions, and nothing that could run, into a new directory `target`."""
        target.mkdir()
        for info in _info_dirs(self.directory):
            metadata = info / "METADATA"
            if metadata.is_file() and not metadata.is_symlink():
                (target / info.name).mkdir()
                shutil.copyfile(metadata, target / info.name / "METADATA")

    def take_over(self, staged: Path) -> list[str]:
        """Adds the distributions in the directory `staged`, in place of older ones of the same names.

        Returns:
            What was added, each as `name-version`.

        Raises:
            InstallError: If there is anything but files and directories, or no distribution.
        """
        added = [] if staged.is_symlink() else _distributions(staged)
        if not added:
            raise InstallError("pip has installed nothing that it could find again")
        names = {canonicalize_name(found.name) for found in added}
        replaced = {
            file for found in self.installed() if canonicalize_name(found.name) in names for file in _files_of(found)
        }
        try:
            for path in _files(staged):
                _copy(staged / path, self._new / path)
            for path in _files(self.directory, strict=False):
                if not _belongs_to(path, replaced) and _owner(path.parts[0]) not in names:
                    _link(self.directory / path, self._new / path)
            self._swap()
        finally:
            _remove(self._new)
        return [f"{found.name}-{found.version}" for found in added]

    def _swap(self) -> None:
        with suppress(FileNotFoundError):
            os.rename(self.directory, self._old)
        os.rename(self._new, self.directory)
        _remove(self._old)

    def _repair(self) -> None:
        """Does what an install that was killed had left to do."""
        if not os.path.lexists(self.directory) and self._old.is_dir():
            os.rename(self._old, self.directory)
        _remove(self._old)
        _remove(self._new)
        if self.directory.is_symlink() or (self.directory.exists() and not self.directory.is_dir()):
            raise InstallError(f"{self.directory} is not a directory of ipybox: remove it")


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _info_dirs(directory: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError):
        for path in directory.iterdir():
            if path.name.endswith(".dist-info") and path.is_dir() and not path.is_symlink():
                yield path


def _distributions(directory: Path) -> list[Distribution]:
    """Returns the distributions in a directory that are whole enough to have a name and a version."""
    found = [Distribution.at(info) for info in _info_dirs(directory) if (info / "METADATA").is_file()]
    named = [one for one in found if "Name" in one.metadata and "Version" in one.metadata]
    return sorted(named, key=lambda one: canonicalize_name(one.name))


def _files_of(found: Distribution) -> Iterator[PurePosixPath]:
    """Yields the files of a distribution relative to its directory.

    pip writes them down as they were before it moved programs and data there: beginning with `../..`. So they are read
    from the record itself: from Python 3.12 on, `Distribution.files` leaves out what is not there.
    """
    for file, *_ in filter(None, csv.reader((found.read_text("RECORD") or "").splitlines())):
        parts = [part for part in PurePosixPath(file).parts if part not in ("..", "/")]
        if parts:
            yield PurePosixPath(*parts)


def _owner(name: str) -> str | None:
    """Returns the normalized name of the distribution whose metadata this directory holds."""
    return canonicalize_name(name.partition("-")[0]) if name.endswith(".dist-info") else None


def _belongs_to(path: PurePosixPath, replaced: set[PurePosixPath]) -> bool:
    if path in replaced:
        return True
    if path.parent.name != "__pycache__":
        return False
    return path.parent.parent / f"{path.name.partition('.')[0]}.py" in replaced


def _files(directory: Path, *, strict: bool = True) -> Iterator[PurePosixPath]:
    """Yields all files below a directory, without following links.

    Raises:
        InstallError: If there is anything but files and directories, and that matters (`strict`).
    """
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
            if stat.S_ISDIR(state.st_mode):
                pending.append(path)
            elif stat.S_ISREG(state.st_mode) and (not strict or state.st_nlink == 1):
                yield path
            elif strict:
                raise InstallError(f"the package holds something that is neither a file nor a directory: {path}")


def _copy(source: Path, target: Path) -> None:
    """Copies a file to a new one, with its time, by which Python knows compiled modules, and no more of its mode."""
    target.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as opened, open(target, "xb") as copy:
        state = os.fstat(fd)
        shutil.copyfileobj(opened, copy, 1 << 20)
        os.fchmod(copy.fileno(), 0o755 if state.st_mode & stat.S_IXUSR else 0o644)
    os.utime(target, ns=(state.st_atime_ns, state.st_mtime_ns))


def _link(source: Path, target: Path) -> None:
    """Links a file of the old generation into the new one, where nothing newer is."""
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
        shutil.rmtree(path, ignore_errors=True)
