"""The messages of the approval channel: JSON-RPC 2.0 requests from the server, answered by the client.

When a request ends, the server notifies the client, which can't know otherwise whether its answer counted.
https://www.jsonrpc.org/specification
"""

from dataclasses import dataclass
from typing import Any, Literal, TypedDict, cast

from ipybox.audit.records import ApprovalDecision

APPROVE_METHOD = "approve"
DECIDED_METHOD = "decided"
CALLBACK_FAILED = -32000
REJECTED = -32001

#: What has become of a request.
ApprovalState = Literal["pending", "accepted", "rejected", "expired", "cancelled"]

#: What a request is about: a call of a tool, or a program that code is about to start.
RequestKind = Literal["tool", "shell"]

#: The decider in the audit log if the caller names no other.
APPLICATION = "application"

#: The decider of a call on which no decision was made, and of one whose request expired.
NOBODY, TIMEOUT = "nobody", "timeout"

#: Why a second client is rejected, with HTTP status 409.
OTHER_CLIENT = "another approval client is connected"


@dataclass(frozen=True)
class Rejection:
    """A decision against a call, with its reason."""

    reason: str


class NoDecision(ApprovalDecision):
    """Stands for the missing decision on a call, which therefore does not run."""


#: An answer to a request: the decision, or why no decision was made.
Outcome = bool | Rejection | str

#: Stands for the decisions that an approval client had not made when its connection ended.
DISCONNECTED = NoDecision(False, NOBODY, "the approval client disconnected")


def failed_decision(reason: str) -> NoDecision:
    """Returns what stands for the decision of an approver that failed."""
    return NoDecision(False, NOBODY, f"the approver failed: {reason}")


class ApproveParams(TypedDict):
    """The tool call to decide on. Times are in ISO 8601."""

    server_name: str
    tool_name: str
    tool_args: dict[str, Any]
    server_params: dict[str, Any] | None
    output_mark: int
    kind: RequestKind
    created_at: str
    expires_at: str | None


class DecidedParams(TypedDict):
    """How a request has ended."""

    id: str
    state: ApprovalState
    by: str
    reason: str | None


def approve_request(request_id: str, params: ApproveParams) -> dict[str, Any]:
    """Returns a request for a decision."""
    return {"jsonrpc": "2.0", "id": request_id, "method": APPROVE_METHOD, "params": params}


def decided_notification(params: DecidedParams) -> dict[str, Any]:
    """Returns the notification that a request has ended."""
    return {"jsonrpc": "2.0", "method": DECIDED_METHOD, "params": params}


def answer(request_id: str, outcome: Outcome) -> dict[str, Any]:
    """Returns the answer to a request."""
    match outcome:
        case bool():
            given: dict[str, Any] = {"result": outcome}
        case Rejection(reason):
            given = {"error": {"code": REJECTED, "message": reason}}
        case str():
            given = {"error": {"code": CALLBACK_FAILED, "message": outcome}}
    return {"jsonrpc": "2.0", "id": request_id, **given}


def parse_answer(message: object) -> tuple[str, Outcome]:
    """Returns the id of an answer and its decision, or the reason why no decision was made.

    Raises:
        ValueError: If the message is not an answer.
    """
    if isinstance(message, dict):
        answer = cast(dict[str, Any], message)
        request_id, result, error = answer.get("id"), answer.get("result"), answer.get("error")
        if isinstance(request_id, str):
            if isinstance(result, bool):
                return request_id, result
            if isinstance(error, dict):
                content = cast(dict[str, Any], error)
                reason = str(content.get("message", "no reason given"))
                return request_id, Rejection(reason) if content.get("code") == REJECTED else reason
    raise ValueError("not an answer to an approval request")
