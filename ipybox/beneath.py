"""Directories that others write, too: what they plant there leads nowhere else.

Code in the sandbox can write the workspace. It can replace a directory there by a link at any moment, also between a
check and what the check was for. So a directory is opened once, component by component without following links, and
all that happens in it is relative to its descriptor (`openat` and its kin, on Linux and macOS alike): whatever becomes
of its path, it stays that directory. Nor does anything here block, as opening a planted pipe would.
"""

import errno
import os
import secrets
import stat
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

#: How deep `Directory.remove` goes: each level costs a descriptor, and code can nest directories without end.
REMOVABLE_DEPTH = 32

_OPEN = os.O_RDONLY | os.O_DIRECTORY
# What systems say about a link or a file where a directory has to be.
_NO_DIRECTORY = (errno.ENOTDIR, errno.ELOOP)


@contextmanager
def open_directory(
    path: Path, *, beneath: Path | None = None, base: Path | None = None, create: bool = True
) -> Generator["Directory"]:
    """Opens a directory, which is made with its parents if need be.

    Args:
        path: The directory.
        beneath: A directory that others can write. If `path` lies there, no link is followed from there on; what lies
            elsewhere is trusted as it is given.
        base: A directory that must be there, so that nothing is made in place of one that was deleted.
        create: Whether to make it.

    Raises:
        NotADirectoryError: The directory, or a parent of it in `beneath`, is a link or no directory.
        FileNotFoundError: `base` is not there, or `path` is not and `create` is false.
    """
    if base is not None:
        base.stat()
    if beneath is None:
        root, names = path, ()
    else:
        path = Path(os.path.abspath(path))  # not `resolve`, which follows links
        spelled = spelled_in(path, beneath)
        root, names = (path, ()) if spelled is None else (beneath, spelled)
    with ExitStack() as stack:
        if create and not names:
            root.mkdir(parents=True, exist_ok=True)
        directory = Directory(os.open(root, _OPEN), root)
        stack.callback(os.close, directory.fd)
        for name in names:
            directory = stack.enter_context(directory.open(name, create=create))
        yield directory


@dataclass(frozen=True)
class Directory:
    """An open directory. Names in it are single components, and links are not followed.

    Attributes:
        fd: Its descriptor.
        path: Where it was when it was opened, for messages.
    """

    fd: int
    path: Path

    @contextmanager
    def open(self, name: str, *, create: bool = False) -> Generator["Directory"]:
        """Opens a directory in this one, which is made if need be and `create` says so.

        Raises:
            NotADirectoryError: It is a link or no directory.
        """
        path = self._path(name)
        if create:
            with suppress(FileExistsError):
                self.make(name)
        try:
            with _naming(path):
                fd = os.open(name, _OPEN | os.O_NOFOLLOW, dir_fd=self.fd)
        except OSError as exc:
            if exc.errno in _NO_DIRECTORY:
                raise NotADirectoryError(self._complaint(name)) from exc
            raise
        try:
            yield Directory(fd, path)
        finally:
            os.close(fd)

    @contextmanager
    def scratch(self, name: str) -> Generator["Directory"]:
        """Makes a directory for the time of the context, `name` and a random suffix, for this user only."""
        name = f"{name}.{secrets.token_hex(8)}.tmp"
        self.make(name, 0o700)
        try:
            with self.open(name) as directory:
                yield directory
        finally:
            self.remove(name)

    def make(self, name: str, mode: int = 0o777) -> None:
        """Makes a directory."""
        with _naming(self._path(name)):
            os.mkdir(name, mode, dir_fd=self.fd)

    def write_new(self, name: str, data: bytes) -> None:
        """Writes a file that was not there. If the disk is full, nothing of it stays.

        Raises:
            FileExistsError: Something is there, be it a link.
        """
        with _naming(self._path(name)):
            fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666, dir_fd=self.fd)
            try:
                with os.fdopen(fd, "wb") as file:
                    file.write(data)
            except OSError:
                with suppress(OSError):
                    os.unlink(name, dir_fd=self.fd)
                raise

    def read(self, name: str, limit: int) -> bytes:
        """Returns what is in a regular file, without waiting for anything.

        Raises:
            OSError: It is something else, such as a link or a pipe, or has more bytes than `limit`.
        """
        path = self._path(name)
        with _naming(path):
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self.fd)
            try:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise OSError(errno.EINVAL, "not a regular file")
                with open(fd, "rb", closefd=False) as file:
                    content = file.read(limit + 1)
            finally:
                os.close(fd)
            if len(content) > limit:
                raise OSError(errno.EFBIG, f"larger than {limit} bytes")
        return content

    def names(self) -> list[str]:
        """Returns the names of all that is there."""
        return os.listdir(self.fd)

    def stat(self, name: str) -> os.stat_result:
        """Returns the state of a file, a directory or a link itself."""
        with _naming(self._path(name)):
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)

    def rename(self, name: str, target: "Directory", target_name: str) -> None:
        """Moves a file, a directory or a link itself, in place of a file, a link or an empty directory."""
        self._path(name)
        with _naming(target._path(target_name)):
            os.rename(name, target_name, src_dir_fd=self.fd, dst_dir_fd=target.fd)

    def remove(self, name: str, *, depth: int = REMOVABLE_DEPTH) -> None:
        """Removes a file, a link or a directory with all that is in it, as far as that is possible.

        What can't be removed stays, as do directories nested deeper than `depth`. `shutil.rmtree` would wait for
        whoever writes a pipe that has taken a directory's place, and runs out of descriptors on nested ones.
        """
        with suppress(OSError):
            if not stat.S_ISDIR(self.stat(name).st_mode):
                os.unlink(name, dir_fd=self.fd)
                return
            if depth > 0:
                with self.open(name) as directory:
                    for each in directory.names():
                        directory.remove(each, depth=depth - 1)
            os.rmdir(name, dir_fd=self.fd)

    def _path(self, name: str) -> Path:
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise ValueError(f"{name!r} is not a name in a directory")
        return self.path / name

    def _complaint(self, name: str) -> str:
        path = self.path / name
        with suppress(OSError):
            if stat.S_ISLNK(self.stat(name).st_mode):
                return f"{path} is a link, which is not followed where sandboxed code can make one: remove it"
        return f"{path} is not a directory: remove it"


def spelled_in(path: Path, directory: Path) -> tuple[str, ...] | None:
    """Returns the names that lead from a directory to a path, however the way to the directory is spelled.

    None if the path does not lie there.
    """
    state = directory.stat()
    # The outermost first: what is further in can be a link that code has made, and that leads back.
    for parent in reversed((path, *path.parents)):
        try:
            if os.path.samestat(parent.stat(), state):
                return path.relative_to(parent).parts
        except OSError:
            return None
    return None


@contextmanager
def _naming(path: Path) -> Generator[None]:
    """Lets errors of the system name the whole path, as a name relative to a descriptor tells nobody anything."""
    try:
        yield
    except OSError as exc:
        raise OSError(exc.errno, exc.strerror, str(path)) from exc
