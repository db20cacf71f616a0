"""Executes code in an IPython kernel, over the gateway's REST and WebSocket interface.

One task reads the WebSocket and hands each message to the queue of the request that it belongs to; a `Cell` tells when
an execution is over.
"""

import asyncio
import errno
import json
import logging
import re
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self, cast

import aiohttp

from ipybox.deadline import Deadline, Turn
from ipybox.endpoint import Endpoint, read_answer
from ipybox.errors import ExecutionError, ExecutionTimeoutError, GatewayError, KernelDiedError
from ipybox.guest.protocol import MARK
from ipybox.kernel_mgr import messages
from ipybox.kernel_mgr.cell import Cell, MessageQueue
from ipybox.kernel_mgr.limits import format_bytes
from ipybox.output import ExecutionOutput
from ipybox.printable import printable
from ipybox.tasks import TaskSet

__all__ = ["ExecutionError", "ExecutionResult", "KernelClient"]

logger = logging.getLogger(__name__)

#: Seconds that a cell has to end after an interrupt before its kernel is restarted.
INTERRUPT_GRACE = 3.0

#: Seconds that the gateway has to answer what it can answer at once.
ANSWER_GRACE = 3.0

#: Seconds that a gateway which did not answer has to say that it is there. One that doesn't is lost, with all kernels.
PROBE_TIMEOUT = 10.0

#: Seconds that output has to arrive after a tool call that came after it.
MARK_TIMEOUT = 2.0

#: Seconds that a new kernel has to answer.
KERNEL_START_TIMEOUT = 60.0

#: Seconds that the gateway has to answer a request.
GATEWAY_TIMEOUT = 20.0

#: The largest message of a kernel: all that one `print` has put out.
MAX_MESSAGE_BYTES = 256 << 20

#: Seconds that closing a connection may take once the gateway is lost.
LOST_GRACE = 0.1

#: Frames that say that no more will come.
CLOSED = (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.CLOSED)

KERNEL_ID = re.compile(r"[\w-]{1,100}", re.ASCII)


@dataclass(frozen=True)
class ExecutionResult(ExecutionOutput):
    """What a cell printed and displayed that ended well."""


