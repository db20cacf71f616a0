"""The messages between the tool server and its clients, typed for both ends.

`POST /run` accepts a `RunRequest` and answers with a `RunReply`; `POST /run_many` accepts a `RunManyRequest` and
answers with a `RunManyReply`. Two more are for kernels only: `POST /install` accepts an `InstallRequest` and answers
with a `RunReply` whose content reports the installed or removed package; `POST /shell` accepts a `ShellRequest`, and
its `RunReply` has an error unless the command may run.
"""

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict, TypeGuard, cast

RUN_PATH = "/run"
RUN_MANY_PATH = "/run_many"
INSTALL_PATH = "/install"
SHELL_PATH = "/shell"
RESET_PATH = "/reset"
STATUS_PATH = "/status"
APPROVAL_PATH = "/approval"

#: Environment variables with the address of a kernel's tool server.
HOST_VARIABLE = "TOOL_SERVER_HOST"
PORT_VARIABLE = "TOOL_SERVER_PORT"
TOKEN_VARIABLE = "TOOL_SERVER_TOKEN"

#: Tool names of shell commands and of script magics such as `%%bash` in approval requests.
SHELL_TOOL, SHELL_MAGIC_TOOL = "shell", "shell_magic"

DEFAULT_PORT = 8900

#: Maximum bytes of a request, which contains the arguments of its calls.
MAX_REQUEST_BYTES = 64 << 20

#: Maximum calls of a batch, and how many of them may run concurrently.
MAX_CALLS = 10_000
MAX_CONCURRENCY = 64

#: Maximum characters of a package specifier, because parsing takes time.
MAX_PACKAGE_NAME = 2000


class RunRequest(TypedDict):
    """A tool call."""

    server_name: str
    server_params: dict[str, Any]
    #: Proof that `server_params` were registered under this name, see `ipybox.workspace.seal`.
    seal: str | None
    tool_name: str
    tool_args: dict[str, Any]
    #: The last sync marker in the output of the calling kernel (`ipybox.guest.streams`), or 0.
    output_mark: NotRequired[int]


class RunManyRequest(TypedDict):
    """A batch: calls of one tool, which are decided on together. The other fields are those of a `RunRequest`."""

    server_name: str
    server_params: dict[str, Any]
    seal: str | None
    tool_name: str
    #: The arguments of each call.
    params_list: list[dict[str, Any]]
    #: How many calls may run concurrently; None lets the application choose.
    concurrency: int | None
    output_mark: int


class InstallRequest(TypedDict):
    """A package that code wants to install or remove."""

    package_name: str
    remove: NotRequired[bool]


class ShellRequest(TypedDict):
    """A program that code is about to start."""

    #: `SHELL_TOOL` or `SHELL_MAGIC_TOOL`.
    tool_name: str
    #: `cmd` is the command, or the text of the cell; the others are present if they add something.
    tool_args: dict[str, str]
    #: As in a `RunRequest`.
    output_mark: int


#: What `tool_args` of a `ShellRequest` may contain: the command or cell, the line after `%%script`, the program's
#: `argv[0]`, and its working directory.
SHELL_ARGS = frozenset({"cmd", "program", "argv0", "cwd"})


class RunReply(TypedDict):
    """The outcome of a tool call: `structured` and `content` as in MCP's CallToolResult.

    A failed call has an `error`, and what the server sent in addition to the error's text.
    """

    error: NotRequired[str]
    structured: NotRequired[Any]
    content: NotRequired[list[dict[str, Any]]]


class RunManyReply(TypedDict):
    """The outcomes of a batch, in the order of its calls; or only an error, if no call was made."""

    error: NotRequired[str]
    replies: NotRequired[list[RunReply]]


_TOOL = {"server_name": str, "server_params": dict, "seal": str | None, "tool_name": str}


def is_run_request(value: object) -> TypeGuard[RunRequest]:
    """Returns whether a decoded JSON value is a `RunRequest`."""
    return _is_object(value, {**_TOOL, "tool_args": dict}) and isinstance(value.get("output_mark", 0), int)


def is_run_many_request(value: object) -> TypeGuard[RunManyRequest]:
    """Returns whether a decoded JSON value is a `RunManyRequest`."""
    kinds = {**_TOOL, "params_list": list, "concurrency": int | None, "output_mark": int}
    return (
        _is_object(value, kinds)
        and len(value["params_list"]) <= MAX_CALLS
        and all(isinstance(each, dict) for each in value["params_list"])
        and (value["concurrency"] is None or 1 <= value["concurrency"] <= MAX_CONCURRENCY)
    )


def is_install_request(value: object) -> TypeGuard[InstallRequest]:
    """Returns whether a decoded JSON value is an `InstallRequest`."""
    return _is_object(value, {"package_name": str}) and len(value["package_name"]) <= MAX_PACKAGE_NAME


def is_shell_request(value: object) -> TypeGuard[ShellRequest]:
    """Returns whether a decoded JSON value is a `ShellRequest`."""
    return (
        _is_object(value, {"tool_args": dict, "output_mark": int})
        and value.get("tool_name") in (SHELL_TOOL, SHELL_MAGIC_TOOL)
        and {"cmd"} <= value["tool_args"].keys() <= SHELL_ARGS
        and _is_object(value["tool_args"], dict.fromkeys(value["tool_args"], str))
    )


def _is_object(value: object, kinds: Mapping[str, Any]) -> TypeGuard[dict[str, Any]]:
    """Returns whether a decoded JSON value is an object with these types of fields."""
    fields = cast(dict[str, Any], value) if isinstance(value, dict) else None
    return fields is not None and all(map(isinstance, map(fields.get, kinds), kinds.values()))
