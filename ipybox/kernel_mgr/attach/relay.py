"""Lets a person's Jupyter clients use one running kernel, over a loopback port with a token.

    JupyterLab, VS Code ── HTTP, WebSocket ── KernelRelay ── WebSocket ── kernel gateway ── kernel
                           token                             private socket

Clients see a Jupyter server with one running kernel. The relay answers their requests itself: only kernel messages and
interrupts reach the gateway. A client that starts a kernel joins this one, because JupyterLab uses only gateway kernels
that it started. Clients can't restart the kernel, and a client that shuts it down only disconnects.
"""

import asyncio
import hmac
import logging
import uuid
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web

from ipybox.kernel_mgr import messages
from ipybox.kernel_mgr.attach.client_messages import encode_frame, models, request_for_kernel, shown_content
from ipybox.kernel_mgr.kernel_channels import PAUSE, next_data
from ipybox.kernel_mgr.remote_kernel import RemoteKernel
from ipybox.support.bounded_json import LARGE_BYTES
from ipybox.support.errors import GatewayError
from ipybox.support.limited_server import LimitedServer
from ipybox.support.listen import is_local
from ipybox.support.tasks import TaskSet, until_one_ends
from ipybox.support.tokens import new_token

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"

#: Seconds between pings that detect lost clients.
HEARTBEAT = 30.0

#: Maximum bytes of a client's message.
MAX_CLIENT_MESSAGE = 16 << 20

#: Maximum connections without a valid request, and seconds until each is closed.
MAX_UNAUTHENTICATED = 32
AUTH_TIMEOUT = 10.0

#: Seconds until requests are cancelled when the port is closed.
SHUTDOWN_GRACE = 1.0


