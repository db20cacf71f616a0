"""What the tool server and its clients say to each other, typed for both ends.

`POST /run` takes a `RunRequest` and answers with a `RunReply`. Nothing here imports more than the standard
library: one end is in the kernel.
"""

from typing import Any, NotRequired, TypedDict, TypeGuard, cast

RUN_PATH = "/run"
RESET_PATH = "/reset"
STATUS_PATH = "/status"
APPROVAL_PATH = "/approval"

#: Environment variables that tell code in a kernel where its tool server is.
HOST_VARIABLE = "TOOL_SERVER_HOST"
PORT_VARIABLE = "TOOL_SERVER_PORT"
TOKEN_VARIABLE = "TOOL_SERVER_TOKEN"

DEFAULT_PORT = 8900


class RunRequest(TypedDict):
    """A tool call."""

    server_name: str
    server_params: dict[str, Any]
    #: Proof that `server_params` were registered under this name, see `ipybox.tool_exec.seal`.
    seal: str | None
    tool_name: str
    tool_args: dict[str, Any]
    #: The last mark in the output of the kernel that calls (`ipybox.guest.marks`), 0 for none.
    output_mark: NotRequired[int]


class RunReply(TypedDict):
    """The outcome of a tool call: `structured` and `content` as in MCP's CallToolResult.

    Of one that failed it is an `error`, and the `content` that the server sent beside the error's text, if any.
    """

    error: NotRequired[str]
    structured: NotRequired[dict[str, Any] | None]
    content: NotRequired[list[dict[str, Any]]]


def is_run_request(value: object) -> TypeGuard[RunRequest]:
    """Tells whether a decoded JSON value is a `RunRequest`."""
    if not isinstance(value, dict):
        return False
    request = cast(dict[str, Any], value)
    return (
        isinstance(request.get("server_name"), str)
        and isinstance(request.get("tool_name"), str)
        and isinstance(request.get("server_params"), dict)
        and isinstance(request.get("tool_args"), dict)
        and isinstance(request.get("seal"), str | None)
        and isinstance(request.get("output_mark", 0), int)
    )
