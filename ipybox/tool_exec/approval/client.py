"""The application's end of the approval channel."""

import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Self

import aiohttp

from ipybox.endpoint import Endpoint
from ipybox.printable import printable
from ipybox.tasks import TaskSet
from ipybox.tool_exec.approval.protocol import (
    APPROVE_METHOD,
    OTHER_CLIENT,
    ApproveRequest,
    Rejection,
    decision,
    failure,
)
from ipybox.tool_exec.protocol import APPROVAL_PATH, DEFAULT_PORT

logger = logging.getLogger(__name__)


#: Who decides on calls if nobody else is named.
APPLICATION = "application"


class ApprovalRequest:
    """A tool call that the application accepts or rejects.

    Attributes:
        server_name: Name of the MCP server that has the tool.
        tool_name: Name of the tool.
        tool_args: The exact arguments of the call.
        server_params: What starts or reaches the server, with unresolved `${VAR}` placeholders, if known.
        output_mark: The mark in the kernel's output before which stands what was put out before the call, 0 for none.
        decided_by: Who or what has decided, and why it has accepted, for the audit log.
    """

    def __init__(
        self,
        server_name: str,
        tool_name: str,
        tool_args: dict[str, Any],
        respond: Callable[[bool | Rejection], Awaitable[bool]],
        server_params: dict[str, Any] | None = None,
        output_mark: int = 0,
    ):
        self.server_name = server_name
        self.tool_name = tool_name
        self.tool_args = tool_args
        self.server_params = server_params
        self.output_mark = output_mark
        self.decided_by: tuple[str, str | None] = (APPLICATION, None)
        self._respond = respond

    async def accept(self, *, by: str = APPLICATION, because: str | None = None) -> bool:
        """Lets the tool run, and returns whether the decision counts.

        It does not if the request has expired, was decided before, or its code has ended: then nothing ran, or what was
        decided first did. An `ApprovalClient` can't know that: its decisions count as far as it is connected.

        Args:
            by: Who or what decides, for the audit log.
            because: Why, for the audit log.
        """
        self.decided_by = (by, because)
        return await self._respond(True)

    async def reject(self, reason: str | None = None, *, by: str = APPLICATION) -> bool:
        """Makes the call fail in the kernel, with the reason if one is given; returns what `accept` does.

        Args:
            reason: Why.
            by: Who or what decides, for the audit log.
        """
        self.decided_by = (by, None)
        return await self._respond(False if reason is None else Rejection(reason))

    def __str__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.tool_args.items())
        return printable(f"{self.server_name}.{self.tool_name}({arguments})")

    def __repr__(self) -> str:
        return f"ApprovalRequest({self})"


ApprovalCallback = Callable[[ApprovalRequest], Awaitable[object]]


class ApprovalClient:
    """Passes approval requests of a tool server to a callback, each in a task of its own.

    The callback must accept or reject its request, then or later. If it raises, the call fails with that reason.

    Args:
        callback: Asynchronous function that is called with each request.
        host: Host of the tool server.
        port: Port of the tool server.
        endpoint: The tool server's private endpoint (`ToolServer.endpoint`), instead of host and port.
    """

    def __init__(
        self,
        callback: ApprovalCallback,
        host: str = "localhost",
        port: int = DEFAULT_PORT,
        *,
        endpoint: Endpoint | None = None,
    ):
        self._callback = callback
        self._endpoint = endpoint or Endpoint("tool-server", host, port)
        self._session: aiohttp.ClientSession | None = None
        self._websocket: aiohttp.ClientWebSocketResponse | None = None
        self._tasks = TaskSet()

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.disconnect()

    async def connect(self) -> None:
        """Connects to the tool server.

        Raises:
            RuntimeError: If already connected, or the tool server can't be reached or refuses.
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
            raise RuntimeError(f"can't connect to the approval channel of {self._endpoint.url}: {reason}") from exc
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
        async for frame in websocket:
            if frame.type is aiohttp.WSMsgType.TEXT:
                message: ApproveRequest = json.loads(frame.data)
                if message["method"] == APPROVE_METHOD:
                    self._tasks.start(self._decide(websocket, message))

    async def _decide(self, websocket: aiohttp.ClientWebSocketResponse, message: ApproveRequest) -> None:
        async def respond(outcome: bool | Rejection) -> bool:
            await websocket.send_json(decision(message["id"], outcome))
            return True

        params = message["params"]
        request = ApprovalRequest(**params, respond=respond)
        try:
            await self._callback(request)
        except Exception as exc:
            logger.exception("the approval callback failed on %s", request)
            with suppress(ConnectionError):  # then the call has failed already
                await websocket.send_json(failure(message["id"], f"{type(exc).__name__}: {exc}"))
