"""Transfers with a workspace: of content, for callers that only have content, and of files of the same machine."""

import io
import mimetypes
import stat
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from os.path import abspath
from pathlib import Path
from typing import Literal, assert_never

from ipybox.kernel_mgr.transfer.files import MAX_BYTES, Item, Refused, Transfer, open_file, walk, write_file, write_tree
from ipybox.kernel_mgr.transfer.paths import AllowedDirectories, AllowedPath
from ipybox.kernel_mgr.transfer.rules import TransferRules
from ipybox.kernel_mgr.transfer.tar import pack, unpack
from ipybox.sandbox.settings import SandboxSettings
from ipybox.support.printable import printable
from ipybox.support.safe_directory import Directory, open_directory

TAR = "application/x-tar"

#: Entries of one uploaded directory that are reported; of one with more, the directory itself is.
MAX_NAMED_UPLOADS = 100


@dataclass(frozen=True)
class TransferReport:
    """What was transferred.

    Attributes:
        path: The path in the workspace, or on the host after a download to the host.
        files: The number of files.
        size: The bytes of their content.
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
        mime_type: Its type, by its name.
        transferred: Its path and size.
        executable: Whether the owner of the file can execute it.
    """

    data: bytes
    mime_type: str
    transferred: TransferReport
    executable: bool = False


class FileTransfer:
    """Transfers files into allowed directories of a workspace and out of them. Its calls block.

    Args:
        directory: The workspace, which relative paths mean.
        allowed: The allowed directories, relative to it or absolute.
        settings: Returns the settings of the sandbox, if there is one.
        max_bytes: Maximum bytes of one transfer.
        on_upload: Called with the path of each upload.

    Raises:
        ValueError: If an allowed directory is not a directory, or can't be allowed.
    """

    def __init__(
        self,
        directory: Path,
        allowed: Sequence[str | Path] = (".",),
        *,
        settings: Callable[[], SandboxSettings] | None = None,
        max_bytes: int = MAX_BYTES,
        on_upload: Callable[[Path], object] = lambda _: None,
    ):
        self._places = AllowedDirectories(directory, allowed)
        self._settings = settings
        self.max_bytes = max_bytes
        self._on_upload = on_upload

    def upload(self, path: str | Path, content: bytes, kind: Literal["file", "tar"] = "file") -> TransferReport:
        """Writes a file, or unpacks a tar into a directory. Replaces existing files; the rest of a directory stays.

        Raises:
            OSError: If it can't be written there; the message says why.
            ValueError: If it is too large, or is not a valid tar.
        """
        transfer = Transfer(self.max_bytes)
        with _readable_os_errors():
            match kind:
                case "file":
                    transfer.check_size(len(content), path)
                    return self._write_file(path, Item(("",), io.BytesIO(content), None), transfer)
                case "tar":
                    transfer.check_size(len(content), "the tar")
                    place = self._writable(path)
                    return self._write_tree(place, unpack(content, transfer, self._refused(place, "writing")), transfer)
                case _:
                    assert_never(kind)

    def download(self, path: str | Path) -> Download:
        """Returns the content of a file, or a directory as tar.

        Raises:
            OSError: If it can't be read; the message says why.
            ValueError: If it is too large.
        """
        transfer = Transfer(self.max_bytes)
        place = self._readable(path)
        executable = False
        with _readable_os_errors(), _source(place, transfer) as source:
            if isinstance(source, Directory):
                data, kind = pack(walk(source, transfer, self._refused(place, "reading")), transfer), TAR
            else:
                data, executable = b"".join(transfer.chunks(source)), bool(source.executable)
                kind = mime_type(place.path.name)
        return Download(data, kind, _result(place.path, transfer), executable)

    def check_readable(self, path: str | Path) -> None:
        """Checks that a path is in an allowed directory, and that no rule denies its download.

        Raises:
            PermissionError: If it can't be downloaded; the message says why.
        """
        self._readable(path)

    def copy_in(self, source: Path, destination: str | Path) -> TransferReport:
        """Copies a file or directory of the host to the workspace, and replaces existing files, as `upload`."""
        transfer = Transfer(self.max_bytes)
        with _readable_os_errors(), _host_source(source.resolve(strict=True), transfer) as found:
            if isinstance(found, Directory):
                place = self._writable(destination)
                return self._write_tree(place, walk(found, transfer, self._refused(place, "writing")), transfer)
            return self._write_file(destination, found, transfer)

    def copy_out(self, source: str | Path, destination: Path) -> TransferReport:
        """Copies a file or directory of the workspace to the host, and replaces existing files.

        Raises:
            OSError: If it can't be read or written; the message says why.
            ValueError: If it is too large.
        """
        transfer = Transfer(self.max_bytes)
        destination = Path(abspath(destination))
        replaced = False
        place = self._readable(source)
        with _readable_os_errors(), _source(place, transfer) as found:
            if isinstance(found, Directory):
                with open_directory(destination, untrusted_root=self._places.workspace) as target:
                    write_tree(target, walk(found, transfer, self._refused(place, "reading")), transfer)
            else:
                with open_directory(destination.parent, untrusted_root=self._places.workspace) as target:
                    named = Item((destination.name,), found.file, found.executable)
                    replaced = write_file(target, named, transfer)
        return _result(destination, transfer, replaced)

    def store(self, download: Download, destination: Path) -> TransferReport:
        """Writes a file or directory of another machine to the host, and replaces existing files.

        That machine is not trusted: protected names are omitted, too.

        Raises:
            OSError: If it can't be written; the message says why.
            ValueError: If it is too large, or is not a valid tar.
        """
        transfer = Transfer(self.max_bytes)
        destination = Path(abspath(destination))
        root = AllowedPath(self._places.workspace, (0, 0), ())
        replaced = False
        with _readable_os_errors():
            if download.mime_type == TAR:
                items = unpack(download.data, transfer, self._refused(root, "writing"))
                with open_directory(destination, untrusted_root=self._places.workspace) as target:
                    write_tree(target, items, transfer)
            else:
                item = Item((destination.name,), io.BytesIO(download.data), download.executable)
                with open_directory(destination.parent, untrusted_root=self._places.workspace) as target:
                    replaced = write_file(target, item, transfer)
        report = _result(destination, transfer, replaced)
        return replace(report, omitted=(*download.transferred.omitted, *report.omitted))

    @cached_property
    def _rules(self) -> TransferRules:
        return TransferRules(self._places.workspace, self._places.allowed, self._settings and self._settings())

    def _readable(self, path: str | Path) -> AllowedPath:
        place = self._places.locate(path)
        if reason := self._rules.download_denial(place.path):
            raise PermissionError(f"{printable(place.path)} can't be downloaded: {reason}")
        return place

    def _writable(self, path: str | Path) -> AllowedPath:
        place = self._places.locate(path)
        if reason := self._rules.upload_denial(place.path):
            raise PermissionError(f"{printable(place.path)} can't be uploaded: {reason}")
        return place

    def _write_file(self, path: str | Path, item: Item, transfer: Transfer) -> TransferReport:
        place = self._writable(path)
        if not place.names:
            raise IsADirectoryError(
                f"{printable(place.path)} is a directory, where a file must be: nothing was changed"
            )
        with place.parent.open(create=True) as directory:
            replaced = write_file(directory, Item(place.names[-1:], item.file, item.executable), transfer)
        self._on_upload(place.path)
        return _result(place.path, transfer, replaced)

    def _write_tree(self, place: AllowedPath, items: Iterable[Item], transfer: Transfer) -> TransferReport:
        names: dict[str, None] = {}
        with place.open(create=True) as directory:
            write_tree(directory, _noting(items, names), transfer)
        if place.names and len(names) > MAX_NAMED_UPLOADS:
            names = {"": None}
        for name in names:
            self._on_upload(place.path / name)
        return _result(place.path, transfer)

    def _refused(self, place: AllowedPath, what: Literal["reading", "writing"]) -> Refused:
        """Returns the function that rejects paths below a place."""
        refuses = self._rules.download_denial if what == "reading" else self._rules.upload_denial
        return lambda names: refuses(place.path.joinpath(*names))


