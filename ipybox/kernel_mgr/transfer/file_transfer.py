"""Transfers content, and files of the same machine, into and out of a workspace."""

import io
import mimetypes
import stat
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from os.path import abspath
from pathlib import Path
from typing import Literal

from ipybox.kernel_mgr.transfer.files import MAX_BYTES, Item, Refused, Transfer, open_file, walk, write_file, write_tree
from ipybox.kernel_mgr.transfer.paths import AllowedDirectories, AllowedPath, TransferRules, trusted_path
from ipybox.kernel_mgr.transfer.tar import pack, unpack
from ipybox.sandbox.settings import SandboxSettings
from ipybox.support.printable import printable
from ipybox.support.safe_directory import open_directory

TAR = "application/x-tar"

#: Maximum entries of an uploaded directory to record one by one; with more, only the directory is recorded.
MAX_NAMED_UPLOADS = 100

#: What is transferred: one file, or the entries of a directory.
Source = Item | Iterable[Item]


@dataclass(frozen=True)
class TransferReport:
    """What was transferred.

    Attributes:
        path: The path in the workspace, or on the host after a download to the host.
        files: The number of files; `size` is the bytes of their content.
        omitted: Omitted files with the reason, as text: links and the like, and protected files.
        replaced: Whether a single file has replaced another one.
    """

    path: Path
    files: int
    size: int
    omitted: tuple[str, ...] = ()
    replaced: bool = False


@dataclass(frozen=True)
class Download:
    """A downloaded file or directory.

    Attributes:
        data: The content of the file, or the tar of the directory.
        mime_type: Its type, guessed from its name.
        transferred: Its path and size.
        executable: Whether the owner of the file can execute it.
    """

    data: bytes
    mime_type: str
    transferred: TransferReport
    executable: bool = False


@cache
def uploads_to(workspace: Path) -> dict[Path, None]:
    """Returns the paths that this process has uploaded to a workspace, oldest first, for nodes that don't share it."""
    return {}


