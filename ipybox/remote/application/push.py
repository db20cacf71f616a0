"""Sends workspace files to a node that doesn't share the workspace: generated packages, code actions, uploads.

Before each cell, it sends new and changed files to the node, and deletes there what was deleted here. Nothing comes
back except through `Push.read`: files that code writes on the node are lost when the node exits.
"""

import asyncio
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from ipybox.codeact.library import GENTOOLS, MCPPARSE, MCPTOOLS
from ipybox.guest.packages import packages_dir
from ipybox.kernel_mgr.transfer.file_transfer import Download, uploads_to
from ipybox.kernel_mgr.transfer.files import CACHE, PART, Refused, Transfer, open_items, visit
from ipybox.kernel_mgr.transfer.paths import TransferRules
from ipybox.kernel_mgr.transfer.tar import pack
from ipybox.remote.application.link import Expected, NodeLink
from ipybox.remote.wire import protocol
from ipybox.remote.wire.protocol import Content, InvalidMessageError, Message, Put, Read, RefusedError
from ipybox.remote.wire.stream import StreamClosedError
from ipybox.sandbox.settings import SandboxSettings
from ipybox.support.printable import printable
from ipybox.support.safe_directory import open_directory
from ipybox.support.sizes import format_bytes

#: Workspace directories to send.
CODE: Final = (MCPTOOLS, MCPPARSE, GENTOOLS)

#: Maximum bytes and files per directory. Installed packages can be large.
MAX_BYTES: Final = 2 << 30
MAX_ITEMS: Final = 50_000

#: Number of uploads to send, the latest first: checking each one delays every cell.
MAX_UPLOADS: Final = 1000

#: Maximum files per archive.
PART_FILES: Final = 1000

#: Seconds for the node to answer all requests of a `send`, or a `read`, plus one for each `SLOWEST` bytes of content.
ANSWER_TIMEOUT: Final = 60.0
SLOWEST: Final = 1 << 20

#: A directory that exceeds a limit is read again after so many times the time that it took: before each cell, reading a
#: large one would take seconds.
REST: Final = 20

_NOT_SENT = "Not sent to the node that runs code"

#: Detects changes of a file: inode number, size, modification time, and whether its owner can execute it. Not the
#: status time, which changes when an installation links the file into a new directory.
_Status = tuple[int, ...]

_Names = tuple[str, ...]


