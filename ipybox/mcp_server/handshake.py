"""Answers a client's `initialize` while the SDK loads: Codex offers no tools in its first turn if that takes a second.

The SDK handles the same request later; `stdio.AnswerStream` drops its result. A test compares the two.
https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle
"""

import json
from importlib.metadata import version
from typing import Any, Final

from ipybox.mcp_server.client_traits import announced, traits_named
from ipybox.mcp_server.standard_streams import input_reader, write_all

#: The revisions of MCP that begin with `initialize`, latest last.
REVISIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")

#: Maximum bytes of a request that is answered here.
_MAX_REQUEST = 1 << 16


class Handshake:
    """The beginning of a client's messages.

    Attributes:
        received: What the client has sent so far.
        answered: The id of the request that has been answered, if any.
    """

    def __init__(self, stdin: int, stdout: int, instructions: str, *, resources: bool):
        self._read = input_reader(stdin)
        self._stdout = stdout
        self._instructions = instructions
        self._resources = resources
        self.received = b""
        self.answered: int | str | None = None

    async def receive(self) -> None:
        """Reads the first line; returns early if it is too long, or stdin ends. May be cancelled without loss."""
        while b"\n" not in self.received and len(self.received) <= _MAX_REQUEST:
            if not (more := await self._read()):
                return
            self.received += more

    async def answer(self) -> None:
        """Answers the first line if it is a usual `initialize` request; raises an OSError if that fails."""
        line, end, _ = self.received.partition(b"\n")
        try:
            request: Any = json.loads(line) if end and len(line) <= _MAX_REQUEST else None
        except (ValueError, RecursionError):
            return
        match request:
            case {
                "jsonrpc": "2.0",
                "method": "initialize",
                "id": int() | str() as request_id,
                "params": {
                    "protocolVersion": str(revision),
                    "capabilities": dict(),
                    "clientInfo": {"name": str(name), "version": str()},
                },
            } if not isinstance(request_id, bool):
                result = self._result(revision if revision in REVISIONS else REVISIONS[-1], name)
                message = json.dumps({"jsonrpc": "2.0", "id": request_id, "result": result})
                self.answered = request_id
                try:
                    await write_all(self._stdout, message.encode() + b"\n")
                except OSError as exc:
                    raise OSError(f"can't answer the MCP client: {exc}") from exc
            case _:
                pass

    def _result(self, revision: str, name: str) -> dict[str, Any]:
        resources = self._resources or traits_named(name).reads_resources
        return {
            "capabilities": announced({"listChanged": False}, resources=resources),
            "instructions": self._instructions,
            "protocolVersion": revision,
            "serverInfo": {"name": "ipybox", "version": version("ipybox")},
        }