class FileTransfer:
    """Transfers files into and out of the allowed directories of a workspace. Its methods block.

    Args:
        directory: The workspace, the base of relative paths.
        allowed: The allowed directories, relative to it or absolute.
        settings: Returns the sandbox settings; None without a sandbox.
        max_bytes: Maximum bytes of one transfer.

    Raises:
        ValueError: If an allowed directory is not a directory, or can't be allowed.
    """

    def __init__(
        self,
        directory: Path,
        allowed: Sequence[str | Path] = (".",),
        *,
        settings: Callable[[], SandboxSettings | None] = lambda: None,
        max_bytes: int = MAX_BYTES,
    ):
        self._places = AllowedDirectories(directory, allowed)
        self._settings = settings
        self.max_bytes = max_bytes
        self._uploads = uploads_to(self._places.workspace)

    def upload(self, path: str | Path, content: bytes, kind: Literal["file", "tar"] = "file") -> TransferReport:
        """Writes a file, or unpacks a tar into a directory. Replaces existing files; the rest of a directory stays.

        Raises:
            OSError: If it can't be written there; the message says why.
            ValueError: If it is too large, or is not a valid tar.
        """
        transfer = Transfer(self.max_bytes)
        with _readable_os_errors():
            transfer.check_size(len(content), path if kind == "file" else "the tar")
            place = self._writable(path)
            return self._write(place, self._content(content, kind == "tar", None, place, transfer), transfer)

    def download(self, path: str | Path) -> Download:
        """Returns the content of a file, or a directory as tar.

        Raises:
            OSError: If it can't be read; the message says why.
            ValueError: If it is too large.
        """
        transfer = Transfer(self.max_bytes)
        place = self.readable(path)
        executable = False
        with _readable_os_errors(), _source(place, transfer, _below(place, self._rules.download_denial)) as source:
            if isinstance(source, Item):
                data, executable = b"".join(transfer.chunks(source)), bool(source.executable)
                kind = mime_type(place.path.name)
            else:
                data, kind = pack(source, transfer), TAR
        return Download(data, kind, _result(place.path, transfer), executable)

    def copy_in(self, source: Path, destination: str | Path) -> TransferReport:
        """Copies a file or directory from the host to the workspace, replacing existing files, like `upload`."""
        transfer = Transfer(self.max_bytes)
        with _readable_os_errors():
            place = self._writable(destination)
            with _source(trusted_path(source), transfer, _below(place, self._rules.upload_denial)) as found:
                return self._write(place, found, transfer)

    def copy_out(self, source: str | Path, destination: Path) -> TransferReport:
        """Copies a file or directory from the workspace to the host, replacing existing files.

        Raises:
            OSError: If it can't be read or written; the message says why.
            ValueError: If it is too large.
        """
        transfer = Transfer(self.max_bytes)
        place = self.readable(source)
        with _readable_os_errors(), _source(place, transfer, _below(place, self._rules.download_denial)) as found:
            return self._write_to_host(destination, found, transfer)

    def store(self, download: Download, destination: Path) -> TransferReport:
        """Writes a file or directory from another machine to the host, replacing existing files.

        That machine is not trusted, so protected names are omitted.

        Raises:
            OSError: If it can't be written; the message says why.
            ValueError: If it is too large, or is not a valid tar.
        """
        transfer = Transfer(self.max_bytes)
        root = AllowedPath(self._places.workspace, (0, 0), ())
        with _readable_os_errors():
            content = self._content(download.data, download.mime_type == TAR, download.executable, root, transfer)
            report = self._write_to_host(destination, content, transfer)
        return replace(report, omitted=(*download.transferred.omitted, *report.omitted))

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

    def _content(
        self, data: bytes, is_tar: bool, executable: bool | None, place: AllowedPath, transfer: Transfer
    ) -> Source:
        """Returns a file with this content, or the entries of this tar that may be written to `place`."""
        if is_tar:
            return unpack(data, transfer, _below(place, self._rules.upload_denial))
        return Item(("",), io.BytesIO(data), executable)

    def _write(self, place: AllowedPath, source: Source, transfer: Transfer) -> TransferReport:
        if isinstance(source, Item):
            if not place.names:
                raise IsADirectoryError(f"{printable(place.path)} is a directory, not a file: nothing was changed")
            with place.parent.open(create=True) as directory:
                replaced = write_file(directory, replace(source, names=place.names[-1:]), transfer)
            self._uploads[place.path] = None
            return _result(place.path, transfer, replaced)
        with place.open(create=True) as directory:
            names = [*write_tree(directory, source, transfer)]
        for name in [""] if place.names and len(names) > MAX_NAMED_UPLOADS else names:
            self._uploads[place.path / name] = None
        return _result(place.path, transfer)

    def _write_to_host(self, destination: Path, source: Source, transfer: Transfer) -> TransferReport:
        path, replaced = Path(abspath(destination)), False
        if isinstance(source, Item):
            with open_directory(path.parent, untrusted_root=self._places.workspace) as directory:
                replaced = write_file(directory, replace(source, names=(path.name,)), transfer)
        else:
            with open_directory(path, untrusted_root=self._places.workspace) as directory:
                write_tree(directory, source, transfer)
        return _result(path, transfer, replaced)


def mime_type(path: str) -> str:
    """Returns a file's type by its name, ignoring the machine's own tables: the result is the same everywhere."""
    guessed, packed = mimetypes.MimeTypes().guess_type(path)
    return guessed if guessed and not packed else "application/octet-stream"


def _below(place: AllowedPath, denial: Callable[[Path], str | None]) -> Refused:
    return lambda names: denial(place.path.joinpath(*names))


@contextmanager
def _source(place: AllowedPath, transfer: Transfer, refused: Refused) -> Generator[Source]:
    """Opens the source of a transfer, a file or a directory."""
    if not place.names:
        with place.open() as directory:
            yield walk(directory, transfer, refused)
        return
    name = place.names[-1]
    with place.parent.open() as parent:
        if stat.S_ISDIR(parent.stat(name).st_mode):
            with parent.open(name) as directory:
                yield walk(directory, transfer, refused)
            return
        with open_file(parent, name) as (file, state):
            transfer.check_size(state.st_size, parent.path / name)
            yield Item((name,), file, bool(state.st_mode & stat.S_IXUSR))


def _result(path: Path, transfer: Transfer, replaced: bool = False) -> TransferReport:
    return TransferReport(path, transfer.files, transfer.size, transfer.omitted, replaced)


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