class Push:
    """Sends files to one node, and reads files from it. `platform` is the node's, see `platform_name`."""

    def __init__(self, workspace: Path, link: NodeLink, *, settings: SandboxSettings | None, platform: str):
        self._workspace = workspace
        self._link = link
        self._uploads = uploads_to(workspace)
        self._rules = TransferRules(workspace, [workspace], settings)
        self._platforms = protocol.platform_name(), platform
        #: The status of the files on the node, by directory or upload.
        self._sent: dict[str, dict[str, _Status]] = {}
        #: The status of the package directory when it was sent; each installation replaces the directory.
        self._packages: _Status | None = None
        self._reported: set[str] = set()
        #: The directories that exceed a limit: when to read them again, and which limit.
        self._excessive: dict[str, tuple[float, str]] = {}
        self._turn = asyncio.Lock()
        #: Seconds that the node may still take for the requests of this `send`.
        self._patience = 0.0

    async def send(self) -> list[str]:
        """Sends changed workspace files, and returns new notices."""
        async with self._turn:
            notices: list[str] = []
            self._patience = ANSWER_TIMEOUT
            for root in (*CODE, *self._uploaded()):
                notices += await self._try(root, self._refused)
            notices += await self._send_packages()
            new = [notice for notice in dict.fromkeys(notices) if notice not in self._reported]
            self._reported = set(notices)
            return new

    async def read(self, path: str) -> Download:
        """See `Gateway.read_file`."""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT + protocol.MAX_READ / SLOWEST):
                answer, data = await self._ask(protocol.READ, Read(path=path), Content, limit=protocol.MAX_READ)
        except InvalidMessageError as exc:
            raise OSError(f"can't read the file on the node: it sent {exc}") from None
        except (StreamClosedError, TimeoutError) as exc:
            raise OSError("can't read the file on the node: it is not responding") from exc
        return Download(Path(path), data, answer.tar, answer.executable, tuple(map(printable, answer.omitted)))

    def _uploaded(self) -> list[str]:
        """Returns the latest uploads to the workspace outside of `CODE`, relative to it."""
        latest = [*self._uploads][-MAX_UPLOADS:]  # a copy, because other threads add uploads
        inside = [path.relative_to(self._workspace) for path in latest if path.is_relative_to(self._workspace)]
        return [path.as_posix() for path in inside if path.parts[0] not in CODE]

    async def _send_packages(self) -> list[str]:
        directory = packages_dir(self._workspace)
        try:
            seen = _status(directory.lstat())
        except OSError:
            return []
        here, there = self._platforms
        if here != there:
            why = f"they are for {here}, and the node runs {there}: install them there, in ipybox's environment"
            return [f"Installed packages are not on the node: {why}."]
        if seen == self._packages:
            return []
        notices = await self._try(directory.relative_to(self._workspace).as_posix(), lambda _: None)
        self._packages = None if notices else seen
        return notices

    def _refused(self, names: _Names) -> str | None:
        path = "/".join(names)
        try:
            path.encode()
        except UnicodeEncodeError:
            return "its name is not valid UTF-8"
        return self._rules.download_denial(self._workspace / path)

    async def _try(self, root: str, refused: Refused) -> list[str]:
        """Sends changed files of a directory, or one changed file. Returns notices about files that weren't sent."""
        transfer = Transfer(MAX_BYTES, MAX_ITEMS)
        try:
            await self._send(root, refused, transfer)
        except (InvalidMessageError, StreamClosedError):
            pass  # the node is lost; its kernels report that
        except TimeoutError:
            return [f"{_NOT_SENT}: {root} (the node did not respond in time)."]
        except (OSError, ValueError) as exc:
            return [f"{_NOT_SENT}: {root} ({printable(str(exc))})."]
        return [f"{_NOT_SENT}: {omitted}." for omitted in transfer.omitted]

    async def _send(self, root: str, refused: Refused, transfer: Transfer) -> None:
        sent = self._sent.setdefault(root, {})
        again, excess = self._excessive.get(root, (0.0, ""))
        if (begun := time.monotonic()) < again:
            raise ValueError(excess)
        try:
            found, changed = await asyncio.to_thread(self._scan, root, sent, refused, transfer)
        except ValueError as exc:
            self._excessive[root] = time.monotonic() + REST * (time.monotonic() - begun), str(exc)
            raise
        gone = [path for path in sent if path not in found]
        for at in range(0, len(gone), protocol.MAX_REMOVED):
            removed = gone[at : at + protocol.MAX_REMOVED]
            await self._put(Put(removed=removed))
            for path in removed:
                del sent[path]
        for part in _parts(changed, found):
            await self._put(Put(), await asyncio.to_thread(self._packed, part))
            sent |= {path: found[path] for path in part}

    def _scan(
        self, root: str, sent: dict[str, _Status], refused: Refused, transfer: Transfer
    ) -> tuple[dict[str, _Status], list[str]]:
        """Returns the status of all files in a directory, or of one file, and the paths to send."""
        found: dict[str, _Status] = {}

        def newly_refused(names: _Names) -> str | None:
            return None if "/".join(names) in sent else refused(names)

        def known(names: _Names, status: os.stat_result) -> bool:
            if CACHE in names:
                return True
            if status.st_size > protocol.MAX_PUSHED:
                size, limit = format_bytes(status.st_size), format_bytes(protocol.MAX_PUSHED)
                transfer.omit(names, f"its size is {size}; the limit per file is {limit}")
                return True
            path = "/".join(names)
            found[path] = _status(status)
            return sent.get(path) == found[path]

        *parents, name = root.split("/")
        directory = self._workspace.joinpath(*parents)
        with (
            suppress(FileNotFoundError),
            open_directory(directory, untrusted_root=self._workspace, create=False) as opened,
        ):
            items = visit(opened, (*parents, name), transfer, newly_refused, known)
            return found, ["/".join(item.names) for item in items if item.file is not None]
        return found, []

    def _packed(self, paths: Sequence[str]) -> bytes:
        with open_directory(self._workspace, create=False) as workspace:
            items = open_items(workspace, (tuple(path.split("/")) for path in paths))
            return pack(items, Transfer(protocol.MAX_PUSHED + PART))

    async def _put(self, request: Put, content: bytes = b"") -> None:
        begun = time.monotonic()
        self._patience += len(content) / SLOWEST
        try:
            async with asyncio.timeout(self._patience):
                await self._ask(protocol.PUT, request, Message, content)
        finally:
            self._patience -= time.monotonic() - begun

    async def _ask(
        self, path: str, request: Message, expected: type[Expected], content: bytes = b"", limit: int = 0
    ) -> tuple[Expected, bytes]:
        """Like `NodeLink.ask`, but raises the node's error instead of a RefusedError."""
        try:
            return await self._link.ask(path, request, expected, content, limit)
        except RefusedError as exc:
            error = exc.kind if issubclass(exc.kind, OSError | ValueError) else OSError
            raise error(f"on the node: {printable(exc.reason)}") from None


def _parts(paths: Sequence[str], found: dict[str, _Status]) -> Iterator[list[str]]:
    part: list[str] = []
    size = 0
    for path in paths:
        _, added, *_ = found[path]
        if part and (size + added > PART or len(part) >= PART_FILES):
            yield part
            part, size = [], 0
        part.append(path)
        size += added
    if part:
        yield part


def _status(status: os.stat_result) -> _Status:
    mode = bool(status.st_mode & stat.S_IXUSR)
    return status.st_ino, status.st_size, status.st_mtime_ns, mode
