"""The node's own workspace, for a node that doesn't share the application's.

The workspace is a private directory that is removed, with everything in it, when the link closes. The application
writes and reads files there. Code in the kernels can write all of it.
"""

import asyncio
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from ipybox.kernel_mgr.transfer.file_transfer import TAR, FileTransfer
from ipybox.kernel_mgr.transfer.files import Transfer, remove_file, write_tree
from ipybox.kernel_mgr.transfer.tar import unpack
from ipybox.remote.wire.exchange import Exchange
from ipybox.remote.wire.protocol import MAX_PUT, PUT, Content, Message, Put, Read
from ipybox.sandbox.settings import SandboxSettings
from ipybox.support.safe_directory import open_directory
from ipybox.support.scratch import create_locked, remove_tree, remove_unused
from ipybox.support.state import make_ipybox_dir

#: Maximum characters of a message about an omitted file.
MAX_OMITTED = 4000


class NodeWorkspace:
    """A new private directory below `TMPDIR` for the application's files, until `remove`.

    Also removes the directories that the user's killed nodes left behind. If another user owns the common parent
    directory, they can't be found.
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
        """Removes the directory and its contents."""
        remove_tree(self.path)
        if self._own_root is not None:
            remove_tree(self._own_root)
        os.close(self._lock)


class NodeFiles:
    """Answers the application's requests to write and read files in a workspace."""

    def __init__(self, workspace: Path, settings: SandboxSettings | None):
        self._workspace = workspace
        self._transfer = FileTransfer(workspace, settings=lambda: settings)

    async def serve(self, exchange: Exchange) -> None:
        """Answers one request, `PUT` or `READ`."""
        if exchange.stream.path == PUT:
            put, packed = await exchange.receive(Put, MAX_PUT)
            await asyncio.to_thread(self._put, put, packed)
            await exchange.send(Message())
        else:
            read, _ = await exchange.receive(Read)
            download = await asyncio.to_thread(self._transfer.download, read.path)
            omitted = [each[:MAX_OMITTED] for each in download.transferred.omitted]
            content = Content(tar=download.mime_type == TAR, executable=download.executable, omitted=omitted)
            await exchange.send(content, download.data)

    def _put(self, put: Put, packed: bytes) -> None:
        try:
            with open_directory(self._workspace, create=False) as workspace:
                for path in put.removed:
                    remove_file(workspace, tuple(path.split("/")))
                if packed:
                    # No rules here: the application sends only files that code may read.
                    transfer = Transfer(MAX_PUT)
                    write_tree(workspace, unpack(packed, transfer, lambda _: None), transfer)
        except OSError as exc:
            if exc.strerror is None:
                raise
            raise OSError(exc.strerror) from exc  # omits the file's name: it is temporary and random


def _is_private(directory: Path) -> bool:
    status = directory.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
