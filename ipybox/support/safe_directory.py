"""Safe access to directories that untrusted code can write: links planted there are not followed.

Code in the sandbox can replace a workspace directory with a link at any moment. So a directory is opened once,
component by component without following links, and everything done in it is relative to its descriptor. No function
here blocks, as opening a planted pipe would.
"""

import errno
import os
import secrets
import stat
import time
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

_OPEN = os.O_RDONLY | os.O_DIRECTORY

#: Seconds for `Directory.remove`: code may be adding directories faster than it removes them.
REMOVE_LIMIT = 30.0


@contextmanager
def open_directory(path: Path, *, untrusted_root: Path | None = None, create: bool = True) -> Generator["Directory"]:
    """Opens a directory; with `create`, creates it and its parents if needed.

    Args:
        untrusted_root: A directory that untrusted code can write. If `path` lies there, no link below it is followed;
            other paths are trusted as given.

    Raises:
        NotADirectoryError: If the directory, or a parent of it in `untrusted_root`, is a link or not a directory.
    """
    root, names = path, ()
    if untrusted_root is not None:
        root = Path(os.path.abspath(path))  # not `resolve`, which follows links
        if (spelled := names_below(root, untrusted_root)) is not None:
            root, names = untrusted_root, spelled
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
    """An open directory. Names in it are single path components, and links are not followed."""

    fd: int
    #: Its path when it was opened, for messages.
    path: Path

    @contextmanager
    def open(self, name: str, *, create: bool = False) -> Generator["Directory"]:
        """Opens a directory in this one; raises a NotADirectoryError for links and anything else."""
        if create:
            with suppress(FileExistsError):
                self.make(name)
        try:
            with self._named(name):
                fd = os.open(name, _OPEN | os.O_NOFOLLOW, dir_fd=self.fd)
        except OSError as exc:
            if exc.errno not in (errno.ENOTDIR, errno.ELOOP):  # of a link or a file
                raise
            raise NotADirectoryError(self._complaint(name)) from exc
        try:
            yield Directory(fd, self.path / name)
        finally:
            os.close(fd)

    @contextmanager
    def scratch(self, name: str) -> Generator["Directory"]:
        """Creates a private directory for the duration of the context, named `name` with a random suffix."""
        name = f"{name}.{secrets.token_hex(8)}.tmp"
        self.make(name, 0o700)
        try:
            with self.open(name) as directory:
                yield directory
        finally:
            self.remove(name)

    def make(self, name: str, mode: int = 0o777) -> None:
        """Creates a directory."""
        with self._named(name):
            os.mkdir(name, mode, dir_fd=self.fd)

    def write_new(self, name: str, data: bytes | Iterable[bytes], mode: int = 0o666) -> None:
        """Writes a new file from one or more pieces. If that fails, for example on a full disk, the file is removed."""
        with self._named(name):
            fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode, dir_fd=self.fd)
            try:
                with os.fdopen(fd, "wb") as file:
                    file.writelines([data] if isinstance(data, bytes) else data)
            except OSError:
                with suppress(OSError):
                    os.unlink(name, dir_fd=self.fd)
                raise

    def keep_out_of_git(self) -> None:
        """Makes git ignore this directory and its content, unless it already contains a `.gitignore`."""
        with suppress(FileExistsError):
            self.write_new(".gitignore", b"*\n")

    def read(self, name: str, limit: int) -> bytes:
        """Returns the content of a regular file; raises an OSError if it has more bytes than `limit`."""
        with self.open_file(name) as file, self._named(name):
            content = file.read(limit + 1)
            if len(content) > limit:
                raise OSError(errno.EFBIG, f"larger than {limit} bytes")
        return content

    @contextmanager
    def open_file(self, name: str) -> Generator[BinaryIO]:
        """Opens a regular file for reading; others are an OSError, because they could block or have side effects."""
        with self._named(name):
            state = os.stat(name, dir_fd=self.fd, follow_symlinks=False)
            if not stat.S_ISREG(state.st_mode):
                raise OSError(errno.EINVAL, f"is {kind(state)}, not a regular file")
            # If something else has replaced it since, this neither follows a link nor blocks.
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self.fd)
        try:
            with self._named(name):
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise OSError(errno.EINVAL, "not a regular file")
            with open(fd, "rb", closefd=False) as file:
                yield file
        finally:
            os.close(fd)

    def names(self) -> list[str]:
        """Returns all names in the directory."""
        return os.listdir(self.fd)

    def stat(self, name: str) -> os.stat_result:
        """Returns the status of a file, a directory or a link itself."""
        with self._named(name):
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)

    def rename(self, name: str, target: "Directory", target_name: str) -> None:
        """Moves a file, a directory or a link itself, in place of a file, a link or an empty directory."""
        with target._named(target_name), self._named(name):
            os.rename(name, target_name, src_dir_fd=self.fd, dst_dir_fd=target.fd)

    def remove(self, name: str, *, closed: bool = False, seconds: float = REMOVE_LIMIT) -> None:
        """Removes a file, a link or a directory with its content, as far as possible in so many seconds.

        Code can nest directories without limit: each is moved to the top before it is emptied, without recursion and
        with two descriptors. `shutil.rmtree` fails for deep trees, and would block on a pipe that has replaced a
        directory. `closed` also opens directories that their owner can't write; no code may be running that can replace
        them.
        """
        with suppress(OSError):
            if not stat.S_ISDIR(self.stat(name).st_mode):
                os.unlink(name, dir_fd=self.fd)
                return
            if closed:
                os.chmod(name, 0o700, dir_fd=self.fd)
            with self.open(name) as top:
                pending, end = top._clear(top, closed), time.monotonic() + seconds
                while pending and time.monotonic() < end:
                    inner = pending.pop()
                    with suppress(OSError):
                        with top.open(inner) as directory:
                            pending += directory._clear(top, closed)
                        os.rmdir(inner, dir_fd=top.fd)
            os.rmdir(name, dir_fd=self.fd)

    def _clear(self, top: "Directory", closed: bool) -> list[str]:
        """Removes the files, moves the directories to the top, and returns their names there."""
        moved: list[str] = []
        for name in self.names():
            with suppress(OSError):
                if not stat.S_ISDIR(self.stat(name).st_mode):
                    os.unlink(name, dir_fd=self.fd)
                    continue
                if closed:
                    os.chmod(name, 0o700, dir_fd=self.fd)
                place = name
                if self is not top:
                    self.rename(name, top, place := secrets.token_hex(16))
                moved.append(place)
        return moved

    @contextmanager
    def _named(self, name: str) -> Generator[None]:
        """Checks a name, and makes system errors in the context show the whole path."""
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise ValueError(f"{name!r} is not a file name")
        try:
            yield
        except OSError as exc:
            raise OSError(exc.errno, exc.strerror, str(self.path / name)) from exc

    def _complaint(self, name: str) -> str:
        obstacle = "not a directory"
        with suppress(OSError):
            if stat.S_ISLNK(self.stat(name).st_mode):
                obstacle = "a link, and ipybox doesn't follow links that sandboxed code could have made"
        return f"{self.path / name} is {obstacle}: remove it"


def kind(state: os.stat_result) -> str:
    """Returns the kind of an entry that is not a regular file."""
    return _KINDS.get(stat.S_IFMT(state.st_mode), "no regular file")


def names_below(path: Path, directory: Path) -> tuple[str, ...] | None:
    """Returns the names that lead from a directory, however the path spells it, to the path, or None."""
    state = directory.stat()
    # The outermost parent first: code may have made an inner one a link that leads back.
    for parent in reversed((path, *path.parents)):
        try:
            if os.path.samestat(parent.stat(), state):
                return path.relative_to(parent).parts
        except OSError:
            return None
    return None


def open_untrusted(path: Path) -> IO[bytes]:
    """Opens a path for reading, without following a link at its end, and without waiting for the writer of a pipe."""

    def opener(name: str, _: int) -> int:
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)

    # With an opener, the file owns the descriptor from the start: `open(fd)` would leave a directory's descriptor open.
    return open(path, "rb", opener=opener)
