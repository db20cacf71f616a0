"""The messages of the approval channel: JSON-RPC 2.0 requests from the server, answered by the client.

https://www.jsonrpc.org/specification
"""

from typing import Any, Literal, TypedDict, cast

APPROVE_METHOD = "approve"
CALLBACK_FAILED = -32000

#: Why a second client is turned away, with HTTP status 409.
OTHER_CLIENT = "another approval client is connected"


class ApproveParams(TypedDict):
    """The tool call to decide on."""

    server_name: str
    tool_name: str
    tool_args: dict[str, Any]
    server_params: dict[str, Any] | None


class ApproveRequest(TypedDict):
    """Asks for a decision."""

    jsonrpc: Literal["2.0"]
    id: str
    method: Literal["approve"]
    params: ApproveParams


def approve_request(request_id: str, params: ApproveParams) -> ApproveRequest:
    """Returns a request for a decision."""
    return {"jsonrpc": "2.0", "id": request_id, "method": APPROVE_METHOD, "params": params}


def decision(request_id: str, accepted: bool) -> dict[str, Any]:
    """Returns the answer to a request."""
    return {"jsonrpc": "2.0", "id": request_id, "result": accepted}


def failure(request_id: str, message: str) -> dict[str, Any]:
    """Returns the answer to a request for which no decision was made."""
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": CALLBACK_FAILED, "message": message}}


def parse_answer(message: object) -> tuple[str, bool | str]:
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
                return request_id, str(cast(dict[str, Any], error).get("message", "no reason given"))
    raise ValueError("not an answer to an approval request")
