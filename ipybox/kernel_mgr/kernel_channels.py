"""The channels to a kernel, over one WebSocket of the gateway.

One task reads the WebSocket and passes each message to the execution of its request.
`RemoteKernel` opens the channels to each kernel that it creates.
"""

import asyncio
import logging
import signal
from collections.abc import Callable
from contextlib import suppress

import aiohttp

from ipybox.guest.protocol import EXIT, MARK, MAX_MESSAGE_BYTES
from ipybox.kernel_mgr import messages, timeouts
from ipybox.kernel_mgr.display_forms import as_object
from ipybox.kernel_mgr.execution import Execution
from ipybox.support.deadline import Deadline
from ipybox.support.errors import GatewayError
from ipybox.support.printable import printable
from ipybox.support.sizes import format_bytes

logger = logging.getLogger(__name__)

#: Types of the last frame of a connection.
CLOSED = (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.CLOSED)

#: Bytes of the smallest message's offsets. Shorter frames end the connection: no gateway sends them, and aiohttp would
#: queue any number of empty ones at once.
MIN_FRAME_BYTES = 56

#: Seconds until the next frame is read after one that contains no message: 10 MB can be five million of them.
PAUSE = 0.001

#: Seconds from a message to its acknowledgment (`acknowledge`). The last message of a cell is not acknowledged, because
#: that would delay the next request.
ACKNOWLEDGMENT_PAUSE = 0.001


def describe_exit(exit_status: object) -> str:
    """Returns how a kernel died, as the end of a sentence; empty if unknown. Code can forge `exit_status`."""
    ended = as_object(exit_status)
    status = ended.get("status")
    if type(status) is not int or not -64 <= status <= 255:
        return ""
    if status >= 0:
        return f": its process exited with code {status}"
    name = next((f" ({each.name})" for each in signal.Signals if each == -status), "")
    reason = (
        " because the system ran out of memory (OOM killer)"
        if ended.get("oom") is True and -status == signal.SIGKILL
        else ""
    )
    return f": its process was killed by signal {-status}{name}{reason}"


class KernelChannels:
    """Sends requests to a kernel and sorts its messages; `open` and `close` may alternate.

    Args:
        relayed: Whether programs between this process and the gateway delay small messages (`acknowledge`).
    """

    def __init__(self, *, relayed: bool = False) -> None:
        self._relayed = relayed
        self._websocket: aiohttp.ClientWebSocketResponse | None = None
        self._jupyter_session = ""
        self._executions: dict[str, Execution] = {}
        #: Called with the reason when no more messages will arrive; must not block.
        self.on_end: set[Callable[[str], object]] = set()
        #: The ids of running and queued cells that a person's clients sent. The kernel runs all cells in order: behind
        #: them, a cell of the application could be neither interrupted nor withdrawn, so it waits here.
        self.client_cells: set[str] = set()
        self._client_cell_ended = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None
        #: Whether a message could not be sent, or the gateway is lost.
        self._broken = False
        #: Called with each message without an execution, except those about other clients' requests.
        self.on_unclaimed: Callable[[messages.Message], object] = lambda _: None
        #: The number of the last sync marker that arrived in the output.
        self._last_marker = 0
        self._marker_received = asyncio.Event()
        #: Why no more messages arrive, or why none will once the channels close.
        self.death = "not connected to a kernel"
        #: How a dead kernel's process ended, as the end of a sentence; empty if unknown.
        self.exit = ""

    @property
    def alive(self) -> bool:
        """Whether the channels are not known to be closed."""
        return self._reader is not None and not self._reader.done() and not self._broken

    async def open(
        self,
        websocket: aiohttp.ClientWebSocketResponse,
        jupyter_session: str,
        ending: "asyncio.Future[None] | None" = None,
    ) -> None:
        """Starts reading the messages of a new kernel; `close` closes its WebSocket.

        `ending` ends the previous kernel: reading waits for it, and its error is raised.
        """
        self._websocket, self._jupyter_session = websocket, jupyter_session
        if ending is not None:
            await asyncio.shield(ending)
        self._last_marker = 0
        self._broken = False
        self.exit = ""
        self._reader = asyncio.create_task(self._read(websocket))

    async def close(self, timeout: float) -> bool:
        """Closes the WebSocket; returns whether the gateway confirmed that within `timeout` seconds."""
        websocket, self._websocket = self._websocket, None
        if websocket is None:
            return True
        try:
            async with Deadline(timeout).limit():
                await websocket.close()
        except TimeoutError:  # the gateway may send for ever
            return False
        finally:
            if self._reader is not None:
                self._reader.cancel()
                await asyncio.wait([self._reader])
                self._reader = None
        return True

    async def request(self, execution: Execution) -> None:
        """Sends an `execute_request`, whose messages go to `execution`; without a kernel, the execution just ends."""
        if self._websocket is None or not self.alive:
            execution.on_end(self.death)
            return
        execution.msg_id, data = messages.encode_execute_request(
            execution.code, execution.fields, session=self._jupyter_session, buffers=execution.buffers
        )
        self._executions[execution.msg_id] = execution
        try:
            await self._websocket.send_bytes(data)
        except (aiohttp.ClientError, OSError):
            self.forget(execution.msg_id)
            self._broken = True  # the reader notices only later
            execution.on_end(self.death)

    def fail(self, reason: str) -> None:
        """Refuses new requests for this reason; pending ones continue until the connection ends."""
        self._broken, self.death = True, reason

    def begin_client_cell(self, msg_id: str) -> None:
        """Records a cell that a person's client is sending."""
        if self.alive:
            self.client_cells.add(msg_id)

    def end_client_cell(self, msg_id: str) -> None:
        """Records that such a cell has ended, or will never run."""
        self.client_cells.discard(msg_id)
        self._client_cell_ended.set()

    async def wait_for_client_cells(self, deadline: Deadline) -> None:
        """Waits until there are no such cells.

        Raises:
            TimeoutError: At the deadline.
        """
        try:
            async with deadline.limit():
                while self.client_cells:
                    self._client_cell_ended.clear()
                    await self._client_cell_ended.wait()
        except TimeoutError:
            raise deadline.not_started("the person connected to the kernel is running a cell") from None

    def forget(self, msg_id: str) -> None:
        """Ignores all further messages of a request."""
        self._executions.pop(msg_id, None)

    async def wait_for_marker(self, number: int) -> None:
        """Waits until all output before a sync marker has arrived, at most `MARK_TIMEOUT` seconds."""
        with suppress(TimeoutError):
            async with Deadline(timeouts.MARK_TIMEOUT).limit():
                while self._last_marker < number:
                    self._marker_received.clear()
                    await self._marker_received.wait()

    async def _read(self, websocket: aiohttp.ClientWebSocketResponse) -> None:
        """Passes messages to their executions, until the kernel or the connection ends."""
        received, acknowledging = asyncio.Event(), None
        if self._relayed:
            work = acknowledge(websocket, received, expecting=lambda: bool(self._executions))
            acknowledging = asyncio.create_task(work)
        try:
            while (data := await next_data(websocket)) is not None and await self._dispatch(data):
                received.set()
        except GatewayError as exc:
            self.death = str(exc)
        finally:
            try:
                if acknowledging is not None:
                    acknowledging.cancel()
                    await asyncio.wait([acknowledging])
            finally:  # last: those who are called must find the channels closed
                self.client_cells.clear()
                self._client_cell_ended.set()
                for execution in [*self._executions.values()]:
                    execution.on_end(self.death)
                for on_end in [*self.on_end]:
                    on_end(self.death)

    async def _dispatch(self, data: bytes) -> bool:
        """Passes a message to its execution; returns whether more can arrive."""
        try:
            message = messages.decode(data)
        except ValueError as exc:
            logger.debug("ignored an invalid message from the kernel gateway: %s", printable(str(exc)))
            await asyncio.sleep(PAUSE)
            return True
        if message.is_large:
            await asyncio.to_thread(message.prepare)
        if message.type == "status" and message.content.get("execution_state") == "dead":
            self.exit = describe_exit(message.content.get(EXIT))
            self.death += self.exit
            return False
        if message.type == MARK:  # has no parent, because threads of earlier cells also send sync markers
            if isinstance(number := message.content.get("number"), int):
                self._last_marker = number
                self._marker_received.set()
            return True
        if (execution := self._executions.get(message.parent_id or "")) is not None:
            execution.on_message(message)
        elif message.parent_id in self.client_cells:
            if message.type == "status" and message.content.get("execution_state") == "idle":
                self.end_client_cell(message.parent_id)
        elif message.parent_header.get("session", self._jupyter_session) == self._jupyter_session:
            self.on_unclaimed(message)
        return True


