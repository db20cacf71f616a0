"""An HTTP MCP server that has a fault for a while, in this process."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

Fault = Literal["redirects", "answers_500", "drops_the_connection", "hangs", "forgets_sessions", "answers_html"]


@dataclass
class FaultyHTTPServer:
    """Streamable HTTP with JSON answers; has one tool, `echo`."""

    url: str = ""
    #: What happens to each call of a tool.
    fault: Fault | None = None
    #: Set when a call has come.
    called: asyncio.Event = field(default_factory=asyncio.Event)
    _session: int = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._answer_one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = re.search(r"content-length: (\d+)", head)
        body = await reader.readexactly(int(length[1])) if length else b""
        if not head.startswith("post"):
            return await self._send(writer, "405 Method Not Allowed")
        message = json.loads(body)
        if message["method"] == "tools/call":
            self.called.set()
            match self.fault:
                case "redirects":
                    return await self._send(writer, "307 Temporary Redirect", headers="Location: /elsewhere\r\n")
                case "answers_500":
                    return await self._send(writer, "500 Internal Server Error", b"out of luck")
                case "answers_html":
                    return await self._send(writer, "200 OK", b"<html>", "Content-Type: text/html\r\n")
                case "drops_the_connection":
                    return False
                case "hangs":
                    await asyncio.sleep(1000)
                case "forgets_sessions":
                    self.fault = None
                    return await self._send(writer, "404 Not Found")
                case None:
                    pass
        if "id" not in message:
            return await self._send(writer, "202 Accepted")
        reply = {"jsonrpc": "2.0", "id": message["id"], **self._reply(message)}
        return await self._send(writer, "200 OK", json.dumps(reply).encode(), self._headers(message))

    def _headers(self, message: dict[str, Any]) -> str:
        session = f"Mcp-Session-Id: {self._session}\r\n" if message["method"] == "initialize" else ""
        return f"Content-Type: application/json\r\n{session}"

    def _reply(self, message: dict[str, Any]) -> dict[str, Any]:
        match message["method"]:
            case "initialize":
                self._session += 1
                info = {"name": "faulty", "version": "1"}
                return {"result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}}
            case "tools/list":
                return {"result": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}}
            case "tools/call":
                return {"result": {"content": [{"type": "text", "text": message["params"]["arguments"]["text"]}]}}
            case _:
                return {"error": {"code": -32601, "message": "Method not found"}}

    async def _send(self, writer: asyncio.StreamWriter, status: str, body: bytes = b"", headers: str = "") -> bool:
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body)
        await writer.drain()
        return True


@asynccontextmanager
async def faulty_http_server() -> AsyncGenerator[FaultyHTTPServer]:
    faulty = FaultyHTTPServer()
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(faulty.answer(reader, writer))
        tasks.add(task)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    faulty.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    try:
        yield faulty
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks) if tasks else None
        await server.wait_closed()
