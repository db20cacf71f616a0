"""A remote MCP server in this process, with both transports; a test scripts its answers."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

Message = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """A response to a POST. `ID` in its body becomes the id of the request."""

    status: int = 200
    body: str | bytes = b""
    content_type: str = "application/json"
    headers: tuple[str, ...] = ()
    #: Whether the connection ends before the whole answer is sent.
    broken: bool = False


#: The connection is closed instead of an answer.
NOTHING = Answer(status=0)


@dataclass
class RemoteServer:
    """`http://…/mcp` is Streamable HTTP, `http://…/sse` SSE. Its tool `echo` returns `text`."""

    url: str = ""
    #: Returns the answer to a message; None for an ordinary one.
    script: Callable[[Message], Answer | None] = lambda message: None
    #: Whether clients get a session, and the number of the current one.
    sessions: bool = False
    session: int = 0
    #: Calls of tools wait for it, unless the script answers them.
    released: asyncio.Event = field(default_factory=asyncio.Event)
    #: Texts of calls that were executed, and the methods of all messages.
    executed: list[str] = field(default_factory=list[str])
    methods: list[str] = field(default_factory=list[str])
    tools: list[Message] = field(default_factory=lambda: [{"name": "echo", "inputSchema": {"type": "object"}}])
    #: The event that an SSE stream begins with.
    endpoint: str = "event: endpoint\ndata: /messages\n\n"
    #: The events with which it answers a call of a tool; `ID` becomes the id of the request. By default the usual one.
    event: str | None = None
    _stream: asyncio.StreamWriter | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves a connection until `stop`."""
        self._tasks.add(asyncio.create_task(self._serve(reader, writer)))

    async def stop(self) -> None:
        """Ends all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._serve_one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
        body = await reader.readexactly(int(length[1])) if length else b""
        if head.startswith("GET /sse"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + self.endpoint.encode())
            self._stream = writer
            return True
        if not head.startswith("POST"):
            return self._respond(writer, Answer(405))
        message = json.loads(body)
        self.methods.append(message.get("method", ""))
        answer = self.script(message)
        if answer is None and (session := re.search(r"mcp-session-id: (\d+)", head, re.IGNORECASE)):
            answer = None if int(session[1]) == self.session else Answer(404, "no such session", "text/plain")
        if answer is not None:
            return self._respond(writer, answer, message)
        if "id" not in message:
            return self._respond(writer, Answer(202))
        if head.startswith("POST /messages"):
            self._tasks.add(asyncio.create_task(self._reply_by_event(message)))
            return self._respond(writer, Answer(202))
        reply = json.dumps({"jsonrpc": "2.0", "id": message["id"], **await self._reply(message)})
        headers = (f"Mcp-Session-Id: {self.session}",) if message["method"] == "initialize" and self.sessions else ()
        return self._respond(writer, Answer(body=reply, headers=headers))

    async def _reply_by_event(self, message: Message) -> None:
        assert self._stream is not None
        if self.event is not None and message["method"] == "tools/call":
            self._stream.write(self.event.replace("ID", json.dumps(message["id"])).encode())
            return
        reply = json.dumps({"jsonrpc": "2.0", "id": message["id"], **await self._reply(message)})
        self._stream.write(f"data: {reply}\n\n".encode())

    async def _reply(self, message: Message) -> Message:
        match message["method"]:
            case "initialize":
                self.session += 1
                info = {"name": "remote", "version": "1"}
                return {"result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}}
            case "tools/list":
                return {"result": {"tools": self.tools}}
            case "tools/call":
                await self.released.wait()
                self.executed.append(text_of(message))
                return {"result": {"content": [{"type": "text", "text": text_of(message)}]}}
            case _:
                return {"error": {"code": -32601, "message": "Method not found"}}

    def _respond(self, writer: asyncio.StreamWriter, answer: Answer, message: Message | None = None) -> bool:
        if answer is NOTHING:
            return False
        body = answer.body.encode() if isinstance(answer.body, str) else answer.body
        body = body.replace(b"ID", json.dumps((message or {}).get("id")).encode())
        headers = [f"HTTP/1.1 {answer.status} Status", f"Content-Length: {len(body) + answer.broken}", *answer.headers]
        if answer.content_type:
            headers.append(f"Content-Type: {answer.content_type}")
        writer.write("\r\n".join([*headers, "", ""]).encode() + body)
        return not answer.broken


def text_of(message: Message) -> str:
    """Returns the text that a call of `echo` asks for; empty for other messages."""
    return message.get("params", {}).get("arguments", {}).get("text", "") if "params" in message else ""


@asynccontextmanager
async def remote_server() -> AsyncGenerator[RemoteServer]:
    """Runs the server."""
    remote = RemoteServer()
    server = await asyncio.start_server(remote.connected, "127.0.0.1", 0)
    remote.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield remote
    finally:
        server.close()
        await remote.stop()
        await server.wait_closed()
