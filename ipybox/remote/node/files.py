"""The node's end of files: a workspace of its own, if the node does not share that of the application.

The workspace is a private directory of this link, which is removed at its end, with all that code wrote. The
application puts files there, and reads some. Code in the kernels writes the same directories.
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
from ipybox.remote.wire.protocol import MAX_PUT, PUT, Content, Put, Read, Stored
from ipybox.sandbox.settings import SandboxSettings
from ipybox.support.safe_directory import open_directory
from ipybox.support.scratch import create_locked, remove_tree, remove_unused
from ipybox.support.state import make_ipybox_dir

#: Characters of a message about an omitted file.
MAX_OMITTED = 4000


class NodeWorkspace:
    """A new private directory below `TMPDIR`, with the files that the application puts there, until `remove`.

    Those of killed nodes of the same user are removed, if they can be found: another user may have taken the name of
    the directory for them.
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
    """Answers the application's requests about the files of a workspace."""

    def __init__(self, workspace: Path, settings: SandboxSettings | None):
        self._workspace = workspace
        self._transfer = FileTransfer(workspace, settings=lambda: settings)

    async def serve(self, exchange: Exchange) -> None:
        """Answers one request, `PUT` or `READ`."""
        if exchange.stream.path == PUT:
            put, packed = await exchange.receive(Put, MAX_PUT)
            await asyncio.to_thread(self._put, put, packed)
            await exchange.send(Stored())
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
                    # What the application puts, code may read: the application has checked that.
                    transfer = Transfer(MAX_PUT)
                    write_tree(workspace, unpack(packed, transfer, lambda _: None), transfer)
        except OSError as exc:
            if exc.strerror is None:
                raise
            raise OSError(exc.strerror) from exc  # the file is a temporary one, with another name each time


def _is_private(directory: Path) -> bool:
    status = directory.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
