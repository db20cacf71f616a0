"""The packages of a workspace on disk, replaced as a whole.

A new generation of the directory is built next to the old one: newly installed files are copied, the others are linked.
Then it takes the old one's place. A process that is killed in between leaves the old or the new generation, or, between
two renames, neither: the next install restores the old one first.
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

from ipybox.guest.packages import packages_dir
from ipybox.support.errors import IpyboxError
from ipybox.support.safe_directory import open_untrusted
from ipybox.support.state import make_ipybox_dir, workspace_state_dir

#: Seconds between two polls of a lock that another process holds, because its release gives no signal.
LOCK_INTERVAL = 0.05


class InstallError(IpyboxError):
    """A package can't be installed, and nothing was; the message says why."""


class PackageStore:
    """The packages of one workspace, during one install. Others wait for their turn (`PackageStore.turn`)."""

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
            NotADirectoryError: If something else is in place of the directory.
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

    def installed(self) -> list[Distribution]:
        """Returns the installed distributions."""
        return _distributions(self.directory)

    def describe(self, target: Path) -> None:
        """Copies the metadata of all distributions, but no code, to a new directory `target`."""
        target.mkdir()
        for info in _info_dirs(self.directory):
            metadata = info / "METADATA"
            if metadata.is_file() and not metadata.is_symlink():
                (target / info.name).mkdir()
                shutil.copyfile(metadata, target / info.name / "METADATA")

    def take_over(self, staged: Path) -> list[str]:
        """Adds the distributions in the directory `staged`, in place of older ones of the same names.

        Returns:
            The added distributions, each as `name-version`.

        Raises:
            InstallError: If there are entries other than files and directories, or no distribution.
        """
        added = [] if staged.is_symlink() else _distributions(staged)
        if not added:
            raise InstallError("pip reported success, but the installed packages are missing")
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

    pip records them as they were before it moved programs and data: beginning with `../..`. So they are read from the
    record itself: from Python 3.12 on, `Distribution.files` omits missing files.
    """
    for file, *_ in filter(None, csv.reader((found.read_text("RECORD") or "").splitlines())):
        parts = [part for part in PurePosixPath(file).parts if part not in ("..", "/")]
        if parts:
            yield PurePosixPath(*parts)


def _owner(name: str) -> str | None:
    """Returns the normalized name of the distribution whose metadata this directory contains."""
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
        InstallError: If there are entries other than files and directories, and `strict` is set.
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
                raise InstallError(f"the package contains something that is neither a file nor a directory: {path}")


def _copy(source: Path, target: Path) -> None:
    """Copies a file to a new one, with its time, which Python compares for compiled modules, but not its whole mode."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with open_untrusted(source) as opened, open(target, "xb") as copy:
        state = os.fstat(opened.fileno())
        shutil.copyfileobj(opened, copy, 1 << 20)
        os.fchmod(copy.fileno(), 0o755 if state.st_mode & stat.S_IXUSR else 0o644)
    os.utime(target, ns=(state.st_atime_ns, state.st_mtime_ns))


def _link(source: Path, target: Path) -> None:
    """Links a file of the old generation into the new one, if it has no newer file there."""
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
