"""Transfers content, and files of the same machine, into and out of a workspace."""

import io
import mimetypes
import stat
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from os.path import abspath
from pathlib import Path
from typing import Literal

from ipybox.kernel_mgr.transfer.files import Item, Refused, Transfer, open_item, walk, write_tree
from ipybox.kernel_mgr.transfer.paths import AllowedDirectories, AllowedPath, TransferRules, trusted_path
from ipybox.kernel_mgr.transfer.tar import pack, unpack
from ipybox.sandbox.settings import SandboxSettings
from ipybox.support.printable import printable
from ipybox.support.safe_directory import Directory, open_directory

TAR = "application/x-tar"

#: Maximum entries of an uploaded directory to record one by one; with more, only the directory is recorded.
MAX_NAMED_UPLOADS = 100


@dataclass(frozen=True)
class TransferReport:
    """What was transferred.

    Attributes:
        path: The path in the workspace, or on the host after a download to the host.
        files: The number of files; `size` is the bytes of their content.
        omitted: Omitted files with the reason, as text: links and the like, and protected files.
    """

    path: Path
    files: int
    size: int
    omitted: tuple[str, ...] = ()


@dataclass(frozen=True)
class Download:
    """A file or directory that was read.

    Attributes:
        path: Its path in the workspace.
        data: The content of the file, or the tar of the directory.
        executable: Whether the owner of the file can execute it.
        omitted: As in `TransferReport`.
    """

    path: Path
    data: bytes
    is_directory: bool = False
    executable: bool = False
    omitted: tuple[str, ...] = ()

    @property
    def mime_type(self) -> str:
        """The type of the data, guessed from the name without this machine's own tables: the same everywhere."""
        guessed, packed = mimetypes.MimeTypes().guess_type(self.path.name)
        return TAR if self.is_directory else guessed if guessed and not packed else "application/octet-stream"


@cache
def uploads_to(workspace: Path) -> dict[Path, None]:
    """Returns the paths that this process has uploaded to a workspace, oldest first, for nodes that don't share it."""
    return {}


@contextmanager
def _readable_os_errors() -> Generator[None]:
    """Turns operating system errors into sentences that name the file."""
    try:
        yield
    except OSError as exc:
        if exc.strerror is None:
            raise  # it is such a sentence already
        where = "" if exc.filename is None else f"{printable(str(exc.filename))}: "
        raise type(exc)(f"{where}{exc.strerror}") from exc


