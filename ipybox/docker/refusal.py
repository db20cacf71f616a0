"""Tells an MCP client why there is no server. Otherwise, the client would only see a closed connection."""

import json
import os
import select
from contextlib import suppress

#: Seconds for a client to send its first request, and each further request.
REQUEST_TIMEOUT = 1.0

#: Maximum bytes of a request.
REQUEST_LIMIT = 1 << 20

#: JSON-RPC's code for a server error.
INTERNAL_ERROR = -32603


def refuse(message: str, stdin: int = 0, stdout: int = 1) -> None:
    """Answers each request on stdin with an error: clients that support several protocol versions send several."""
    pending = b""
    while not os.isatty(stdin) and len(pending) < REQUEST_LIMIT:
        readable, _, _ = select.select([stdin], [], [], REQUEST_TIMEOUT)
        chunk = os.read(stdin, 65536) if readable else b""
        if not chunk:
            return
        *lines, pending = (pending + chunk).split(b"\n")
        for number in (found for line in lines if (found := request_id(line)) is not None):
            answer = {"jsonrpc": "2.0", "id": number, "error": {"code": INTERNAL_ERROR, "message": message}}
            try:
                os.write(stdout, json.dumps(answer).encode() + b"\n")
            except OSError:  # the client has exited
                return


def request_id(line: bytes) -> int | str | None:
    """Returns the id of a JSON-RPC request, or None if the line isn't a request."""
    with suppress(ValueError, RecursionError):
        match json.loads(line):
            case {"method": _, "id": int() | str() as number}:
                return number
            case _:
                pass
    return None
