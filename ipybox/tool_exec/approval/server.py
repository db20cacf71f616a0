"""The tool server's end of the approval channel."""

import asyncio
import json
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from aiohttp import WSCloseCode, WSMsgType, web

from ipybox.guest.tools.protocol import RunRequest
from ipybox.support.errors import ToolRunnerError
from ipybox.tool_exec.approval.approvals import Approvals
from ipybox.tool_exec.approval.protocol import (
    DISCONNECTED,
    OTHER_CLIENT,
    approve_request,
    decided_notification,
    parse_answer,
)
from ipybox.tool_exec.approval.request import (
    NOBODY,
    TIMEOUT,
    ApprovalDecision,
    ApprovalRequest,
    NoDecision,
    RequestKind,
)

if TYPE_CHECKING:
    from ipybox.tool_exec.dispatch import ToolCaller

logger = logging.getLogger(__name__)


class ApprovalChannel(Approvals):
    """Asks a connected `ApprovalClient` to decide on tool calls.

    Args:
        approval_required: If False, every call is approved without asking.
        approval_timeout: Seconds until a request expires; None for never.
    """

    def __init__(self, approval_required: bool = False, approval_timeout: float | None = 60):
        super().__init__(timeout=approval_timeout)
        self.approval_required = approval_required
        self._websocket: web.WebSocketResponse | None = None
        self._disconnected = asyncio.Event()
        self._disconnected.set()

    @property
    def open(self) -> bool:
        """Whether an approval client is connected."""
        return self._websocket is not None

    async def connect(self, websocket: web.WebSocketResponse) -> None:
        """Receives decisions from a prepared WebSocket until it closes.

        A second client is rejected while the first is connected: it must not decide on the first one's requests.
        """
        if self.open:
            await websocket.close(code=WSCloseCode.POLICY_VIOLATION, message=OTHER_CLIENT.encode())
            return
        self._websocket = websocket
        self._disconnected.clear()
        try:
            async for frame in websocket:
                if frame.type is WSMsgType.TEXT:
                    self._receive(frame.data)
        finally:
            self._websocket = None
            self._settle(DISCONNECTED)
            self._disconnected.set()

    async def disconnect(self) -> None:
        """Closes the connection to the approval client; pending requests fail."""
        if self._websocket is not None:
            await self._websocket.close(code=WSCloseCode.GOING_AWAY)
        await self._cancel(DISCONNECTED)

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
        """Returns whether the application, which sees all arguments, accepts a tool call.

        Raises:
            ToolRunnerError: If the call is rejected with a reason.
            RuntimeError: If no approval client is connected, or the client disconnects or fails to decide.
            TimeoutError: If the request expires.
        """
        call = RunRequest(
            server_name=server_name,
            server_params=server_params or {},
            seal=None,
            tool_name=tool_name,
            tool_args=tool_args,
        )
        decided = await self.decide(call)
        if isinstance(decided, NoDecision):
            raise (TimeoutError if decided.by == TIMEOUT else RuntimeError)(decided.reason)
        if not decided.accepted and decided.reason is not None:
            raise ToolRunnerError(decided.reason)
        return decided.accepted

    async def decide(
        self, call: RunRequest, kind: RequestKind = "tool", caller: "ToolCaller | None" = None
    ) -> ApprovalDecision:
        """Returns the decision on a tool call with its decider; a `NoDecision` where `request` raises."""
        if not self.approval_required:
            return ApprovalDecision(True, "auto")
        if self._websocket is None:
            return NoDecision(False, NOBODY, "no approval client is connected")
        return await self._request(partial(_relay, self._websocket), [call], kind)

    def _receive(self, data: str) -> None:
        try:
            request_id, decision = parse_answer(json.loads(data))
        except (ValueError, RecursionError) as exc:
            logger.warning("ignored a message on the approval channel: %s", exc)
            return
        request = self._pending.get(request_id)
        if request is None or not request.settle("accepted" if decision.accepted else "rejected", decision):
            logger.warning("ignored a decision on a tool call: it came too late, or the call was already decided")


async def _relay(websocket: web.WebSocketResponse, request: ApprovalRequest) -> None:
    try:
        await websocket.send_json(approve_request(request))
        await websocket.send_json(decided_notification(request, await request.decided()))
    except ConnectionError:
        request.settle("cancelled", DISCONNECTED)