async def next_data(websocket: aiohttp.ClientWebSocketResponse) -> bytes | None:
    """Returns the data of the next frame that is neither a ping, which is answered, nor a pong; None after the last.

    Raises:
        GatewayError: If the frame can't be a message. It has disconnected: `close` would read all that has arrived,
            which can be 100,000 empty frames, in one turn of the event loop.
    """
    while (frame := await websocket.receive()).type in (aiohttp.WSMsgType.PING, aiohttp.WSMsgType.PONG):
        if frame.type is aiohttp.WSMsgType.PING:
            with suppress(aiohttp.ClientError, OSError):  # the connection is lost, as the next frame says
                await websocket.pong(frame.data)
        await asyncio.sleep(PAUSE)
    if frame.type in CLOSED:
        return None
    if frame.type is aiohttp.WSMsgType.BINARY and len(frame.data) >= MIN_FRAME_BYTES:
        return frame.data
    websocket._response.close()  # pyright: ignore[reportPrivateUsage]
    if frame.type is not aiohttp.WSMsgType.ERROR:
        raise GatewayError("the kernel gateway sent a frame that can't be a message, so ipybox closed the connection")
    if isinstance(frame.data, aiohttp.WebSocketError) and frame.data.code == aiohttp.WSCloseCode.MESSAGE_TOO_BIG:
        raise GatewayError(
            f"the kernel sent a message larger than {format_bytes(MAX_MESSAGE_BYTES)}, so ipybox closed the "
            "connection: print less in one call, or write to a file"
        )
    return None


async def acknowledge(
    websocket: aiohttp.ClientWebSocketResponse, received: asyncio.Event, expecting: Callable[[], bool]
) -> None:
    """Sends a pong soon after each message, until it is cancelled or the connection ends.

    With Nagle's algorithm, which srun and slurmstepd leave enabled, a small write waits until earlier data is
    acknowledged: after 40 ms, or with the next data in the other direction, such as an unsolicited pong. Most cells
    end with several small messages. https://www.rfc-editor.org/rfc/rfc6455#section-5.5.3

    Args:
        received: Set when a message has arrived.
        expecting: Returns whether more messages are expected.
    """
    with suppress(aiohttp.ClientError, OSError):  # the reader notices that the connection is lost
        while True:
            await received.wait()
            await asyncio.sleep(ACKNOWLEDGMENT_PAUSE)
            received.clear()
            if expecting():
                await websocket.pong()
