"""Reports to an MCP client why there is no server: otherwise it would only see a closed connection."""

import json
import os
import select
from collections.abc import Iterator
from typing import Any, cast

#: Seconds that a client gets to send its first request, and each further one.
REQUEST_TIMEOUT = 1.0

#: Maximum bytes of a request.
REQUEST_LIMIT = 1 << 20

#: JSON-RPC's code for an error of the server.
INTERNAL_ERROR = -32603


def refuse(message: str, stdin: int = 0, stdout: int = 1) -> None:
    """Answers each request on stdin with an error that has this message, until no more requests come.

    Clients that know several versions of the protocol ask more than once before they give up. No terminal is read.
    """
    if os.isatty(stdin):
        return
    for line in _lines(stdin):
        number = request_id(line)
        if number is None:
            continue
        error = {"code": INTERNAL_ERROR, "message": message}
        answer = json.dumps({"jsonrpc": "2.0", "id": number, "error": error})
        try:
            os.write(stdout, answer.encode() + b"\n")
        except OSError:  # the client is gone
            return


def request_id(line: bytes) -> int | str | None:
    """Returns the id of a JSON-RPC request, or None if the line is something else."""
    try:
        parsed: object = json.loads(line)
    except ValueError:
        return None
    request = cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {}
    number = request.get("id")
    return number if "method" in request and isinstance(number, int | str) else None


def _lines(fd: int) -> Iterator[bytes]:
    """Yields lines until the end, or until no more comes in time."""
    pending = b""
    while len(pending) < REQUEST_LIMIT:
        readable, _, _ = select.select([fd], [], [], REQUEST_TIMEOUT)
        chunk = os.read(fd, 65536) if readable else b""
        if not chunk:
            return
        *lines, pending = (pending + chunk).split(b"\n")
        yield from lines
