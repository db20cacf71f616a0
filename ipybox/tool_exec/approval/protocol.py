"""The messages of the approval channel: JSON-RPC 2.0 requests from the server, answered by the client.

When a request ends, the server notifies the client, which can't tell otherwise whether its answer counted.
https://www.jsonrpc.org/specification
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, cast

from ipybox.audit.records import ApprovalDecision
from ipybox.tool_exec.approval.request import APPLICATION, NOBODY, ApprovalRequest, ApprovalState, NoDecision

APPROVE_METHOD = "approve"
DECIDED_METHOD = "decided"
CALLBACK_FAILED = -32000
REJECTED = -32001

#: Why a second client is rejected, with HTTP status 409.
OTHER_CLIENT = "another approval client is connected"

#: The decision on requests that are pending when the approval client disconnects.
DISCONNECTED = NoDecision(False, NOBODY, "the approval client disconnected")

_FIELDS = ("server_name", "tool_name", "tool_args", "server_params", "output_mark", "kind")


def approve_request(request: ApprovalRequest) -> dict[str, Any]:
    """Returns the message that asks for a decision. Times are in ISO 8601 format."""
    params = {field: getattr(request, field) for field in _FIELDS}
    params["created_at"] = request.created_at.isoformat()
    params["expires_at"] = None if request.expires_at is None else request.expires_at.isoformat()
    return {"jsonrpc": "2.0", "id": request.id, "method": APPROVE_METHOD, "params": params}


def received_request(
    message: dict[str, Any], respond: Callable[[ApprovalDecision], Awaitable[object]]
) -> ApprovalRequest:
    """Returns the request in a message."""
    params: dict[str, Any] = message["params"]
    expires_at = params["expires_at"]
    return ApprovalRequest(
        **{field: params[field] for field in _FIELDS},
        respond=respond,
        request_id=message["id"],
        created_at=datetime.fromisoformat(params["created_at"]),
        expires_at=None if expires_at is None else datetime.fromisoformat(expires_at),
    )


def decided_notification(request: ApprovalRequest, decided: ApprovalDecision) -> dict[str, Any]:
    """Returns the notification that a request has ended."""
    params = {"id": request.id, "state": request.state, "by": decided.by, "reason": decided.reason}
    return {"jsonrpc": "2.0", "method": DECIDED_METHOD, "params": params}


def ended(message: dict[str, Any]) -> tuple[ApprovalState, ApprovalDecision]:
    """Returns how the request in a notification ended."""
    params: dict[str, Any] = message["params"]
    state: ApprovalState = params["state"]
    kind = ApprovalDecision if state in ("accepted", "rejected") else NoDecision
    return state, kind(state == "accepted", params["by"], params["reason"])


def answer(request_id: str, decision: ApprovalDecision) -> dict[str, Any]:
    """Returns the answer to a request."""
    given: dict[str, Any] = {"result": decision.accepted}
    if not decision.accepted and decision.reason is not None:
        code = CALLBACK_FAILED if isinstance(decision, NoDecision) else REJECTED
        given = {"error": {"code": code, "message": decision.reason}}
    return {"jsonrpc": "2.0", "id": request_id, **given}


def parse_answer(message: object) -> tuple[str, ApprovalDecision]:
    """Returns the id and decision of an answer; raises a ValueError if the message is not an answer."""
    match cast(Any, message):
        case {"id": str(request_id), "result": bool(result)}:
            return request_id, ApprovalDecision(result, APPLICATION)
        case {"id": str(request_id), "error": {**error}}:
            reason = str(error.get("message", "no reason given"))
            if error.get("code") == REJECTED:
                return request_id, ApprovalDecision(False, APPLICATION, reason)
            return request_id, NoDecision(False, NOBODY, reason)
        case _:
            raise ValueError("not an answer to an approval request")
