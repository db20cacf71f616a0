"""The pipes to a stdio MCP server: one JSON-RPC message in each line, in both directions.

It replaces the SDK's transport, which copies a long line again for each chunk and reads lines of any length, see
dev/decisions/001-stdio-transport.md.

The transport ends in this order, each step bounded, even if the application cancels it:

    flush      sent messages reach the server, or are dropped
    end        stdin is closed: the guard (`process_guard.py`) lets the server exit, or ends it
    escalate   the guard gets SIGKILL, and so does all that it has started
    release    the pipes are closed, even if a process still holds their other ends

Until then, stdout is read and discarded: a server that blocks on a full pipe could not exit.
"""

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, SubprocessStreamProtocol
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import IO, cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from ipybox.mcp_client.messages import read_messages, validated
from ipybox.support.bounded_json import MAX_MESSAGE_BYTES, ExcessError, MessageLimit
from ipybox.support.signals import signal_group

_CHUNK = 1 << 16
# Seconds until sent messages must have reached the server's stdin.
_FLUSH_TIMEOUT = 0.5
# Seconds that the guard gets to exit, after stdin was closed, and after SIGKILL.
_EXIT_TIMEOUT = 2.0


@asynccontextmanager
async def stdio_transport(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None,
    stderr: IO[str] | None,
    limit: MessageLimit,
    on_noise: Callable[[str], None],
    on_end: Callable[[ExcessError | None], None],
) -> AsyncGenerator[tuple[MemoryObjectReceiveStream[SessionMessage], MemoryObjectSendStream[SessionMessage]]]:
    """Starts a server and yields a stream of its messages and a stream for messages to it.

    Args:
        command: The guard's command line, which includes the server's.
        env: The whole environment.
        cwd: The working directory.
        stderr: The server's stderr, by default the application's.
        limit: The limit of each line, which is checked before it is parsed.
        on_noise: Called with each line that is not a message.
        on_end: Called when no more messages follow, unless the session has ended before: with None if the server closed
            its stdout or stdin, or with the error of a message that exceeded a limit.

    Raises:
        OSError: If the guard can't be started.
    """
    received, messages = anyio.create_memory_object_stream[SessionMessage](0)
    outgoing, to_send = anyio.create_memory_object_stream[SessionMessage](0)
    factory = partial(_Server, received, limit, on_noise, on_end)
    start = asyncio.get_running_loop().subprocess_exec(
        factory, *command, stdin=PIPE, stdout=PIPE, stderr=stderr, env=env, cwd=cwd, start_new_session=True
    )
    starting = asyncio.create_task(start)
    with anyio.CancelScope(shield=True):  # asyncio loses a process whose start is cancelled: `support.tasks`
        await asyncio.wait([starting])
    _, server = starting.result()
    # No `await` before the task group is entered: a cancellation there would leave the process running.
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.receive)
        tasks.start_soon(server.send, to_send)
        try:
            yield messages, outgoing
        finally:
            messages.close()
            outgoing.close()
            with anyio.CancelScope(shield=True):
                await server.end()
            tasks.cancel_scope.cancel()


class _Server(SubprocessStreamProtocol):
    """A server's process and its pipes."""

    def __init__(
        self,
        received: MemoryObjectSendStream[SessionMessage],
        limit: MessageLimit,
        on_noise: Callable[[str], None],
        on_end: Callable[[ExcessError | None], None],
    ):
        super().__init__(limit=_CHUNK, loop=asyncio.get_running_loop())
        self.received, self.message_limit, self.on_noise, self.on_end = received, limit, on_noise, on_end
        #: Set when no more messages are sent, and when the process has exited, even if its pipes are still open.
        self.sent, self.exited = anyio.Event(), anyio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.stdin is not None
        assert self.stdout is not None
        self.process, self.writer, self.reader = cast(asyncio.SubprocessTransport, transport), self.stdin, self.stdout

    def process_exited(self) -> None:
        super().process_exited()
        returncode = self.process.get_returncode()
        if returncode is not None and returncode < 0:
            _kill_session(self.process.get_pid())
        self.exited.set()

    async def receive(self) -> None:
        excess: ExcessError | None = None
        try:
            async with self.received:
                try:
                    await self._pass_on()
                except ExcessError as exc:
                    excess = exc
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    pass  # the session has ended
                if self.received.statistics().open_receive_streams:
                    self.on_end(excess)
        finally:
            with anyio.CancelScope(shield=True):
                while await self.reader.read(_CHUNK):
                    pass

    async def _pass_on(self) -> None:
        pending = bytearray()
        while data := await self.reader.read(_CHUNK):
            *lines, rest = data.split(b"\n")
            for line in lines:
                if pending:
                    line = b"".join((pending, line))
                    pending.clear()
                await self.message_limit.check(line)
                try:
                    messages = [*map(validated, read_messages(line))]
                except ValueError:
                    messages = []
                    self.on_noise(line.decode(errors="replace"))
                for message in messages:
                    await self.received.send(SessionMessage(message))
                if not messages:
                    await asyncio.sleep(0)  # a chunk can contain thousands of such lines, which take a second
            pending += rest
            if len(pending) >= MAX_MESSAGE_BYTES:
                raise ExcessError(f"{MAX_MESSAGE_BYTES:,} bytes")

    async def send(self, to_send: MemoryObjectReceiveStream[SessionMessage]) -> None:
        try:
            async with to_send:
                async for message in to_send:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    self.writer.write(f"{text}\n".encode())
                    await self.writer.drain()
                    if self.writer.is_closing():
                        raise BrokenPipeError  # the server closed it earlier, which drain() does not report
        except OSError:
            # The server may keep running, but would never answer a message that it can't read.
            self.on_end(None)
            self.received.close()
        finally:
            self.sent.set()

    async def end(self) -> None:
        with anyio.move_on_after(_FLUSH_TIMEOUT) as limit, suppress(OSError):
            await self.sent.wait()
            self.writer.close()
            await self.writer.wait_closed()
        if limit.cancelled_caught:
            # Closing would wait for a server that does not read.
            self.writer.transport.abort()
        with anyio.move_on_after(_EXIT_TIMEOUT) as limit:
            await self.exited.wait()
        if limit.cancelled_caught:
            signal_group(self.process.get_pid(), signal.SIGKILL)
            with anyio.move_on_after(_EXIT_TIMEOUT):
                await self.exited.wait()
        with suppress(PermissionError):  # of a process that runs as another user
            self.process.close()


def _kill_session(session: int) -> None:
    """Kills the processes in the session of a guard that was killed, which would otherwise keep running."""
    import psutil  # slow to import, and rarely needed

    for pid in psutil.pids():
        with suppress(ProcessLookupError, PermissionError):
            if os.getsid(pid) == session:
                os.kill(pid, signal.SIGKILL)