def mime_type(path: str) -> str:
    """Returns the type of a file by its name, without the machine's own tables: the result is the same everywhere."""
    guessed, packed = mimetypes.MimeTypes().guess_type(path)
    return guessed if guessed and not packed else "application/octet-stream"


def _noting(items: Iterable[Item], names: dict[str, None]) -> Iterator[Item]:
    """Yields items, and notes the first name of each path."""
    for item in items:
        names[item.names[0]] = None
        yield item


@contextmanager
def _source(place: AllowedPath, transfer: Transfer) -> Generator[Directory | Item]:
    """Opens the source of a transfer."""
    if not place.names:
        with place.open() as directory:
            yield directory
        return
    name = place.names[-1]
    with place.parent.open() as parent, _entry(parent, name, transfer) as entry:
        yield entry


@contextmanager
def _host_source(path: Path, transfer: Transfer) -> Generator[Directory | Item]:
    if path.is_dir():
        with open_directory(path, create=False) as directory:
            yield directory
        return
    with open_directory(path.parent, create=False) as parent, _entry(parent, path.name, transfer) as entry:
        yield entry


@contextmanager
def _entry(parent: Directory, name: str, transfer: Transfer) -> Generator[Directory | Item]:
    if stat.S_ISDIR(parent.stat(name).st_mode):
        with parent.open(name) as directory:
            yield directory
        return
    with open_file(parent, name) as (file, state):
        transfer.check_size(state.st_size, parent.path / name)
        yield Item((name,), file, bool(state.st_mode & stat.S_IXUSR))


def _result(path: Path, transfer: Transfer, replaced: bool = False) -> TransferReport:
    return TransferReport(path, transfer.files, transfer.size, transfer.omitted, replaced)


@contextmanager
def _readable_os_errors() -> Generator[None]:
    """Turns errors of the operating system into sentences that name the file."""
    try:
        yield
    except OSError as exc:
        if exc.strerror is None:
            raise  # it is such a sentence already
        where = "" if exc.filename is None else f"{printable(str(exc.filename))}: "
        raise type(exc)(f"{where}{exc.strerror}") from exc
