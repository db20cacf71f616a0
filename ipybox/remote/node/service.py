"""The node's end: a kernel gateway with its sandbox and limits, for an application at the other end of two pipes.

`serve` owns all of it. It ends when the application closes its end or is silent for too long, when the gateway ends, or
at a signal. Then all kernels have ended, too.
"""

import asyncio
import os
import signal
import socket
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from ipybox.kernel_mgr.limits.resource_limits import ResourceLimits, default_memory_limit
from ipybox.kernel_mgr.server import KernelGateway
from ipybox.remote.wire.connection import Connection
from ipybox.remote.wire.messages import InvalidMessageError, MessageStream
from ipybox.remote.wire.platform import platform_name
from ipybox.remote.wire.protocol import (
    APPLICATION_LOST_AFTER,
    CONTROL,
    FILES,
    GATEWAY,
    PREAMBLE,
    PROTOCOL,
    TO_NODE,
    TOOLS,
    CellEnded,
    CellStarted,
    CPUExceeded,
    Exceeded,
    Explain,
    Explained,
    Failed,
    FromNode,
    Ready,
    Start,
    ToNode,
    Versions,
)
from ipybox.remote.wire.stream import Stream
from ipybox.remote.wire.tunnel import tunnel
from ipybox.support.errors import GatewayError, IpyboxError, SandboxError
from ipybox.support.names import STATE_DIR
from ipybox.support.tasks import TaskSet

if TYPE_CHECKING:
    from ipybox.remote.node.files import NodeFiles, NodeWorkspace

#: Connections of code that wait until the application has a stream for them.
MAX_WAITING = 256

#: The variable in which Slurm gives a job its number.
JOB_VARIABLE = "SLURM_JOB_ID"

#: Seconds for the gateway to end by itself, and for the last messages to be written.
STOP_TIMEOUT = 2.0


async def serve(read_fd: int, write_fd: int) -> None:
    """Serves one application over two descriptors, which this owns."""
    node = _Node()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, node.ended.set)
    try:
        await node.connection.open(read_fd, write_fd)
        versions = Versions(ipybox=version("ipybox"), protocol=PROTOCOL)
        node.connection.write_raw(PREAMBLE + versions.model_dump_json().encode() + b"\n")
        node.connection.start()
        await node.until_end()
    finally:
        await node.stop()


class _Gateway(KernelGateway):
    """A gateway that reports exceeded limits instead of keeping them."""

    on_exceeded: Callable[[Iterable[str], str], None]

    def _limit_exceeded(self, message: str, kernel_id: str | None) -> None:
        super()._limit_exceeded(message, kernel_id)
        kernels, self.exceeded = list(self.exceeded), {}
        self.on_exceeded(kernels, message)


