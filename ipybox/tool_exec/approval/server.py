"""The tool server's end of the approval channel."""

import asyncio
import json
import logging
import uuid
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, web

from ipybox.errors import ToolRunnerError
from ipybox.tool_exec.approval.client import APPLICATION, ApprovalCallback, ApprovalRequest
from ipybox.tool_exec.approval.protocol import (
    OTHER_CLIENT,
    ApproveParams,
    Decided,
    Rejection,
    approve_request,
    parse_answer,
)

logger = logging.getLogger(__name__)

_Deliver = Callable[[str, ApproveParams], Awaitable[None]]


class ApprovalChannel:
    """Asks one approver to decide on tool calls: a connected `ApprovalClient`, or a callback in this process.

    Decisions may come in any order. A request that is cancelled, or expires, is forgotten: a late answer has no
    effect.

    Args:
        approval_required: If False, every call is approved without asking.
        approval_timeout: Seconds until a request expires; None for never.
    """

    def __init__(self, approval_required: bool = False, approval_timeout: float | None = 60):
        self.approval_required = approval_required
        self.approval_timeout = approval_timeout
        self._websocket: web.WebSocketResponse | None = None
        self._deliver: _Deliver | None = None
        self._pending: dict[str, asyncio.Future[Decided]] = {}
        self._disconnected = asyncio.Event()
        self._disconnected.set()

    @property
    def open(self) -> bool:
        """Whether there is an approver."""
        return self._deliver is not None

    async def connect(self, websocket: web.WebSocketResponse) -> None:
        """Takes decisions from a prepared WebSocket until it closes.

        A second client is turned away while there is one: it must not take over decisions of the first.
        """
        if self.open:
            await websocket.close(code=WSCloseCode.POLICY_VIOLATION, message=OTHER_CLIENT.encode())
            return

        async def send(request_id: str, params: ApproveParams) -> None:
            await websocket.send_json(approve_request(request_id, params))

        self._websocket, self._deliver = websocket, send
        self._disconnected.clear()
        try:
            async for frame in websocket:
                if frame.type is WSMsgType.TEXT:
                    self._decide(frame.data)
        finally:
            self._websocket = self._deliver = None
            self._fail_pending()
            self._disconnected.set()

    @contextmanager
    def attached(self, callback: ApprovalCallback) -> Generator[None]:
        """Asks a callback of this process, which is spared the WebSocket.

        The callback decides on the request, then or later; it is cancelled when the request expires. If it raises, the
        call fails with that reason.
        """

        async def ask(request_id: str, params: ApproveParams) -> None:
            async def respond(outcome: bool | Rejection) -> bool:
                return self._settle(request_id, outcome, *request.decided_by)

            request = ApprovalRequest(**params, respond=respond)
            try:
                await callback(request)
            except Exception as exc:  # the application's own, whatever it is
                logger.exception("the approval callback failed on %s", request)
                self._settle(request_id, f"{type(exc).__name__}: {exc}")

        assert not self.open
        self._deliver = ask
        try:
            yield
        finally:
            self._deliver = None
            self._fail_pending()

    async def disconnect(self) -> None:
        """Closes the connection to the approval client; requests that wait for it fail."""
        if self._websocket is not None:
            await self._websocket.close(code=WSCloseCode.GOING_AWAY)
        self._fail_pending()

    async def join(self, timeout: float = 5) -> None:
        """Waits until no approval client is connected.

        Raises:
            TimeoutError: After `timeout` seconds.
        """
        async with asyncio.timeout(timeout):
            await self._disconnected.wait()

    async def request(
        self,
        server_name: str,
        tool_name: str,
        tool_args: dict[str, Any],
        server_params: dict[str, Any] | None = None,
    ) -> bool:
        """Returns whether the application accepts a tool call.

        Args:
            server_name: Name of the MCP server.
            tool_name: Name of the tool.
            tool_args: The arguments of the call.
            server_params: What starts the server, for the application to see.

        Raises:
            ToolRunnerError: If it is rejected with a reason.
            RuntimeError: If no approval client is connected, it goes away, or it fails to decide.
            TimeoutError: If the request expires.
        """
        decided = await self.decide(server_name, tool_name, tool_args, server_params)
        if not decided.accepted and decided.reason is not None:
            raise ToolRunnerError(decided.reason)
        return decided.accepted

    async def decide(
        self,
        server_name: str,
        tool_name: str,
        tool_args: dict[str, Any],
        server_params: dict[str, Any] | None = None,
        output_mark: int = 0,
    ) -> Decided:
        """Returns what is decided on a tool call, as `request` does, and by whom.

        Raises:
            RuntimeError: As `request` does.
            TimeoutError: If the request expires.
        """
        if not self.approval_required:
            return Decided(True, "auto")
        deliver = self._deliver
        if deliver is None:
            raise RuntimeError("nobody can approve the call: no approval client is connected")
        request_id = uuid.uuid4().hex
        answer = self._pending[request_id] = asyncio.get_running_loop().create_future()
        params: ApproveParams = {
            "server_name": server_name,
            "tool_name": tool_name,
            "tool_args": tool_args,
            "server_params": server_params,
            "output_mark": output_mark,
        }
        try:
            async with asyncio.timeout(self.approval_timeout):  # a callback may take its time
                await deliver(request_id, params)
                return await answer
        except ConnectionError as exc:  # of the WebSocket
            raise RuntimeError("nobody can approve the call: the approval client has gone") from exc
        except TimeoutError:
            raise TimeoutError(f"the approval request expired after {self.approval_timeout:g} s") from None
        finally:
            self._pending.pop(request_id, None)

    def _decide(self, data: str) -> None:
        try:
            request_id, outcome = parse_answer(json.loads(data))
        except (ValueError, RecursionError) as exc:
            logger.warning("ignored a message on the approval channel: %s", exc)
            return
        self._settle(request_id, outcome)

    def _settle(
        self, request_id: str, outcome: bool | Rejection | str, by: str = APPLICATION, because: str | None = None
    ) -> bool:
        """Answers a request; returns whether it still waited for that."""
        answer = self._pending.get(request_id)
        if answer is None or answer.done():
            logger.warning("a decision on a tool call has no effect: it came too late, or after another one")
            return False
        if isinstance(outcome, bool):
            answer.set_result(Decided(outcome, by, because))
        elif isinstance(outcome, Rejection):
            answer.set_result(Decided(False, by, outcome.reason))
        else:
            answer.set_exception(RuntimeError(f"the application failed to decide: {outcome}"))
        return True

    def _fail_pending(self) -> None:
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(RuntimeError("nobody can approve the call: the approval client has gone"))
