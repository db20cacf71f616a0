"""Explains in plain words what went wrong with a server.

Exceptions of the MCP SDK and the HTTP library come in groups, and name their own kind instead of what to check. On
stderr, the reason is hidden among the download progress of npx and uvx, and the frames of Node's tracebacks.
"""

import json
import re
import socket
from typing import cast

import httpx2
from mcp.shared.exceptions import MCPError
from mcp_types import ErrorData
from pydantic import ValidationError

from ipybox.mcp_client import process_guard
from ipybox.mcp_client.http_client import MAX_REASON, PostFailure, http_reason
from ipybox.support.child import StderrLines
from ipybox.support.printable import printable

#: Maximum lines of stderr in an error.
STDERR_LINES = 10

_FETCHED = re.compile(r"npm http (?:fetch|cache) (?:GET |POST )?(?:[23]\d\d )?(?:\S+@)?(?P<url>\w+://\S+) .*\d+ms\b.*")
_UV = re.compile(r"(?:Downloading|Downloaded|Building|Built|Installed|Prepared|Resolved|Updating|Updated) \S.*")

# Frames in tracebacks of Node, which follow the error: they would leave no room for it.
_NODE_FRAME = re.compile(
    r"\s+(?:at .*(?::\d+:\d+\)?|<anonymous>\)?)(?: \{)?|\.{3} \d+ lines matching cause stack trace \.{3})"
)

# As `StderrLines` delivers it.
_REPORT = printable(process_guard.REPORT)


def failure_text(exc: BaseException | str, connect_timeout: float) -> str:
    """Returns in plain words what an exception of the SDK or the HTTP library means; it must not be a group."""
    match exc:
        case str():
            return exc
        case httpx2.HTTPStatusError():
            return http_reason(exc.response)
        case httpx2.SSEError():
            return f"not an MCP server: {exc}"
        case httpx2.ConnectTimeout():
            return f"no connection within {connect_timeout:g} s"
        case httpx2.ConnectError():
            return _connect_error(exc)
        case MCPError() if isinstance(exc.error.data, PostFailure):
            return failure_text(exc.error.data.reason, connect_timeout)
        case MCPError():
            return f"it responded: {error_text(exc.error)}"
        case ValidationError():
            return f"its response is not valid MCP: {validation_text(exc)}"
        case httpx2.WriteTimeout():
            return "it stopped reading the request"
        case httpx2.TransportError() if not str(exc):
            return "the connection broke"
        case _:
            return str(exc) or type(exc).__name__


def error_text(error: ErrorData) -> str:
    """Returns the message of a server's error, with its data, which often contains the reason."""
    data = error.data
    if data is not None and not isinstance(data, str):
        data = json.dumps(data, ensure_ascii=False, default=str)
    message = error.message or f"MCP error {error.code}"
    if not data or data in ("{}", "[]", "null") or data in message:
        return message
    return f"{message}: {data if len(data) <= MAX_REASON else f'{data[:MAX_REASON]}…'}"


def validation_text(exc: ValidationError) -> str:
    """Returns the first field that is wrong, and how."""
    error = exc.errors(include_url=False, include_context=False)[0]
    return f"{'.'.join(map(str, error['loc']))}: {error['msg']}".removeprefix(": ")


def first_leaf(exc: BaseException) -> BaseException:
    """Returns the first exception in a possibly nested group, or the exception itself if it is not a group."""
    while isinstance(exc, BaseExceptionGroup):
        exc = cast("BaseExceptionGroup[BaseException]", exc).exceptions[0]
    return exc


def _connect_error(exc: httpx2.ConnectError) -> str:
    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError):
            return "connection refused"
        if isinstance(cause, socket.gaierror):
            return "unknown host"
        cause = first_leaf(cause)  # a group contains one for each address of the host
        cause = cause.__cause__ or cause.__context__
    return f"can't connect: {exc}"


class ServerStderr(StderrLines):
    """Keeps the lines that explain a server's failure, without Node's frames and downloads; `log` gets all lines."""

    #: How the server ended ("exited with code 3"), if the guard has said so.
    report: str | None = None

    def _receive(self, line: str) -> None:
        line = line.rstrip()
        if line.startswith(_REPORT):
            self.report = line.removeprefix(_REPORT)
        elif line:
            self.log(line)
            if not is_progress(line) and _NODE_FRAME.fullmatch(line) is None:
                self._lines.append(line)


def is_progress(line: str) -> bool:
    """Returns whether a line reports successful work, which explains no failure."""
    return _FETCHED.fullmatch(line) is not None or _UV.fullmatch(line.strip()) is not None


def readable_line(line: str) -> str:
    """Returns a line of progress as a person should see it; other lines are returned unchanged."""
    if (match := _FETCHED.fullmatch(line)) is None:
        return line
    name = match["url"].partition("://")[2].partition("/")[2] or match["url"]
    return f"downloading {name.rpartition('/')[2]}" if name.endswith(".tgz") else f"looking up {name}"
