"""The node's end of files: a workspace of its own, if the node does not share that of the application.

The workspace is a private directory of this link, which is removed at its end, with all that code wrote. The
application puts files there, and reads some (`ipybox.remote.wire.file_messages`). Code in the kernels writes the same
directories.
"""

import asyncio
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from ipybox.kernel_mgr.transfer.file_transfer import TAR, FileTransfer
from ipybox.kernel_mgr.transfer.files import Transfer, remove_file, write_tree
from ipybox.kernel_mgr.transfer.tar import unpack
from ipybox.remote.wire.file_messages import (
    MAX_REQUEST,
    REQUEST,
    Answer,
    Content,
    Failed,
    Put,
    Read,
    Stored,
    receive,
    send,
)
from ipybox.remote.wire.stream import Stream, StreamClosedError
from ipybox.sandbox.settings import SandboxSettings
from ipybox.support.safe_directory import open_directory
from ipybox.support.scratch import create_locked, remove_tree, remove_unused
from ipybox.support.state import make_ipybox_dir


class NodeWorkspace:
    """A new private directory, with the files that the application puts there, until `remove`.

    It is in the directory for temporary files (`TMPDIR`). Those of killed nodes of the same user are removed, if they
    can be found: another user may have taken the name of the directory for them.

    Attributes:
        path: The directory.

    Raises:
        OSError: If it can't be created.
    """

    def __init__(self) -> None:
        root = Path(tempfile.gettempdir(), f"ipybox-nodes-{os.getuid()}").absolute()
        with suppress(FileExistsError):
            root.mkdir(mode=0o700)
        self._own_root: Path | None = None
        if _is_private(root):
            remove_unused(root)
        else:
            root = self._own_root = Path(tempfile.mkdtemp(prefix="ipybox-node-"))
        self.path = root.resolve() / os.urandom(4).hex()
        self._lock = create_locked(self.path)
        make_ipybox_dir(self.path)

    def remove(self) -> None:
        """Removes the directory with its content."""
        remove_tree(self.path)
        if self._own_root is not None:
            remove_tree(self._own_root)
        os.close(self._lock)


class NodeFiles:
    """Answers the application's requests about the files of a workspace.

    Args:
        workspace: The workspace.
        settings: The settings of the sandbox, if there is one.
    """

    def __init__(self, workspace: Path, settings: SandboxSettings | None):
        self._workspace = workspace
        self._transfer = FileTransfer(workspace, settings=None if settings is None else lambda: settings)

    async def serve(self, stream: Stream) -> None:
        """Answers the request of one stream.

        Raises:
            InvalidMessageError: If the application sends something else.
        """
        try:
            request, packed = await receive(stream, REQUEST, MAX_REQUEST)
            await send(stream, *await asyncio.to_thread(self._answer, request, packed))
        except StreamClosedError:
            pass
        finally:
            stream.reset()

    def _answer(self, request: Put | Read, packed: bytes) -> tuple[Answer, bytes]:
        try:
            return self._put(request, packed) if isinstance(request, Put) else self._read(request.path)
        except (OSError, ValueError) as exc:
            reason = str(exc)
            if isinstance(request, Put) and isinstance(exc, OSError) and exc.strerror:
                reason = exc.strerror  # the file is a temporary one, with another name each time
            return Failed(kind=_kind(exc), reason=reason[:4000]), b""

    def _put(self, request: Put, packed: bytes) -> tuple[Answer, bytes]:
        with open_directory(self._workspace, create=False) as workspace:
            for path in request.removed:
                remove_file(workspace, tuple(path.split("/")))
            if packed:
                # What the application puts, code may read: the application has checked that.
                transfer = Transfer(MAX_REQUEST)
                write_tree(workspace, unpack(packed, transfer, lambda _: None), transfer)
        return Stored(), b""

    def _read(self, path: str) -> tuple[Answer, bytes]:
        download = self._transfer.download(path)
        omitted = [each[:4000] for each in download.transferred.omitted]
        content = Content(tar=download.mime_type == TAR, executable=download.executable, omitted=omitted)
        return content, download.data


def _kind(exc: OSError | ValueError) -> Any:
    if isinstance(exc, FileNotFoundError):
        return "missing"
    if isinstance(exc, PermissionError):
        return "denied"
    return "value" if isinstance(exc, ValueError) else "other"


def _is_private(directory: Path) -> bool:
    """Returns whether a directory belongs to this user, and is closed to others."""
    status = directory.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
