"""The node's end: runs a kernel gateway, with its sandbox and limits, for an application connected by two pipes.

`serve` owns the gateway and its kernels, and stops them all before it returns. It returns when the application
disconnects or is silent for too long, when the gateway exits, or on a signal. If the node doesn't share the
application's workspace, it has one of its own, which code in the kernels can write.
"""

import asyncio
import os
import signal
import socket
import stat
import tempfile
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from ipybox.kernel_mgr.server import KernelGateway
from ipybox.kernel_mgr.transfer.file_transfer import FileTransfer
from ipybox.kernel_mgr.transfer.files import Transfer, remove_file, write_tree
from ipybox.kernel_mgr.transfer.tar import unpack
from ipybox.remote.wire import protocol
from ipybox.remote.wire.connection import Connection
from ipybox.remote.wire.protocol import Exceeded, Exchange, InvalidMessageError
from ipybox.remote.wire.stream import Stream, StreamClosedError, tunnel
from ipybox.sandbox.settings import SandboxSettings
from ipybox.support.names import STATE_DIR
from ipybox.support.safe_directory import open_directory
from ipybox.support.scratch import create_locked, remove_tree, remove_unused
from ipybox.support.state import make_ipybox_dir
from ipybox.support.tasks import TaskSet

#: Maximum characters of a message about an omitted file.
MAX_OMITTED = 4000

#: Tool connections from kernels that can wait for a stream from the application.
MAX_WAITING = 256

#: The variable that Slurm sets to the job's number.
JOB_VARIABLE = "SLURM_JOB_ID"

#: Seconds for the gateway to exit on its own, and seconds to write the last messages.
STOP_TIMEOUT = 2.0


async def serve(read_fd: int, write_fd: int) -> None:
    """Serves one application over two descriptors, and closes them."""
    node = _Node()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, node.ended.set)
    try:
        await node.connection.open(read_fd, write_fd)
        node.connection.write_raw(protocol.PREAMBLE + version("ipybox").encode() + b"\n")
        node.connection.start()
        await node.until_end()
    finally:
        await node.stop()


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
        if exchange.stream.path == protocol.PUT:
            put, packed = await exchange.receive(protocol.Put, protocol.MAX_PUT)
            await asyncio.to_thread(self._put, put, packed)
            await exchange.send(protocol.Message())
        else:
            read, _ = await exchange.receive(protocol.Read)
            download = await asyncio.to_thread(self._transfer.download, read.path)
            omitted = [each[:MAX_OMITTED] for each in download.omitted]
            content = protocol.Content(tar=download.is_directory, executable=download.executable, omitted=omitted)
            await exchange.send(content, download.data)

    def _put(self, put: protocol.Put, packed: bytes) -> None:
        try:
            with open_directory(self._workspace, create=False) as workspace:
                for path in put.removed:
                    remove_file(workspace, tuple(path.split("/")))
                if packed:
                    # No rules here: the application sends only files that code may read.
                    transfer = Transfer(protocol.MAX_PUT)
                    write_tree(workspace, unpack(packed, transfer, lambda _: None), transfer)
        except OSError as exc:
            if exc.strerror is None:
                raise
            raise OSError(exc.strerror) from exc  # omits the file's name: it is temporary and random


