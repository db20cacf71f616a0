"""The messages of the approval channel: JSON-RPC 2.0 requests from the server, answered by the client.

https://www.jsonrpc.org/specification
"""

from dataclasses import dataclass
from typing import Any, Literal, TypedDict, cast

APPROVE_METHOD = "approve"
CALLBACK_FAILED = -32000
REJECTED = -32001

#: Why a second client is turned away, with HTTP status 409.
OTHER_CLIENT = "another approval client is connected"


@dataclass(frozen=True)
class Rejection:
    """A decision against a call, with its reason."""

    reason: str


@dataclass(frozen=True)
class Decided:
    """What was decided on a call.

    Attributes:
        accepted: Whether it may run.
        by: Who or what decided: `auto`, a `rule`, a `user`, the `application`, `timeout`, `nobody`, or what an
            application calls it.
        reason: Why, such as the rule's file and line; None if none is given.
    """

    accepted: bool
    by: str
    reason: str | None = None


class ApproveParams(TypedDict):
    """The tool call to decide on."""

    server_name: str
    tool_name: str
    tool_args: dict[str, Any]
    server_params: dict[str, Any] | None
    output_mark: int


class ApproveRequest(TypedDict):
    """Asks for a decision."""

    jsonrpc: Literal["2.0"]
    id: str
    method: Literal["approve"]
    params: ApproveParams


def approve_request(request_id: str, params: ApproveParams) -> ApproveRequest:
    """Returns a request for a decision."""
    return {"jsonrpc": "2.0", "id": request_id, "method": APPROVE_METHOD, "params": params}


def decision(request_id: str, outcome: bool | Rejection) -> dict[str, Any]:
    """Returns the answer to a request."""
    if isinstance(outcome, Rejection):
        return {"jsonrpc": "2.0", "id": request_id, "error": {"code": REJECTED, "message": outcome.reason}}
    return {"jsonrpc": "2.0", "id": request_id, "result": outcome}


def failure(request_id: str, message: str) -> dict[str, Any]:
    """Returns the answer to a request for which no decision was made."""
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": CALLBACK_FAILED, "message": message}}


def parse_answer(message: object) -> tuple[str, bool | Rejection | str]:
    """Returns the id of an answer and its decision, or the reason why there is none.

    Raises:
        ValueError: If the message is no answer.
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