class _Node:
    """Serves the streams of one application."""

    def __init__(self) -> None:
        self.connection = Connection(client=False, on_request=self._take)
        #: Set when there is no more to serve.
        self.ended = asyncio.Event()
        self._gateway: _Gateway | None = None
        #: The workspace of this node and its files, if the application does not share its own.
        self._workspace: NodeWorkspace | None = None
        self._files: NodeFiles | None = None
        self._control: MessageStream[ToNode] | None = None
        self._tasks = TaskSet()
        self._timer: asyncio.TimerHandle | None = None
        #: What is measured of the cells that run, by their kernels.
        self._cells: dict[str, ExitStack] = {}
        #: Streams of the application that wait for a connection of code, or connections that wait for a stream.
        self._spare_streams: deque[Stream] = deque()
        self._waiting: deque[socket.socket] = deque()

    async def until_end(self) -> None:
        """Returns when the application or the gateway is gone, or a signal came."""
        self._watch_application()
        ends = [asyncio.create_task(event.wait()) for event in (self.ended, self.connection.closed)]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
            if self._timer is not None:
                self._timer.cancel()

    async def stop(self) -> None:
        """Ends the gateway with all kernels, and closes the connection."""
        self.connection.close()
        await self._tasks.cancel()
        for waiting in self._waiting:
            waiting.close()
        if self._gateway is not None:
            await self._gateway.stop(STOP_TIMEOUT)
        if self._workspace is not None:
            await asyncio.to_thread(self._workspace.remove)
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT):
                await self.connection.wait_written()

    def _take(self, stream: Stream) -> None:
        if stream.path == CONTROL and self._control is None:
            stream.accept()
            self._control = MessageStream(stream, TO_NODE)
            self._tasks.start(self._control.send_forever())
            self._tasks.start(self._obey(self._control))
        elif stream.path == GATEWAY and self._gateway is not None:
            self._join_gateway(self._gateway, stream)
        elif stream.path == TOOLS:
            self._spare_streams.append(stream)
            self._join_tools()
        elif stream.path == FILES and self._files is not None:
            self.connection.enlarge(stream.number)
            stream.accept()
            self._tasks.start(self._serve_files(self._files, stream))
        else:
            stream.reset()

    def _join_gateway(self, gateway: KernelGateway, stream: Stream) -> None:
        try:
            sock = gateway.connect()
        except GatewayError:
            stream.reset()
            return
        self.connection.enlarge(stream.number)
        stream.accept()
        self._tasks.start(tunnel(stream, sock))

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

    async def _obey(self, control: "MessageStream[ToNode]") -> None:
        """Does what the application's messages say; ends the node if one is invalid, or they end."""
        try:
            async for message in control.messages():
                match message:
                    case Start():
                        self._post(await self._start(message))
                    case CellStarted(kernel=kernel):
                        self._start_cell(kernel)
                    case CellEnded(kernel=kernel):
                        self._end_cell(kernel)
                    case Explain():
                        self._post(await self._explained(message))
        except InvalidMessageError:
            pass
        self.ended.set()

    async def _serve_files(self, files: "NodeFiles", stream: Stream) -> None:
        try:
            await files.serve(stream)
        except InvalidMessageError:
            self.ended.set()

    def _find_workspace(self, start: Start) -> Path:
        """Returns the workspace of the application, if it is here; otherwise a new one for its files."""
        workspace = Path(start.workspace)
        with suppress(OSError):
            if (workspace / STATE_DIR / start.proof).is_file():
                return workspace
        from ipybox.remote.node.files import NodeFiles, NodeWorkspace

        self._workspace = NodeWorkspace()
        self._files = NodeFiles(self._workspace.path, start.sandbox)
        return self._workspace.path

    async def _start(self, start: Start) -> Ready | Failed:
        try:
            workspace = await asyncio.to_thread(self._find_workspace, start)
            self._gateway = gateway = _Gateway(
                port=None,
                working_dir=workspace,
                sandbox=start.sandbox is not None,
                sandbox_config=start.sandbox,
                log_level=start.log_level,
                env=start.env,
                on_tool_connection=self._accept_tool_connection,
                limits=_limits(start),
                prespawn=True,
                preload=start.preload,
                spare_kernel=start.spare_kernel,
            )
            gateway.on_exceeded = lambda kernels, message: self._post(Exceeded(kernels=list(kernels), message=message))
            await gateway.start()
        except SandboxError as exc:
            return Failed(kind="sandbox", reason=str(exc))
        except (IpyboxError, OSError, ValueError) as exc:
            return Failed(kind="gateway", reason=str(exc))
        self._tasks.start(self._watch_gateway(gateway))
        job = os.environ.get(JOB_VARIABLE, "")
        return Ready(
            node=socket.gethostname(),
            job=job if job.isdecimal() else "",
            shared=self._files is None,
            platform=platform_name(),
            notices=list(gateway.notices),
        )

    async def _explained(self, question: Explain) -> Explained:
        assert self._gateway is not None
        lines = await self._gateway.explain(question.text, question.tool_texts)
        return Explained(number=question.number, lines=lines)

    def _start_cell(self, kernel: str) -> None:
        if self._gateway is not None:
            self._end_cell(kernel)
            cell = self._cells[kernel] = ExitStack()
            cell.enter_context(self._gateway.measure_cell(kernel, partial(self._report_cpu, kernel)))

    def _end_cell(self, kernel: str) -> None:
        if (cell := self._cells.pop(kernel, None)) is not None:
            cell.close()

    def _report_cpu(self, kernel: str, message: str) -> None:
        self._post(CPUExceeded(kernel=kernel, message=message))

    def _post(self, message: FromNode) -> None:
        assert self._control is not None
        self._control.post(message)

    async def _watch_gateway(self, gateway: KernelGateway) -> None:
        await gateway.join()
        self.ended.set()

    def _watch_application(self) -> None:
        """Ends the node if the application is silent for too long; looks again when that may be."""
        loop = asyncio.get_running_loop()
        silence = loop.time() - self.connection.last_received
        if silence >= APPLICATION_LOST_AFTER:
            self.ended.set()
        else:
            self._timer = loop.call_later(APPLICATION_LOST_AFTER - silence, self._watch_application)


def _limits(start: Start) -> ResourceLimits:
    return replace(start.limits, memory=default_memory_limit()) if start.default_memory else start.limits
