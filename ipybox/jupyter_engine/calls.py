"""The tool calls of one kernel that come over its comm: puts their parts together, runs each once, keeps results.

Nothing that arrives here is trusted. `ToolServer` gets each call as a request of a connection of the kernel, so it is
checked, sealed, approved and recorded as the call of any kernel.
"""

import asyncio
import io
import json
import logging
import re
import socket
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

import aiohttp

from ipybox.guest.tools.protocol import RUN_PATH, RunReply
from ipybox.support.endpoint import Endpoint
from ipybox.support.sizes import format_bytes
from ipybox.support.tasks import TaskSet

logger = logging.getLogger(__name__)

#: Bytes of the parts of one request, and of its result.
MAX_CALL_BYTES = 64 << 20

#: Bytes of the parts of incomplete requests, and of results that have not arrived yet, each together.
MAX_HELD_BYTES = 2 * MAX_CALL_BYTES

#: Calls at a time, and ids that are remembered, so that a repetition does nothing.
MAX_CALLS = 256
MAX_KNOWN = 10_000

#: Bytes of one part of a result: servers accept 10 MiB in a message.
PART_BYTES = 1 << 20

CALL_ID = re.compile("[0-9a-f]{32}")

#: Sends one message to the kernel, if it can be sent now: its content, and bytes.
Send = Callable[[dict[str, Any], bytes], Coroutine[Any, Any, None]]


class IncomingCalls:
    """Runs the tool calls of one kernel.

    Args:
        accept: Passes a connection of the kernel to the tool server.
        token: The kernel's token there.
        send: Sends a message to the kernel.
    """

    def __init__(self, accept: Callable[[socket.socket], object], token: str, send: Send):
        self._send = send
        self._session: aiohttp.ClientSession | None = None
        self._endpoint = Endpoint("tool-server", token=token, dial=lambda: _connect(accept))
        self._tasks = TaskSet()
        #: Parts of incomplete requests, by call and number.
        self._parts: dict[str, dict[int, bytes]] = {}
        self._part_bytes = 0
        self._running: dict[str, asyncio.Task[None]] = {}
        #: The ids of calls that don't run, about which a message is being sent.
        self._answering: set[str] = set()
        #: The ids of all calls that began to run, the oldest first.
        self._known: OrderedDict[str, None] = OrderedDict()
        #: HTTP status and body of results that the kernel has not acknowledged, the oldest first.
        self._results: OrderedDict[str, tuple[int, bytes]] = OrderedDict()

    async def close(self) -> None:
        """Cancels all calls."""
        await self._tasks.cancel()
        if self._session is not None:
            await self._session.close()
            self._session = None
        self._parts.clear()
        self._running.clear()
        self._results.clear()

    def take(self, data: dict[str, Any], buffers: tuple[memoryview, ...]) -> None:
        """Handles a message of the kernel; what is not valid is ignored."""
        call_id = data.get("id")
        if not isinstance(call_id, str) or not CALL_ID.fullmatch(call_id):
            return
        match data.get("op"):
            case "call":
                self._take_part(call_id, data.get("n"), data.get("of"), buffers)
            case "withdraw":
                self._drop_parts(call_id)
                if (running := self._running.get(call_id)) is not None:
                    running.cancel()
            case "got":
                self._results.pop(call_id, None)
            case _:
                pass

    def resend(self) -> None:
        """Sends all results again that the kernel has not acknowledged, after the connection was lost."""
        for call_id, (status, body) in tuple(self._results.items()):
            self._tasks.start(self._send_result(call_id, status, body))

    def _take_part(self, call_id: str, number: object, count: object, buffers: tuple[memoryview, ...]) -> None:
        if call_id in self._known:  # a repetition: its acknowledgment was late or lost
            self._answer(call_id, self._send({"op": "ack", "id": call_id}, b""))
            return
        if type(number) is not int or type(count) is not int or len(buffers) != 1:
            return
        if not 0 <= number < count <= MAX_CALL_BYTES // PART_BYTES + 1:
            return
        (part,) = buffers
        if len(part) > PART_BYTES:
            return
        parts = self._parts.get(call_id, {})
        if number not in parts:
            if len(self._parts) + len(self._running) >= MAX_CALLS and not parts:
                self._refuse(call_id, f"there are {MAX_CALLS} calls at a time already")
                return
            if self._part_bytes + len(part) > MAX_HELD_BYTES:
                self._refuse(call_id, f"incomplete calls have more than {format_bytes(MAX_HELD_BYTES)} of arguments")
                return
            self._parts[call_id] = parts
            parts[number] = bytes(part)
            self._part_bytes += len(part)
        if len(parts) == count and max(parts) == count - 1:
            body = b"".join(parts[n] for n in range(count))
            self._drop_parts(call_id)
            self._start(call_id, self._run(call_id, body))

    def _drop_parts(self, call_id: str) -> None:
        self._part_bytes -= sum(map(len, self._parts.pop(call_id, {}).values()))

    def _refuse(self, call_id: str, reason: str) -> None:
        self._drop_parts(call_id)
        self._remember(call_id)
        body = _error(f"the application refused the call: {reason}")
        self._answer(call_id, self._send_result(call_id, HTTPStatus.TOO_MANY_REQUESTS, body))

    def _answer(self, call_id: str, send: Coroutine[Any, Any, None]) -> None:
        """Sends a message about a call that does not run, unless one is being sent, or there are too many."""
        if call_id in self._answering or len(self._answering) >= MAX_CALLS:
            send.close()
            return
        self._answering.add(call_id)
        self._tasks.start(send).add_done_callback(lambda _: self._answering.discard(call_id))

    def _remember(self, call_id: str) -> None:
        self._known[call_id] = None
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)

    def _start(self, call_id: str, run: Coroutine[Any, Any, None]) -> None:
        self._remember(call_id)
        task = self._running[call_id] = self._tasks.start(run)
        task.add_done_callback(lambda _: self._running.pop(call_id, None))

    async def _run(self, call_id: str, body: bytes) -> None:
        await self._send({"op": "ack", "id": call_id}, b"")
        if self._session is None:
            self._session = self._endpoint.session()
        headers = {"Content-Type": "application/json"}
        try:
            async with self._session.post(RUN_PATH, data=io.BytesIO(body), headers=headers) as response:
                status, answer = response.status, await response.read()
        except Exception as exc:  # whatever it is: code waits for a result
            logger.warning("a tool call got no result", exc_info=exc)
            status, answer = HTTPStatus.BAD_GATEWAY, _error("the application could not run the call")
        if len(answer) > MAX_CALL_BYTES:
            size = f"{format_bytes(len(answer))}, but {format_bytes(MAX_CALL_BYTES)}"
            answer = _error(f"the result has {size} is all that can be sent to a kernel of another Jupyter server")
        self._results[call_id] = status, answer
        while sum(len(kept) for _, kept in self._results.values()) > MAX_HELD_BYTES:
            self._results.popitem(last=False)
        await self._send_result(call_id, status, answer)

    async def _send_result(self, call_id: str, status: int, body: bytes) -> None:
        count = max(1, -(-len(body) // PART_BYTES))
        for number in range(count):
            part = body[number * PART_BYTES : (number + 1) * PART_BYTES]
            await self._send({"op": "reply", "id": call_id, "n": number, "of": count, "status": int(status)}, part)


def _connect(accept: Callable[[socket.socket], object]) -> socket.socket:
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setblocking(False)
    accept(theirs)
    return ours


def _error(message: str) -> bytes:
    return json.dumps(RunReply(error=message)).encode()
