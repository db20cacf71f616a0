"""A kernel of another Jupyter server, with the bridge for tool calls, across lost connections.

It is created on the server, or is one that runs there already. If the connection is lost, another one is opened to the
same kernel. Messages may be missing then: the end of an execution is found by a request that the kernel handles after
it, and calls and results are sent again.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import aiohttp

from ipybox.jupyter_engine.bridge import KernelBridge
from ipybox.jupyter_engine.guest_files import Archive, GuestFiles
from ipybox.kernel_mgr import messages
from ipybox.kernel_mgr.execution import Execution
from ipybox.kernel_mgr.kernel_channels import MessageListener
from ipybox.kernel_mgr.remote_kernel import RemoteKernel
from ipybox.support.deadline import Deadline
from ipybox.support.endpoint import Endpoint
from ipybox.support.errors import ExecutionError, GatewayError, KernelDiedError, VariableError
from ipybox.support.sizes import format_bytes
from ipybox.support.tasks import TaskSet

logger = logging.getLogger(__name__)

#: Seconds between pings that detect a lost connection.
HEARTBEAT = 10.0

#: Seconds for a lost connection to be opened again, and between tries.
RECONNECT_TIMEOUT = 30.0
RECONNECT_INTERVAL = 0.5

#: Bytes of the variables that a cell can have: servers accept 10 MiB in a message, code and environment included.
MAX_VARIABLE_BYTES = 8 << 20

#: The oldest Python in which generated packages run.
MIN_PYTHON = (3, 11)

END_LOST = (
    "its end was lost with the connection to the kernel: the code has run, or was interrupted, and the kernel keeps "
    "its state"
)

#: How to have the server pass on all output.
LIMIT_HINT = (
    "the Jupyter server drops output of more than 3 MB, or 3,000 messages, in 3 seconds, and tool calls with it: start "
    "the server with --ZMQChannelsWebsocketConnection.limit_rate=False"
)


class ServerRefusalError(GatewayError):
    """The server refused a WebSocket. aiohttp's own error would contain the token.

    Args:
        status: The HTTP status.
    """

    def __init__(self, status: int):
        super().__init__(f"the server refused the connection to the kernel: HTTP {status}")
        self.status = status


class ServerKernel(RemoteKernel):
    """A kernel of another Jupyter server.

    Args:
        endpoint: The address of the server.
        name: The name of the kernel specification for new kernels.
        env: Environment variables for the kernel.
        init_timeout: Seconds in which a kernel must answer.
        adopted: The id of a kernel to use first, which runs already; None to create one.
        files: The files that code in the kernel imports.
        accept: Passes a connection of the kernel to the tool server.
        token: The kernel's token there.
        notices: Gets sentences for the session.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        name: str,
        env: Mapping[str, str],
        *,
        init_timeout: float,
        adopted: str | None,
        files: GuestFiles,
        accept: Callable[[socket.socket], object],
        token: str,
        notices: Callable[[str], object],
    ):
        super().__init__(endpoint, None, heartbeat=HEARTBEAT, init_timeout=init_timeout)
        self._specification = {"name": name}
        self._creation_timeout = init_timeout  # a scheduler may need a while for its process
        self._env = env
        self._adopted = adopted
        #: Whether the adopted kernel was used, so that the next one is a new one.
        self._obtained = False
        self._files = files
        self._new_bridge = lambda: KernelBridge(self.channels, accept, token)
        self._bridge: KernelBridge | None = None
        self._note = notices
        self._jupyter_session = ""
        self._tasks = TaskSet()

    def death(self) -> str:
        """Returns why there is no kernel or, if there is one, why an execution in it ended without its result."""
        return END_LOST if self.alive else super().death()

    def check_attachable(self) -> None:
        """Raises a RuntimeError: the server has an interface for people."""
        raise RuntimeError("people join a kernel of a Jupyter server there, not through ipybox")

    async def connect(self, jupyter_session: str) -> aiohttp.ClientWebSocketResponse:
        """Returns a WebSocket with the kernel's channels, for a new or lost Jupyter session.

        Raises:
            GatewayError, aiohttp.ClientError, OSError: If it can't be opened.
        """
        try:
            return await super().connect(jupyter_session)
        except aiohttp.WSServerHandshakeError as exc:
            status = exc.status
        raise ServerRefusalError(status)  # not in the `except`, so that it has no context

    async def prepare(self) -> None:
        """Sends files that have changed.

        Raises:
            ExecutionError: If they can't be sent.
            KernelDiedError: If there is no kernel.
        """
        if self._bridge is not None:
            await self._send_files(self._bridge)

    async def request(
        self, msg_type: str, content: dict[str, Any], listener: MessageListener, buffers: Sequence[bytes] = ()
    ) -> str:
        """Sends a request as `RemoteKernel.request` does.

        Raises:
            KernelDiedError: If there is no kernel.
            VariableError: If there are more variables than the server accepts in a message.
        """
        if (size := sum(map(len, buffers))) > MAX_VARIABLE_BYTES:
            raise VariableError(
                f"the variables have {format_bytes(size)}; {format_bytes(MAX_VARIABLE_BYTES)} is all that can be sent "
                "to a kernel of a Jupyter server with a cell"
            )
        return await super().request(msg_type, content, listener, buffers)

    async def release(self, reason: str) -> None:
        """Ends the kernel, if this has created it; else only the connection to it."""
        if self.id is not None and self.id == self._adopted:
            self.id = None
        await super().release(reason)

    async def delete(self, reason: str) -> None:
        """Ends the kernel, if there is one, also if it was adopted."""
        bridge, self._bridge = self._bridge, None
        if bridge is not None:
            await bridge.close()
        await self._tasks.cancel()
        await super().delete(reason)
        if self.gateway.lost and self._to_delete:
            logger.warning("kernels that could not be ended may still run on the server: %s", self._to_delete)

    async def replace(self, reason: str) -> None:
        """Ends the kernel, and then creates another one, because both need the connection, bridge and files of it."""
        await self.delete(reason)
        self._check_gateway()
        await self.create()

    async def _obtain(self) -> str:
        """Returns the id of the kernel to use: at first the adopted one, if there is one."""
        if self._adopted is None or self._obtained:
            return await super()._obtain()
        try:
            await self.gateway.call("GET", f"/api/kernels/{self._adopted}")
        except GatewayError as exc:
            raise GatewayError(f"can't use the kernel with kernel_id={self._adopted!r}: {exc}") from exc
        self._obtained = True
        return self._adopted

    async def _join(self, jupyter_session: str) -> None:
        self._jupyter_session = jupyter_session
        websocket = await self.connect(jupyter_session)
        if websocket.protocol != messages.SUBPROTOCOL:
            await websocket.close()
            raise GatewayError(
                f"the server does not speak {messages.SUBPROTOCOL}: it must be Jupyter Server 2 or later"
            )
        self.channels.open(websocket, jupyter_session, self._reopen)
        await self._until_ready()
        bridge = self._new_bridge()
        try:
            await self._install(bridge)
        except ExecutionError as exc:
            await bridge.close()
            raise GatewayError(f"it is not a kernel of ipykernel, or can't be set up: {exc}") from exc
        except BaseException:
            await bridge.close()
            raise
        self._bridge = bridge

    async def _install(self, bridge: KernelBridge) -> None:
        execution = Execution()
        content = messages.execute_request(bridge.installation())
        execution.msg_id = await super().request("execute_request", content, execution)
        try:
            await execution.ended.wait()
        finally:
            self.channels.forget(execution.msg_id)
        execution.check(None, self.death)
        info = await bridge.set_up(self._env)
        if info.python < MIN_PYTHON:
            raise GatewayError(
                f"it runs Python {'.'.join(map(str, info.python))}, but ipybox needs 3.11 or later there"
            )
        if not await bridge.output_arrives():
            raise GatewayError(LIMIT_HINT)
        archive = await self._send_files(bridge)
        if archive.has_packages and not info.has_pydantic:
            self._note(f"Generated packages can't be imported in the kernel on {info.host}: it needs pydantic there.")

    async def _send_files(self, bridge: KernelBridge) -> Archive:
        try:
            archive = await asyncio.to_thread(self._files.archive)
            await bridge.send_files(archive)
            return archive
        except (OSError, GatewayError) as exc:
            raise ExecutionError(f"the generated packages could not be sent to the kernel: {exc}") from exc

    async def _reopen(self) -> aiohttp.ClientWebSocketResponse | None:
        """Opens the connection again; returns None if that fails."""
        death, self.channels.death = self.channels.death, "the connection to the Jupyter server was lost"
        logger.warning("the connection to kernel %s was lost: connecting again", self.id)
        with suppress(TimeoutError):
            async with Deadline(RECONNECT_TIMEOUT).limit():
                while True:
                    try:
                        websocket = await self.connect(self._jupyter_session)
                    except ServerRefusalError as exc:
                        if exc.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                            self.channels.death = f"{death}, and the connection to it was lost"
                            return None
                    except (GatewayError, aiohttp.ClientError, OSError) as exc:
                        logger.debug("can't connect again: %s", exc)
                    else:
                        self.channels.death = death
                        self._tasks.start(self._resume())
                        return websocket
                    await asyncio.sleep(RECONNECT_INTERVAL)
        await self.gateway.probe()
        self.channels.death = (
            f"the connection to the Jupyter server was lost and could not be opened again within "
            f"{RECONNECT_TIMEOUT:g} s. The kernel may still run there, with the id {self.id}"
        )
        return None

    async def _resume(self) -> None:
        """Finds out what was lost with a connection, and has the wait end for what will not come."""
        earlier = self.channels.pending()
        bridge = self._bridge
        try:
            if bridge is not None and not await bridge.has_state():
                await self.channels.end("the kernel was restarted while the connection to it was lost")
                return
            if bridge is not None:
                bridge.calls.resend()
            barrier = _Barrier()
            msg_id = await super().request("kernel_info_request", {}, barrier)
        except KernelDiedError:
            return
        try:
            await barrier.passed.wait()  # the kernel answers when it has handled all earlier requests
        finally:
            self.channels.forget(msg_id)
        for request in earlier:
            self.channels.lose(request)


class _Barrier:
    """Waits until a request was handled completely, and with it all earlier ones."""

    def __init__(self) -> None:
        self.passed = asyncio.Event()
        self._replied = self._idle = False

    def take(self, message: messages.Message) -> None:
        """Processes the next message."""
        if message.type == "kernel_info_reply":
            self._replied = True
        elif message.type == "status" and message.content.get("execution_state") == "idle":
            self._idle = True
        if self._replied and self._idle:
            self.passed.set()

    def lose(self) -> None:
        """Notes that no more messages will arrive."""
        self.passed.set()