class KernelClient:
    """Executes code in an IPython kernel of a gateway, which it creates and deletes.

    Executions are stateful. They run one at a time: a second one waits for the first.

    Args:
        host: Host of the gateway.
        port: Port of the gateway. Its token is found where the gateway has put it (`ipybox.tokens`).
        images_dir: Directory for images that code displays; `images` in the working directory by default.
        ping_interval: Seconds between pings that detect a lost gateway over TCP; private sockets need none.
        endpoint: The gateway's private endpoint (`KernelGateway.endpoint`), instead of host and port.
        beneath: The workspace, if the kernel runs in a sandbox: links that code has made there are not followed.
        workspace: The workspace. If it is deleted, no directory for images is made in it again.
        env: Environment variables for the kernel, of those that the gateway lets its clients set.
    """

    def __init__(
        self,
        host: str = "localhost",
        port: int = 8888,
        images_dir: Path | None = None,
        ping_interval: float = 10,
        *,
        endpoint: Endpoint | None = None,
        beneath: Path | None = None,
        workspace: Path | None = None,
        env: Mapping[str, str] | None = None,
    ):
        self._endpoint = endpoint or Endpoint("kernel-gateway", host, port)
        self._images_dir = images_dir or Path("images")
        self._beneath = beneath
        in_workspace = workspace and self._images_dir.resolve().is_relative_to(workspace.resolve())
        #: What must be there for a directory for images to be made.
        self._images_base = workspace if in_workspace else None
        self._new_kernel: dict[str, Any] = {"name": "python3"} | ({"env": dict(env)} if env else {})
        self._heartbeat = None if self._endpoint.dial is not None else ping_interval
        self._turn = Turn()
        self._tasks = TaskSet()
        #: Held while the kernel is made, replaced or deleted, each of which goes on to its end.
        self._lifecycle = asyncio.Lock()
        self._session: aiohttp.ClientSession | None = None
        self._websocket: aiohttp.ClientWebSocketResponse | None = None
        self._kernel_id: str | None = None
        #: Kernels that could not be deleted, as this process could open no connection.
        self._to_delete: list[str] = []
        self._jupyter_session = ""
        self._queues: dict[str, MessageQueue] = {}
        self._reader: asyncio.Task[None] | None = None
        self._recovery: asyncio.Task[str] | None = None
        self._death = "not connected to a kernel"
        #: Whether the gateway did not answer: nothing can be asked of it any more.
        self.gateway_lost = False
        self._misunderstood = False
        #: The last mark in the output that the consumer of an execution has had.
        self._mark = 0
        self._marked = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.disconnect()

    @property
    def kernel_id(self) -> str:
        """The id of the running kernel.

        Raises:
            RuntimeError: If not connected to a kernel.
        """
        if self._kernel_id is None:
            raise RuntimeError("not connected to a kernel: call connect() first")
        return self._kernel_id

    @property
    def alive(self) -> bool:
        """Whether there is a kernel, as far as is known."""
        return self._reader is not None and not self._reader.done() and not self.gateway_lost

    @property
    def idle(self) -> bool:
        """Whether there is a kernel, as far as is known, and no execution that was given up is still in it."""
        return self.alive and self._recovery is None

    async def connect(self, retries: int = 10, retry_interval: float = 1.0) -> None:
        """Creates a kernel and returns when it is ready to execute code.

        Args:
            retries: How often to try again if the gateway can't be reached.
            retry_interval: Seconds between tries.

        Raises:
            RuntimeError: If already connected, or the gateway can't be reached after all retries.
            GatewayError: If the gateway answers with an error, or not as a gateway does.
        """
        if self._session is not None:
            raise RuntimeError("already connected to a kernel")
        for attempt in range(retries + 1):
            try:
                return await self._tasks.finish(self._connect())
            except asyncio.CancelledError:
                await self.disconnect()  # the gateway makes the kernel all the same
                raise
            except (aiohttp.ClientConnectionError, OSError) as exc:
                if attempt == retries:
                    self.gateway_lost = not _is_shortage(exc)
                    raise RuntimeError(f"can't reach the kernel gateway at {self._endpoint.url}: {exc}") from exc
            await asyncio.sleep(retry_interval)
        raise ValueError(f"retries={retries} is too low: it must be 0 or more")

    async def disconnect(self) -> None:
        """Deletes the kernel and closes the connection to the gateway."""
        await self._tasks.finish(self._disconnect())

    async def reset(self) -> None:
        """Replaces the kernel by a new one; an execution under way fails. It goes on if the caller is cancelled.

        Raises:
            RuntimeError: If not connected to a gateway.
            GatewayError: If the gateway does not give a new kernel.
        """
        await self._tasks.finish(self._reset())

    async def recovered(self) -> None:
        """Waits until the kernel is free of an execution that was given up, by an interrupt or a restart."""
        if self._recovery is not None:
            await asyncio.shield(self._recovery)

    async def until_put_out(self, mark: int) -> None:
        """Waits until the consumer of the execution has had all output before a mark, if that comes within 2 s."""
        with suppress(TimeoutError):
            async with Deadline(MARK_TIMEOUT).limit():
                while self._mark < mark:
                    self._marked.clear()
                    await self._marked.wait()

    async def execute(self, code: str, timeout: float | None = 120) -> ExecutionResult:
        """Executes code and returns what it printed and displayed.

        Args:
            code: The code of one cell.
            timeout: Seconds until the execution is interrupted, its wait for an earlier one included; None for
                no limit.

        Raises:
            ExecutionError: If the code raises; the message is the traceback.
            KernelDiedError: If the kernel ends.
            TimeoutError: If the time is over before the code runs, or `ExecutionTimeoutError` while it does; the
                message says what became of the kernel. As the others it has what was put out until then.
        """
        async with aclosing(self.stream(code, timeout)) as items:
            async for item in items:
                if isinstance(item, ExecutionResult):
                    return item
        raise AssertionError("unreachable: a stream ends with its result")

    async def stream(self, code: str, timeout: float | Deadline | None = 120) -> AsyncGenerator[str | ExecutionResult]:
        """Executes code; yields its output as it arrives and last the `ExecutionResult`.

        Leaving the iteration early interrupts the cell. Of what comes while the consumer is busy, as much is kept as
        one cell can put out. Arguments and errors are those of `execute`.
        """
        deadline = Deadline.of(timeout)
        async with self._turn.take(deadline):
            try:
                async with deadline.limit():
                    await self.recovered()
            except TimeoutError:
                raise deadline.not_begun("an earlier one that was given up is still running") from None
            cell = await self._start_cell(code)
            try:
                while not cell.over:
                    message = await cell.receive(deadline, self._death_notice)
                    if message.type == MARK:
                        self._pass_mark(message)
                    elif chunk := cell.take(message):
                        yield chunk
            except TimeoutError:
                fate = await self._recover(cell)
                reason = deadline.reason or f"the execution exceeded {deadline.seconds:g} s"
                raise ExecutionTimeoutError(f"{reason}: {fate}", await self._output(cell)) from None
            except KernelDiedError as exc:
                exc.output = await self._output(cell)
                raise
            except (asyncio.CancelledError, GeneratorExit):
                await self._recover(cell)
                raise
            finally:
                if self._recovery is None:  # which goes on if this task is cancelled twice
                    self._queues.pop(cell.msg_id, None)
            if cell.failure is not None:
                raise ExecutionError(cell.failure, await self._output(cell))
            yield await self._output(cell)

    async def _output(self, cell: Cell) -> ExecutionResult:
        """Saves what the cell displayed, and returns all that it put out; a notice tells if that fails."""
        text, notices = cell.outputs.text(), cell.outputs.notices()
        try:
            saved = await asyncio.to_thread(
                cell.outputs.save, self._images_dir, beneath=self._beneath, base=self._images_base
            )
        except OSError as exc:
            notices.append(f"What the cell displayed can't be saved in {self._images_dir}: {exc}")
            return ExecutionResult(text, [], notices=notices)
        return ExecutionResult(text, saved.images, saved.image_data, saved.files, notices)

    async def _start_cell(self, code: str) -> Cell:
        queue = MessageQueue()
        msg_id = await self._request("execute_request", messages.execute_request(code), queue)
        return Cell(msg_id, queue)

    async def _request(self, msg_type: str, content: dict[str, Any], queue: MessageQueue) -> str:
        """Sends a request whose replies and outputs go to `queue`, and returns its id."""
        if not self.alive or self._websocket is None:
            raise KernelDiedError(self._death_notice())
        msg_id, data = messages.encode_request(msg_type, content, session=self._jupyter_session, channel="shell")
        self._queues[msg_id] = queue
        try:
            await self._websocket.send_bytes(data)
        except (aiohttp.ClientError, OSError) as exc:
            del self._queues[msg_id]
            raise KernelDiedError(self._death_notice()) from exc
        return msg_id

    async def _recover(self, cell: Cell) -> str:
        """Gets the kernel out of a cell, even if this task is cancelled meanwhile; returns how that went."""
        self._recovery = asyncio.create_task(self._interrupt(cell))
        return await asyncio.shield(self._recovery)

    async def _interrupt(self, cell: Cell) -> str:
        deadline = Deadline(INTERRUPT_GRACE)
        self._queues[cell.msg_id] = cell.queue
        try:
            while not (cell.begun or cell.over):
                cell.take(await cell.receive(deadline, self._death_notice))
            await self._call("POST", f"/api/kernels/{self.kernel_id}/interrupt", timeout=ANSWER_GRACE)
            while not cell.over:
                cell.take(await cell.receive(deadline, self._death_notice))
        except TimeoutError:
            return await self._restart_stubborn()
        except KernelDiedError as exc:
            return str(exc)
        except (RuntimeError, GatewayError, aiohttp.ClientError, OSError) as exc:
            logger.warning("can't interrupt the kernel: %s", exc)
            if self.gateway_lost:
                return "the kernel gateway does not answer, its kernel is lost"
            return await self._restart_stubborn()
        finally:
            self._queues.pop(cell.msg_id, None)
            self._recovery = None
        return "the kernel was interrupted and keeps its state"

    async def _restart_stubborn(self) -> str:
        stubborn = "the kernel did not yield to an interrupt and"
        try:
            await self._reset()
        except (RuntimeError, GatewayError) as exc:
            logger.warning("can't restart the kernel: %s", exc)
            return f"{stubborn} could not be restarted: {exc}"
        return f"{stubborn} was restarted, its state is lost"

    async def _connect(self) -> None:
        async with self._lifecycle:
            self.gateway_lost = False
            # The session looks its token up, which may not be there before the gateway is.
            self._session = self._endpoint.session()
            try:
                await self._create_kernel()
            except BaseException as exc:
                await self._close_session()
                if isinstance(exc, aiohttp.ClientError) and not isinstance(exc, aiohttp.ClientConnectionError):
                    raise GatewayError(f"{self._endpoint.url} does not answer as a kernel gateway: {exc}") from exc
                raise

    async def _disconnect(self) -> None:
        async with self._lifecycle:
            try:
                if self._session is not None:
                    await self._delete_kernel("the connection to the kernel was closed while the code ran")
            finally:
                await self._close_session()

    async def _reset(self) -> None:
        async with self._lifecycle:
            if self._session is None:
                raise RuntimeError("not connected to a kernel: call connect() first")
            await self._delete_kernel("the kernel was reset while the code ran")
            if self.gateway_lost:
                raise GatewayError("the kernel gateway does not answer")
            try:
                await self._create_kernel()
            except (aiohttp.ClientError, OSError) as exc:
                await self._probe()
                raise GatewayError(f"the kernel gateway does not answer as it should: {exc}") from exc

    def _death_notice(self) -> str:
        return self._death

    async def _create_kernel(self) -> None:
        assert self._session is not None
        kernel_id = (await self._call("POST", "/api/kernels", self._new_kernel)).get("id")
        if not isinstance(kernel_id, str) or not KERNEL_ID.fullmatch(kernel_id):
            raise GatewayError("POST /api/kernels: the answer has no id of a kernel")
        self._kernel_id = kernel_id
        self._jupyter_session = uuid.uuid4().hex
        self._death = "the kernel died"
        self._mark = 0
        try:
            async with Deadline(KERNEL_START_TIMEOUT).limit():
                self._websocket = await self._session.ws_connect(
                    f"/api/kernels/{self._kernel_id}/channels",
                    params={"session_id": self._jupyter_session},
                    protocols=(messages.SUBPROTOCOL,),
                    heartbeat=self._heartbeat,
                    max_msg_size=MAX_MESSAGE_BYTES,
                )
                self._reader = asyncio.create_task(self._read(self._websocket))
                await self._kernel_info()
        except (TimeoutError, aiohttp.ClientError, OSError, GatewayError, KernelDiedError) as exc:
            await self._probe()
            await self._delete_kernel("the kernel did not start")
            raise GatewayError(f"the kernel did not start: {_start_problem(exc)}") from exc

    async def _kernel_info(self) -> None:
        """Returns when the kernel has answered, so that it is known to be ready."""
        queue = MessageQueue()
        msg_id = await self._request("kernel_info_request", {}, queue)
        try:
            cell = Cell(msg_id, queue)
            while (await cell.receive(Deadline(None), self._death_notice)).type != "kernel_info_reply":
                pass
        finally:
            self._queues.pop(msg_id, None)

    async def _delete_kernel(self, reason: str) -> None:
        """Ends the kernel; what waits for it fails with `reason`."""
        self._death = reason
        if self._kernel_id is not None:
            self._to_delete.append(self._kernel_id)
            self._kernel_id = None
        with suppress(GatewayError, aiohttp.ClientError, OSError):
            if not await self._hang_up():
                await self._probe()
        while self._to_delete and not self.gateway_lost:
            try:
                await self._call("DELETE", f"/api/kernels/{self._to_delete[-1]}")
            except (GatewayError, aiohttp.ClientError, OSError) as exc:
                if _is_shortage(exc):
                    return
                logger.debug("kernel %s is not there to be deleted: %s", self._to_delete[-1], exc)
            self._to_delete.pop()

    async def _hang_up(self) -> bool:
        """Closes the WebSocket; returns whether the gateway has answered that, or nothing is known to be wrong."""
        websocket, self._websocket = self._websocket, None
        if websocket is None:
            return True
        try:
            async with Deadline(LOST_GRACE if self.gateway_lost else ANSWER_GRACE).limit():
                await websocket.close()
        except TimeoutError:
            return self.gateway_lost
        finally:
            if self._reader is not None:
                self._reader.cancel()
                await asyncio.wait([self._reader])
                self._reader = None
        return True

    async def _call(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Makes a request to the gateway's REST interface and returns the JSON object in its answer, if any.

        Raises:
            GatewayError: If the answer is an error, or none of a gateway, or there is none: then the gateway is lost.
        """
        assert self._session is not None
        timeout = GATEWAY_TIMEOUT if timeout is None else timeout
        try:
            async with (
                Deadline(timeout).limit(),
                self._session.request(method, path, json=body, allow_redirects=False) as response,
            ):
                content = await read_answer(response)
        except TimeoutError as exc:
            await self._probe()
            raise GatewayError(f"{method} {path}: no answer within {timeout:g} s") from exc
        except GatewayError:  # there is no connection
            await self._probe()
            raise
        if response.status >= 300:
            raise GatewayError(f"{method} {path}: HTTP {response.status} {response.reason} {_detail(content)}")
        try:
            answer: object = json.loads(content or b"{}")
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise GatewayError(f"{method} {path}: the answer is no JSON object")
        return cast(dict[str, Any], answer)

    async def _probe(self) -> None:
        """Finds out whether a gateway that did not answer is lost: one that is only slow has the kernels of others."""
        if self.gateway_lost or self._session is None:
            return
        try:
            async with Deadline(PROBE_TIMEOUT).limit(), self._session.get("/api", allow_redirects=False):
                pass
        except (TimeoutError, aiohttp.ClientError, OSError, GatewayError) as exc:
            if not _is_shortage(exc):
                self.gateway_lost = True
                self._death = "the kernel gateway does not answer"

    async def _close_session(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def _read(self, websocket: aiohttp.ClientWebSocketResponse) -> None:
        """Hands messages to whoever waits for them, until the kernel or the connection ends."""
        try:
            while self._take(await websocket.receive()):
                pass
        finally:
            for queue in self._queues.values():
                queue.put(None)

    def _take(self, frame: aiohttp.WSMessage) -> bool:
        """Hands a message to whoever waits for it; returns whether there can be more."""
        if frame.type is aiohttp.WSMsgType.ERROR:
            error = frame.data
            if isinstance(error, aiohttp.WebSocketError) and error.code == aiohttp.WSCloseCode.MESSAGE_TOO_BIG:
                self._death = (
                    f"the kernel sent a message of more than {format_bytes(MAX_MESSAGE_BYTES)}, which ends the "
                    "connection to it: put out less at once, or write it to a file"
                )
            return False
        if frame.type is not aiohttp.WSMsgType.BINARY:
            return frame.type not in CLOSED
        try:
            message = messages.decode(frame.data)
        except ValueError as exc:
            logger.log(
                logging.DEBUG if self._misunderstood else logging.WARNING,
                "ignored a message of the kernel gateway that can't be understood: %s",
                printable(str(exc)),
            )
            self._misunderstood = True
            return True
        if message.type == "status" and message.content.get("execution_state") == "dead":
            return False
        # Marks have no parent: a thread that an earlier cell has left behind sets them, too.
        queues = self._queues.values() if message.type == MARK else [self._queues.get(message.parent_id or "")]
        for queue in queues:
            if queue is not None:
                queue.add(message)
        return True

    def _pass_mark(self, message: messages.Message) -> None:
        number = message.content.get("number")
        if isinstance(number, int):
            self._mark = number
            self._marked.set()


def _is_shortage(exc: BaseException) -> bool:
    """Tells whether an error is about what this process has too little of, and not about the gateway."""
    return isinstance(exc, OSError) and exc.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def _detail(content: bytes) -> str:
    """Returns what an answer of the gateway says of its error: of a traceback, the last line."""
    text = content.decode(errors="replace")
    with suppress(ValueError, RecursionError, KeyError, TypeError, AttributeError):
        answer = json.loads(text)
        text = str(answer.get("traceback") or answer["message"]).rstrip().rpartition("\n")[2]
    return printable(text[:500])


def _start_problem(exc: Exception) -> str:
    if isinstance(exc, aiohttp.WSServerHandshakeError) and exc.status == HTTPStatus.GONE:
        return "its process ended"
    if isinstance(exc, TimeoutError):
        return f"it did not answer within {KERNEL_START_TIMEOUT:g} s"
    return str(exc) or type(exc).__name__
