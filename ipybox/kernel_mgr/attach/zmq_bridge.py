"""A connection file for clients that speak ZeroMQ, such as `jupyter console`, to the kernel of a `KernelRelay`.

    jupyter console ── ZeroMQ, Unix sockets in a private directory ── ZMQBridge ── WebSocket ── KernelRelay

It runs in the process of `ipybox attach`, as one more client of the relay. It is connected only while clients are.
"""

import asyncio
import hashlib
import hmac
import json
import logging
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import aiohttp
import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from ipybox.guest.protocol import MAX_MESSAGE_BYTES
from ipybox.kernel_mgr.attach.frames import CHANNELS, encode_frame
from ipybox.support.private_file import replace_private
from ipybox.support.tasks import TaskSet
from ipybox.support.tokens import new_token

logger = logging.getLogger(__name__)

#: Separates the addresses of a message from its parts.
#: https://jupyter-client.readthedocs.io/en/stable/messaging.html#the-wire-protocol
DELIMITER = b"<IDS|MSG>"

#: The numbers in the names of the sockets, in place of ports.
PORTS = {"shell": 1, "iopub": 2, "stdin": 3, "hb": 4, "control": 5}


class ZMQBridge:
    """Serves ZeroMQ clients while the context is open.

    Args:
        url: The address of the relay.
        token: Its token.
        directory: A private directory with a short path, for the sockets.
        connection_file: The file to write, which clients need; removed at the end.
    """

    def __init__(self, url: str, token: str, directory: Path, connection_file: Path):
        self._url = f"{url}/api/kernels"
        self._headers = {"Authorization": f"token {token}"}
        self._sockets_path = directory / "k"
        self._connection_file = connection_file
        self._key = new_token()
        self._context = zmq.asyncio.Context()
        self._sockets: dict[str, Any] = {}
        self._tasks = TaskSet()
        self._clients = 0
        self._connecting = asyncio.Lock()
        self._websocket: aiohttp.ClientWebSocketResponse | None = None

    async def __aenter__(self) -> Self:
        # No proxy of the environment: the relay is on this machine.
        self._http = aiohttp.ClientSession(headers=self._headers)
        for channel, kind in (*((name, zmq.ROUTER) for name in CHANNELS), ("iopub", zmq.PUB), ("hb", zmq.REP)):
            sock = self._sockets[channel] = self._context.socket(kind)
            sock.bind(f"ipc://{self._sockets_path}-{PORTS[channel]}")
        self._tasks.start(self._count_clients(self._sockets["shell"].get_monitor_socket()))
        self._tasks.start(self._answer_heartbeats())
        for channel in CHANNELS:
            self._tasks.start(self._take_requests(channel))
        self._connection_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_private(self._connection_file, json.dumps(self._connection_info()))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._connection_file.unlink(missing_ok=True)
        await self._tasks.cancel()
        await self._disconnect()
        await self._http.close()
        self._context.destroy(linger=0)

    def _connection_info(self) -> dict[str, Any]:
        ports = {f"{channel}_port": number for channel, number in PORTS.items()}
        return {
            "transport": "ipc",
            "ip": str(self._sockets_path),
            "key": self._key,
            "signature_scheme": "hmac-sha256",
            "kernel_name": "python3",
            **ports,
        }

    async def _count_clients(self, monitor: Any) -> None:
        """Disconnects from the relay when the last client has gone."""
        while True:
            event = parse_monitor_message(await monitor.recv_multipart())["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._clients += 1
            elif event == zmq.EVENT_DISCONNECTED:
                self._clients = max(0, self._clients - 1)
                if self._clients == 0:
                    await self._disconnect()

    async def _answer_heartbeats(self) -> None:
        sock = self._sockets["hb"]
        while True:
            await sock.send(await sock.recv())

    async def _take_requests(self, channel: str) -> None:
        while True:
            parts: list[bytes] = await self._sockets[channel].recv_multipart()
            try:
                text = self._frame(channel, parts)
            except ValueError as exc:
                logger.warning("ignored a message that is not from a client with the connection file: %s", exc)
                continue
            try:
                await (await self._connected()).send_str(text)
            except (aiohttp.ClientError, OSError) as exc:
                logger.warning("a request does not reach the kernel: %s", exc)

    def _frame(self, channel: str, parts: list[bytes]) -> str:
        """Returns a message of a client as JSON.

        Raises:
            ValueError: If it is not signed with the key, or has another form.
        """
        signature, header, parent, metadata, content = parts[parts.index(DELIMITER) + 1 :][:5]
        if not hmac.compare_digest(signature, self._signature([header, parent, metadata, content])):
            raise ValueError("its signature is wrong")
        return encode_frame(channel, json.loads(header), json.loads(parent), json.loads(content))

    def _signature(self, parts: list[bytes]) -> bytes:
        signature = hmac.new(self._key.encode(), digestmod=hashlib.sha256)
        for part in parts:
            signature.update(part)
        return signature.hexdigest().encode()

    async def _connected(self) -> aiohttp.ClientWebSocketResponse:
        """Returns the connection to the relay, and opens it for the first request."""
        async with self._connecting:
            if self._websocket is None or self._websocket.closed:
                async with self._http.get(self._url, raise_for_status=True) as response:
                    kernel_id = (await response.json())[0]["id"]
                address = f"{self._url}/{kernel_id}/channels"
                self._websocket = await self._http.ws_connect(address, max_msg_size=MAX_MESSAGE_BYTES)
                self._tasks.start(self._pass_on_outputs(self._websocket))
            return self._websocket

    async def _disconnect(self) -> None:
        async with self._connecting:
            if self._websocket is not None:
                websocket, self._websocket = self._websocket, None
                await websocket.close()

    async def _pass_on_outputs(self, websocket: aiohttp.ClientWebSocketResponse) -> None:
        async for frame in websocket:
            if frame.type is aiohttp.WSMsgType.TEXT:
                await self._pass_on(json.loads(frame.data))

    async def _pass_on(self, message: dict[str, Any]) -> None:
        names = ("header", "parent_header", "metadata", "content")
        parts = [json.dumps(message[name]).encode() for name in names]
        channel: str = message["channel"]
        # The address of a client is the id of its Jupyter session.
        address = f"kernel.{message['msg_type']}" if channel == "iopub" else message["parent_header"].get("session", "")
        with suppress(zmq.ZMQError):  # the client has gone
            await self._sockets[channel].send_multipart([address.encode(), DELIMITER, self._signature(parts), *parts])
