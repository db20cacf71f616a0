"""What messages say of a server and of what went wrong with it, in plain words.

The exceptions of the MCP SDK and the HTTP library come in groups, and name what they are instead of what to look at.
"""

import socket
from typing import cast

import httpx2
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from ipybox.audit.redaction import Redactor
from ipybox.mcp_client.params import RemoteParams, StdioParams, public_url

_LABEL_LENGTH = 200


def server_label(server: StdioParams | RemoteParams, redactor: Redactor) -> str:
    """Returns what messages call a server: its command line, shortened, or its URL, without secrets."""
    if isinstance(server, StdioParams):
        line = redactor.known(" ".join(" ".join([server.command, *server.args]).split()))
        return f"`{line}`" if len(line) <= _LABEL_LENGTH else f"`{line[:_LABEL_LENGTH]}…`"
    return redactor.known(public_url(server.url))


def failure_text(exc: BaseException, connect_timeout: float, http_status: int | None) -> str:
    """Returns in plain words what an exception of the SDK or the HTTP library means.

    Args:
        exc: The exception, which is not a group.
        connect_timeout: Seconds until the server was given to accept a connection.
        http_status: The status with which it refused the last message, if it did.
    """
    match exc:
        case httpx2.HTTPStatusError():
            return f"HTTP {exc.response.status_code}"
        case httpx2.SSEError():
            return f"not an MCP server: {exc}"
        case httpx2.ConnectTimeout():
            return f"no connection within {connect_timeout:g} s"
        case httpx2.ConnectError():
            return _connect_error(exc)
        case MCPError() if exc.message.startswith("Unexpected content type"):
            return f"not an MCP server: {exc.message[0].lower()}{exc.message[1:]}"
        case MCPError() if http_status is not None:
            return f"HTTP {http_status}: {exc.message}"
        case MCPError():
            return f"it answered: {exc.message}"
        case ValidationError():
            return f"its answer is not valid MCP: {exc.errors()[0]['msg']}"
        case _:
            return str(exc) or type(exc).__name__


def first_leaf(exc: BaseException) -> BaseException:
    """Returns the first exception of a group that is not a group itself, or else the exception."""
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
        cause = first_leaf(cause)  # a group has one for each address of the host
        cause = cause.__cause__ or cause.__context__
    return f"can't connect: {exc}"