class FileTransfer:
    """Transfers files into and out of the allowed directories of a workspace.

    Its methods block. They raise an OSError if something can't be read or written, and a ValueError if it is too large
    or not a valid tar; the message says why.

    Args:
        directory: The workspace, the base of relative paths.
        allowed: The allowed directories, relative to it or absolute.
        settings: Returns the sandbox settings; None without a sandbox.

    Raises:
        ValueError: If an allowed directory is not a directory, or can't be allowed.
    """

    def __init__(
        self,
        directory: Path,
        allowed: Sequence[str | Path] = (".",),
        *,
        settings: Callable[[], SandboxSettings | None] = lambda: None,
    ):
        self._places = AllowedDirectories(directory, allowed)
        self._settings = settings
        self._uploads = uploads_to(self._places.workspace)

    @_readable_os_errors()
    def upload(self, path: str | Path, content: bytes, kind: Literal["file", "tar"] = "file") -> TransferReport:
        """Writes a file, or unpacks a tar into a directory. Replaces existing files; the rest of a directory stays.

        A file stays executable if the one that it replaces is.
        """
        place = self._writable(path)
        executable = kind == "file" and place.names != () and _is_executable(place)
        return self._write(place, Download(place.path, content, kind == "tar", executable))

    def download(self, path: str | Path) -> Download:
        """Returns the content of a file, or a directory as tar."""
        place = self.readable(path)
        return self._read(place, _below(place.path, self._rules.download_denial))

    @_readable_os_errors()
    def copy_in(self, source: Path, destination: str | Path) -> TransferReport:
        """Copies a file or directory from the host to the workspace, replacing existing files, like `upload`."""
        place = self._writable(destination)
        return self._write(place, self._read(trusted_path(source), _below(place.path, self._rules.upload_denial)))

    def copy_out(self, source: str | Path, destination: Path) -> TransferReport:
        """Copies a file or directory from the workspace to the host, replacing existing files."""
        return self.store(self.download(source), destination, lambda _: None)

    @_readable_os_errors()
    def store(self, download: Download, destination: Path, refused: Refused | None = None) -> TransferReport:
        """Writes a file or directory to the host, replacing existing files.

        By default, it comes from another machine, which is not trusted, so protected names are omitted.
        """
        path, workspace = Path(abspath(destination)), self._places.workspace
        refused = refused or _below(workspace, self._rules.upload_denial)
        opening = open_directory(path if download.is_directory else path.parent, untrusted_root=workspace)
        return self._put(opening, path, download, refused)[0]

    def readable(self, path: str | Path) -> AllowedPath:
        """Returns a path in an allowed directory that may be downloaded.

        Raises:
            PermissionError: If it can't be downloaded; the message says why.
        """
        place = self._places.locate(path)
        if reason := self._rules.download_denial(place.path):
            raise PermissionError(f"{printable(place.path)} can't be downloaded: {reason}")
        return place

    @cached_property
    def _rules(self) -> TransferRules:
        return TransferRules(self._places.workspace, self._places.allowed, self._settings())

    def _writable(self, path: str | Path) -> AllowedPath:
        place = self._places.locate(path)
        if reason := self._rules.upload_denial(place.path):
            raise PermissionError(f"{printable(place.path)} can't be uploaded: {reason}")
        return place

    @_readable_os_errors()
    def _read(self, place: AllowedPath, refused: Refused) -> Download:
        transfer = Transfer()
        with ExitStack() as stack:
            if place.names:
                parent = stack.enter_context(place.parent.open())
                if not stat.S_ISDIR(parent.stat(name := place.names[-1]).st_mode):
                    item = stack.enter_context(open_item(parent, (name,)))
                    data = b"".join(transfer.chunks(item))
                    return Download(place.path, data, executable=item.executable)
            data = pack(walk(stack.enter_context(place.open()), transfer, refused), transfer)
            return Download(place.path, data, is_directory=True, omitted=transfer.omitted)

    def _write(self, place: AllowedPath, content: Download) -> TransferReport:
        if not place.names and not content.is_directory:
            raise IsADirectoryError(f"{printable(place.path)} is a directory, not a file: nothing was changed")
        opening = (place if content.is_directory else place.parent).open(create=True)
        report, names = self._put(opening, place.path, content, _below(place.path, self._rules.upload_denial))
        for name in [""] if place.names and len(names) > MAX_NAMED_UPLOADS else names:
            self._uploads[place.path / name] = None
        return report

    def _put(
        self, opening: AbstractContextManager[Directory], path: Path, content: Download, refused: Refused
    ) -> tuple[TransferReport, Collection[str]]:
        """Writes content into a directory; returns a report, and the names that were written in `path`."""
        transfer = Transfer()
        if content.is_directory:
            items = unpack(content.data, transfer, refused)  # before anything is created
        else:
            items = [Item((path.name,), io.BytesIO(content.data), content.executable)]
        with opening as directory:
            names = write_tree(directory, items, transfer).keys()
        report = TransferReport(path, transfer.files, transfer.size, (*content.omitted, *transfer.omitted))
        return report, names if content.is_directory else [""]


def _is_executable(place: AllowedPath) -> bool:
    """Returns whether the owner can execute a file; False if there is no such file."""
    with suppress(OSError), place.parent.open() as parent, open_item(parent, place.names) as item:
        return item.executable
    return False


def _below(path: Path, denial: Callable[[Path], str | None]) -> Refused:
    return lambda names: denial(path.joinpath(*names))