class _Node:
    def __init__(self) -> None:
        #: Set when the node should exit.
        self.ended = asyncio.Event()
        self.connection = Connection(client=False, on_request=self._handle, on_closed=self.ended.set)
        self._requested = False
        self._gateway: KernelGateway | None = None
        #: The node's own workspace, if it doesn't share the application's.
        self._workspace: NodeWorkspace | None = None
        self._files: NodeFiles | None = None
        self._tasks = TaskSet()
        self._exceeded: asyncio.Queue[Exceeded] = asyncio.Queue()
        #: Streams from the application that wait for a tool connection, and tool connections that wait for a stream.
        self._spare_streams: deque[Stream] = deque()
        self._waiting: deque[socket.socket] = deque()

    async def until_end(self) -> None:
        """Waits until the application disconnects or goes silent, the gateway exits, or a signal arrives."""
        loop = asyncio.get_running_loop()
        while (left := self.connection.last_received + protocol.APPLICATION_LOST_AFTER - loop.time()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self.ended.wait()
                    return

    async def stop(self) -> None:
        """Stops the gateway and all kernels, and closes the connection."""
        self.connection.close()
        await self._tasks.cancel()
        if self._gateway is not None:
            await self._gateway.stop(STOP_TIMEOUT)
        if self._workspace is not None:
            await asyncio.to_thread(self._workspace.remove)
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT):
                await self.connection.wait_written()

    def _handle(self, stream: Stream) -> None:
        gateway = self._gateway if self._gateway is not None and self._gateway.running else None
        match stream.path:
            case protocol.START if not self._requested:
                self._requested = True
                self._tasks.start(self._serve(stream, self._start))
            case protocol.TOOLS:
                self._spare_streams.append(stream)
                self._join_tools()
            case protocol.GATEWAY if gateway is not None and gateway.endpoint.dial is not None:
                self._tasks.start(tunnel(stream, gateway.endpoint.dial()))
            case protocol.CELL if gateway is not None:
                self._tasks.start(self._serve(stream, self._measure_cell))
            case protocol.PUT | protocol.READ if gateway is not None and self._files is not None:
                self._tasks.start(self._serve(stream, self._files.serve))
            case _:
                stream.reset()

    async def _serve(self, stream: Stream, handler: Callable[[Exchange], Awaitable[None]]) -> None:
        """Handles a request, and stops the node if the request is invalid."""
        try:
            await protocol.answer(stream, handler)
        except InvalidMessageError:
            self.ended.set()

    def _accept_tool_connection(self, sock: socket.socket) -> None:
        if len(self._waiting) >= MAX_WAITING:
            sock.close()
            return
        self._waiting.append(sock)
        self._join_tools()

    def _join_tools(self) -> None:
        while self._waiting and self._spare_streams:
            stream, sock = self._spare_streams.popleft(), self._waiting.popleft()
            stream.accept()
            self._tasks.start(tunnel(stream, sock))

    def _open_workspace(self, start: protocol.Start) -> Path:
        """Returns the application's workspace if this node shares it, or else creates one of its own."""
        workspace = Path(start.workspace)
        with suppress(OSError):
            if (workspace / STATE_DIR / start.proof).is_file():
                return workspace
        self._workspace = NodeWorkspace()
        self._files = NodeFiles(self._workspace.path, start.setup.sandbox)
        return self._workspace.path

    async def _start(self, exchange: Exchange) -> None:
        start, _ = await exchange.receive(protocol.Start)
        workspace = await asyncio.to_thread(self._open_workspace, start)
        gateway = self._gateway = KernelGateway(
            port=None, working_dir=workspace, setup=start.setup, on_tool_connection=self._accept_tool_connection
        )
        gateway.on_exceeded = self._report_exceeded
        await gateway.start()
        self._tasks.start(gateway.join()).add_done_callback(lambda _: self.ended.set())
        job = os.environ.get(JOB_VARIABLE, "")
        await exchange.send(
            protocol.Ready(
                node=socket.gethostname(),
                job=job if job.isdecimal() else "",
                shared=self._files is None,
                platform=protocol.platform_name(),
                notices=list(gateway.notices),
            )
        )
        while True:
            await exchange.send(await self._exceeded.get())

    def _report_exceeded(self, message: str, kernels: Collection[str]) -> None:
        self._exceeded.put_nowait(Exceeded(kernels=list(kernels), message=message))

    async def _measure_cell(self, exchange: Exchange) -> None:
        """Measures a cell until the application ends the request, and reports if the cell exceeds its CPU time."""
        assert self._gateway is not None
        cell, _ = await exchange.receive(protocol.Cell)
        with self._gateway.measure_cell(cell.kernel, lambda message: self._report_cpu(exchange, message)):
            await exchange.stream.receive()

    def _report_cpu(self, exchange: Exchange, message: str) -> None:
        async def report() -> None:
            with suppress(StreamClosedError):
                await exchange.send(Exceeded(kernels=[], message=message))

        self._tasks.start(report())


def _is_private(directory: Path) -> bool:
    status = directory.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