class KernelRelay:
    """Serves one kernel on a loopback port, from `start` until `close` or the end of the kernel.

    Args:
        name: The name that clients show.
        confined: Whether the kernel runs in a sandbox. Clients then get text and images only.
        on_presence: Called with True when the first client connects, and with False when the last one disconnects.
    """

    def __init__(
        self,
        kernel: RemoteKernel,
        name: str,
        *,
        confined: bool,
        on_presence: Callable[[bool], None],
    ):
        assert kernel.id is not None
        self._kernel = kernel
        #: The id of the kernel.
        self.kernel_id = kernel.id
        self._confined = confined
        self._on_presence = on_presence
        self._clients: set[web.WebSocketResponse] = set()
        self._runner: web.ServerRunner | None = None
        self._server: LimitedServer | None = None
        self._tasks = TaskSet()
        self._models = models(self.kernel_id, name)
        self.token = new_token()
        self.port = 0
        #: Why clients can't connect anymore.
        self.end_reason = "it was closed"
        #: Set when clients can't connect anymore.
        self.ended = asyncio.Event()

    @property
    def url(self) -> str:
        """The address of the Jupyter server that clients see."""
        return f"http://{HOST}:{self.port}"

    def instructions(self) -> str:
        """Returns instructions for connecting Jupyter clients."""
        return "\n".join(
            [
                "JupyterLab (every new notebook or console uses this kernel):",
                f"  JUPYTER_GATEWAY_URL={self.url} JUPYTER_GATEWAY_AUTH_TOKEN={self.token} jupyter lab",
                "VS Code: Select Kernel > Existing Jupyter Server, then choose the running kernel",
                f"  {self.url}/?token={self.token}",
            ]
        )

    async def start(self) -> None:
        """Starts listening.

        Raises:
            OSError: If there is no free port.
        """
        server = self._server = LimitedServer(
            self._handle, MAX_UNAUTHENTICATED, AUTH_TIMEOUT, handler_cancellation=True, auto_decompress=False
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=SHUTDOWN_GRACE)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, HOST, 0).start()
        except BaseException:
            await self._runner.cleanup()
            raise
        self.port = self._runner.addresses[0][1]
        self._kernel.channels.on_end.add(self._end)
        if not self._kernel.channels.alive:
            self._end(self._kernel.channels.death)

    async def close(self) -> None:
        """Disconnects all clients and closes the port."""
        self._kernel.channels.on_end.discard(self._end)
        self._end("it was closed")
        await self._tasks.cancel()
        assert self._runner is not None
        await self._runner.cleanup()

    def _end(self, reason: str) -> None:
        if self.ended.is_set():
            return
        self.end_reason = reason.removesuffix(" while the code ran")
        self.ended.set()
        for client in tuple(self._clients):
            self._tasks.start(_close(client))
        assert self._runner is not None
        for site in tuple(self._runner.sites):
            self._tasks.start(site.stop())

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if (refused := _refusal(request, self.token)) is not None:
            return _error(*refused)
        assert self._server is not None
        self._server.admit(request.protocol)
        kernel, session = f"/api/kernels/{self.kernel_id}", f"/api/sessions/{self.kernel_id}"
        path = request.path
        # JupyterLab shuts down its kernels when it exits; if that fails, it never exits.
        if request.method == "DELETE" and path in (kernel, session):
            return web.Response(status=204)
        # A keep-alive connection may outlive the kernel, which may have been replaced.
        if self.ended.is_set():
            return _error(410, f"the kernel is gone: {self.end_reason}")
        if (model := self._models.get((request.method, path))) is not None:
            return web.json_response(model, status=201 if request.method == "POST" else 200)
        match request.method, path.removeprefix(kernel):
            case "POST", "/interrupt":
                return await self._interrupt()
            case "GET", "/channels":
                return await self._channels(request)
            case "POST", "/restart":
                return _error(403, "only the agent's `reset` tool can replace this kernel: to leave, disconnect")
            case _:
                return _error(
                    404 if request.method == "GET" else 403, "this server only gives access to the running kernel"
                )

    async def _interrupt(self) -> web.Response:
        try:
            await self._kernel.interrupt()
        except (GatewayError, aiohttp.ClientError, OSError) as exc:
            return _error(502, f"the kernel can't be interrupted: {exc}")
        return web.Response(status=204)

    async def _channels(self, request: web.BaseRequest) -> web.StreamResponse:
        """Relays one client's messages until the client or the kernel is gone."""
        client = web.WebSocketResponse(heartbeat=HEARTBEAT, max_msg_size=MAX_CLIENT_MESSAGE)
        self._clients.add(client)
        if len(self._clients) == 1:
            self._on_presence(True)
        try:
            # A new id, because the gateway disconnects any other client with the same id.
            kernel = await self._kernel.connect(uuid.uuid4().hex)
            try:
                await client.prepare(request)
                await until_one_ends(self._send_requests(client, kernel), self._send_outputs(kernel, client))
            finally:
                with suppress(TimeoutError):  # the gateway may send for ever
                    async with asyncio.timeout(SHUTDOWN_GRACE):
                        await kernel.close()
                await client.close()
        except (GatewayError, aiohttp.ClientError, OSError) as exc:
            if not client.prepared:
                return _error(502, f"can't connect to the kernel: {exc}")
            logger.debug("a client's connection has ended: %s", exc)
        finally:
            self._clients.discard(client)
            if not self._clients:
                self._on_presence(False)
        return client

    async def _send_requests(self, client: web.WebSocketResponse, kernel: aiohttp.ClientWebSocketResponse) -> None:
        async for frame in client:
            if frame.type is not aiohttp.WSMsgType.TEXT:
                continue  # widget buffers, which the JSON format can't carry
            try:
                msg_id, msg_type, data = request_for_kernel(frame.data)
            except ValueError as exc:
                logger.debug("ignored a frame from a client: %s", exc)
                continue
            if msg_type == "execute_request":
                self._kernel.channels.begin_client_cell(msg_id)
            try:
                await kernel.send_bytes(data)
            except BaseException:
                self._kernel.channels.end_client_cell(msg_id)
                raise

    async def _send_outputs(self, kernel: aiohttp.ClientWebSocketResponse, client: web.WebSocketResponse) -> None:
        while (data := await next_data(kernel)) is not None:
            text = await asyncio.to_thread(self._shown, data) if len(data) > LARGE_BYTES else self._shown(data)
            await (asyncio.sleep(PAUSE) if text is None else client.send_str(text))

    def _shown(self, data: bytes) -> str | None:
        """Returns the frame for a client that shows a kernel's message; None if there is none."""
        with suppress(ValueError, RecursionError):  # code in the kernel can send any message
            message = messages.decode(data)
            content = shown_content(message, confined=self._confined)
            if content is not None:
                return encode_frame(message.channel, message.header, message.parent_header, content)
        return None


async def _close(client: web.WebSocketResponse) -> None:
    if client.prepared:
        await client.close(code=aiohttp.WSCloseCode.GOING_AWAY)


def _error(status: int, message: str) -> web.Response:
    """Returns an error response that Jupyter clients show."""
    return web.json_response({"message": message, "reason": message}, status=status)


def _refusal(request: web.BaseRequest, token: str) -> tuple[int, str] | None:
    """Returns the HTTP status and reason for refusing a request; None if it is accepted.

    Clients send `Authorization: token <token>` (or `Bearer`), or add `?token=` to the URL.
    """
    if not is_local(request.host) or not _is_local_origin(request.headers.get("Origin")):
        return 403, "requests from web pages are refused"
    if not hmac.compare_digest(_presented(request).encode(errors="replace"), token.encode()):
        return 401, "the token is missing or wrong"
    return None


def _presented(request: web.BaseRequest) -> str:
    scheme, _, credentials = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() in ("token", "bearer"):
        return credentials.strip()
    return request.query.get("token", "")


def _is_local_origin(origin: str | None) -> bool:
    try:
        return origin is None or is_local(urlsplit(origin).netloc)
    except ValueError:
        return False
