"""The application's end of the approval channel."""

import json
from http import HTTPStatus
from typing import Any, Self

import aiohttp

from ipybox.audit.records import ApprovalDecision
from ipybox.guest.tools.protocol import APPROVAL_PATH, DEFAULT_PORT
from ipybox.support.endpoint import Endpoint
from ipybox.support.tasks import TaskSet
from ipybox.tool_exec.approval.protocol import (
    APPROVE_METHOD,
    DECIDED_METHOD,
    DISCONNECTED,
    OTHER_CLIENT,
    answer,
    ended,
    received_request,
)
from ipybox.tool_exec.approval.request import ApprovalCallback, ApprovalRequest, ask

__all__ = ["ApprovalClient", "ApprovalRequest"]


class ApprovalClient:
    """Passes approval requests of a tool server to a callback, each in its own task.

    The callback must accept or reject its request, immediately or later. If it raises, the call fails with that reason.
    It is cancelled if the request ends without a decision.

    Args:
        callback: Asynchronous function that is called with each request.
        host: Host of the tool server.
        port: Port of the tool server.
    """

    def __init__(self, callback: ApprovalCallback, host: str = "localhost", port: int = DEFAULT_PORT):
        self._callback = callback
        self._endpoint = Endpoint("tool-server", host, port)
        self._session: aiohttp.ClientSession | None = None
        self._websocket: aiohttp.ClientWebSocketResponse | None = None
        self._tasks = TaskSet()
        #: Requests that have not ended, by id.
        self._pending: dict[str, ApprovalRequest] = {}

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.disconnect()

    async def connect(self) -> None:
        """Connects to the tool server.

        Raises:
            RuntimeError: If already connected, or the tool server can't be reached or rejects the connection.
        """
        if self._session is not None:
            raise RuntimeError("the approval client is already connected")
        self._session = self._endpoint.session()
        try:
            self._websocket = await self._session.ws_connect(APPROVAL_PATH, max_msg_size=0)
        except (aiohttp.ClientError, OSError) as exc:
            await self.disconnect()
            conflict = isinstance(exc, aiohttp.WSServerHandshakeError) and exc.status == HTTPStatus.CONFLICT
            reason = OTHER_CLIENT if conflict else exc
            raise RuntimeError(f"can't connect to the approval channel at {self._endpoint.url}: {reason}") from exc
        self._tasks.start(self._read(self._websocket))

    async def disconnect(self) -> None:
        """Disconnects from the tool server; requests without a decision fail."""
        if self._websocket is not None:
            websocket, self._websocket = self._websocket, None
            await websocket.close()
        await self._tasks.cancel()
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def _read(self, websocket: aiohttp.ClientWebSocketResponse) -> None:
        try:
            while isinstance(text := (await websocket.receive()).data, str):
                message = json.loads(text)
                if message["method"] == APPROVE_METHOD:
                    self._ask(websocket, message)
                elif message["method"] == DECIDED_METHOD:
                    self._pending.pop(message["params"]["id"]).settle(*ended(message))
        finally:
            for request in self._pending.values():
                request.settle("cancelled", DISCONNECTED)
            self._pending.clear()

    def _ask(self, websocket: aiohttp.ClientWebSocketResponse, message: dict[str, Any]) -> None:
        async def respond(decision: ApprovalDecision) -> None:
            await websocket.send_json(answer(request.id, decision))
            await request.decided()  # the server decides whether the answer came in time

        request = received_request(message, respond)
        self._pending[request.id] = request
        self._tasks.start(ask(self._callback, request))
