"""The pipes to a stdio MCP server: one JSON-RPC message in each line, in both directions.

It replaces the SDK's transport, which copies a long line again for each chunk and reads lines of any length, see
dev/decisions/001-stdio-transport.md.

The transport ends in this order, each step bounded, even if the application cancels it:

    flush      sent messages reach the server, or are dropped
    end        stdin is closed: the guard (`process_guard.py`) lets the server exit, or ends it
    escalate   the guard's process group gets SIGTERM, then SIGKILL
    release    the pipes are closed, even if a process still holds their other ends

Until then, stdout is read and discarded: a server that blocks on a full pipe could not exit.
"""

import asyncio
import logging
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

logger = logging.getLogger(__name__)

_CHUNK = 1 << 16
# Seconds until sent messages must have reached the server's stdin.
_FLUSH_TIMEOUT = 0.5
# Seconds that the guard gets to exit: after stdin was closed, after SIGTERM, and after SIGKILL.
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
    loop = asyncio.get_running_loop()
    factory = partial(_Protocol, limit=_CHUNK, loop=loop)
    start = loop.subprocess_exec(
        factory, *command, stdin=PIPE, stdout=PIPE, stderr=stderr, env=env, cwd=cwd, start_new_session=True
    )
    starting = asyncio.create_task(start)
    with anyio.CancelScope(shield=True):  # asyncio loses a process whose start is cancelled: `support.tasks`
        await asyncio.wait([starting])
    process, protocol = starting.result()
    # No `await` before the task group is entered: a cancellation there would leave the process running.
    assert protocol.stdin is not None
    assert protocol.stdout is not None
    received, messages = anyio.create_memory_object_stream[SessionMessage](0)
    outgoing, to_send = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_receive, protocol.stdout, received, limit, on_noise, on_end)
        sent = anyio.Event()
        tasks.start_soon(_send, protocol.stdin, to_send, received, sent, on_end)
        try:
            yield messages, outgoing
        finally:
            messages.close()
            outgoing.close()
            with anyio.CancelScope(shield=True):
                await _end(process, protocol, sent)
            tasks.cancel_scope.cancel()


class _Protocol(SubprocessStreamProtocol):
    """The streams of a process, and a notification of its exit, which does not wait for the pipes to close."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._process = cast(asyncio.SubprocessTransport, transport)
        self.exited = anyio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        returncode = self._process.get_returncode()
        if returncode is not None and returncode < 0:
            _kill_session(self._process.get_pid())
        self.exited.set()


def _kill_session(session: int) -> None:
    """Kills the processes in the session of a guard that was killed, which would otherwise keep running."""
    import psutil  # slow to import, and rarely needed

    for pid in psutil.pids():
        with suppress(ProcessLookupError, PermissionError):
            if os.getsid(pid) == session:
                os.kill(pid, signal.SIGKILL)


async def _receive(
    stdout: asyncio.StreamReader,
    received: MemoryObjectSendStream[SessionMessage],
    limit: MessageLimit,
    on_noise: Callable[[str], None],
    on_end: Callable[[ExcessError | None], None],
) -> None:
    excess: ExcessError | None = None
    try:
        async with received:
            try:
                await _pass_on(stdout, received, limit, on_noise)
            except ExcessError as exc:
                excess = exc
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass  # the session has ended
            if received.statistics().open_receive_streams:
                on_end(excess)
    finally:
        with anyio.CancelScope(shield=True):
            while await stdout.read(_CHUNK):
                pass


async def _pass_on(
    stdout: asyncio.StreamReader,
    received: MemoryObjectSendStream[SessionMessage],
    limit: MessageLimit,
    on_noise: Callable[[str], None],
) -> None:
    pending = bytearray()
    while data := await stdout.read(_CHUNK):
        *lines, rest = data.split(b"\n")
        for line in lines:
            if pending:
                line = b"".join((pending, line))
                pending.clear()
            limit.check(line)
            try:
                messages = [*map(validated, read_messages(line))]
            except ValueError:
                on_noise(line.decode(errors="replace"))
                await asyncio.sleep(0)  # a chunk can contain thousands of such lines, which take a second
            else:
                for message in messages:
                    await received.send(SessionMessage(message))
        pending += rest
        if len(pending) >= MAX_MESSAGE_BYTES:
            raise ExcessError(f"{MAX_MESSAGE_BYTES:,} bytes")


async def _send(
    stdin: asyncio.StreamWriter,
    to_send: MemoryObjectReceiveStream[SessionMessage],
    received: MemoryObjectSendStream[SessionMessage],
    sent: anyio.Event,
    on_end: Callable[[ExcessError | None], None],
) -> None:
    try:
        async with to_send:
            async for message in to_send:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                stdin.write(f"{text}\n".encode())
                await stdin.drain()
                if stdin.is_closing():
                    raise BrokenPipeError  # the server closed it earlier, which drain() does not report
    except OSError:
        # The server may keep running, but would never answer a message that it can't read.
        on_end(None)
        received.close()
    finally:
        sent.set()


async def _end(process: asyncio.SubprocessTransport, protocol: _Protocol, sent: anyio.Event) -> None:
    stdin = cast(asyncio.StreamWriter, protocol.stdin)
    with anyio.move_on_after(_FLUSH_TIMEOUT) as limit, suppress(OSError):
        await sent.wait()
        stdin.close()
        await stdin.wait_closed()
    if limit.cancelled_caught:
        # Closing would wait for a server that does not read.
        stdin.transport.abort()
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            signal_group(process.get_pid(), number)
        with anyio.move_on_after(_EXIT_TIMEOUT):
            await protocol.exited.wait()
            break
    else:
        logger.warning("MCP server process %d can't be killed", process.get_pid())
    with suppress(PermissionError):  # of a process that runs as another user
        process.close()
