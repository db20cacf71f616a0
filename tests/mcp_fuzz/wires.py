"""Ways to send anything at all to a server, and to get what it says."""

import asyncio
import json
import random
import re
import signal
import sys
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import aiohttp
from mcp.shared.inbound import encode_header_value

from ipybox.support.tokens import new_token
from tests.servers import WAIT

#: What ids of requests begin with that are not malformed: what they lead to is kept.
HONEST = "honest-"

#: Headers that one request in twenty has instead of its own.
HEADERS = [
    {"Accept": "text/html"},
    {"Authorization": "Bearer no"},
    {"Authorization": "Basic Og=="},
    {"Content-Type": "text/plain"},
    {"Content-Encoding": "gzip"},
    {"Host": "evil.example"},
    {"Last-Event-ID": "1"},
    {"MCP-Protocol-Version": "1"},
    {"Mcp-Method": "ping"},
    {"Mcp-Session-Id": "../../no/such"},
    {"Origin": "http://evil.example"},
]

#: HTTP requests at once.
AT_ONCE = 8


class Wire(Protocol):
    """A connection to a server that runs as a process of its own."""

    #: The id of the process.
    pid: int

    async def send(self, messages: Iterable[bytes]) -> None:
        """Sends messages, in order if the transport has one."""
        ...

    async def receive(self) -> bytes:
        """Returns the next message of the server; empty if there is no connection any more."""
        ...


class StdioWire:
    """Lines on stdin and stdout."""

    def __init__(self, process: asyncio.subprocess.Process):
        assert process.stdin
        assert process.stdout
        self.pid = process.pid
        self._stdin = process.stdin
        self._stdout = process.stdout

    async def send(self, messages: Iterable[bytes]) -> None:
        for message in messages:
            self._stdin.write(message + b"\n")
            await self._stdin.drain()

    async def receive(self) -> bytes:
        return await self._stdout.readline()


class HttpWire:
    """Bodies of POST requests, some at a time.

    A response that refuses a request need not repeat its id; here, it has it. Requests with the same id wait for each
    other, as in sessions the SDK would answer only one of them, which MCP allows: an id must not be used twice.
    """

    def __init__(self, pid: int, url: str, token: str, http: aiohttp.ClientSession):
        self.pid = pid
        self._url = url
        self._http = http
        self._headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()

    async def send(self, messages: Iterable[bytes]) -> None:
        waiting = iter(messages)
        try:
            await asyncio.gather(*(self._post_all(waiting) for _ in range(AT_ONCE)))
        except BaseException:
            self._answers.put_nowait(b"")  # there may be nothing to wait for any more
            raise

    async def receive(self) -> bytes:
        return await self._answers.get()

    async def _post_all(self, messages: Iterable[bytes]) -> None:
        for message in messages:
            request = _object(message)
            async with self._turns[str(request.get("id", object()))]:
                await self._post(message, request)

    async def _post(self, message: bytes, request: dict[str, Any]) -> None:
        headers = self._headers | _routing(request)
        honest = str(request.get("id")).startswith(HONEST)
        rng = random.Random(message)
        if not honest and rng.random() < 0.05:
            headers |= rng.choice(HEADERS)
        async with self._http.post(self._url, data=message, headers=headers) as response:
            assert response.status < 500, (response.status, await response.text(), message)
            if honest and "Mcp-Session-Id" in response.headers:
                self._headers["Mcp-Session-Id"] = response.headers["Mcp-Session-Id"]
            if response.content_type == "text/event-stream":
                async for line in response.content:
                    if line.startswith(b"data: {"):
                        self._answers.put_nowait(line.removeprefix(b"data: "))
                        if request.get("method") == "subscriptions/listen":  # which has no end
                            break
            elif response.status >= 400:
                self._answers.put_nowait(_refusal(await response.read(), request))
            elif body := await response.read():
                self._answers.put_nowait(body)


def _object(message: bytes) -> dict[str, Any]:
    try:
        match json.loads(message):
            case {**members}:
                return members
            case _:
                return {}
    except (ValueError, RecursionError):
        return {}


def _routing(request: dict[str, Any]) -> dict[str, str]:
    """The headers that the later era has for gateways that don't read bodies."""
    match request:
        case {"method": str(method), "params": {"_meta": {"io.modelcontextprotocol/protocolVersion": str(version)}}}:
            params = request["params"]
            name = params.get("name", params.get("uri"))
            headers = {"MCP-Protocol-Version": version, "Mcp-Method": method}
            if isinstance(name, str):
                headers["Mcp-Name"] = encode_header_value(name.encode(errors="replace").decode())
            return {key: value for key, value in headers.items() if value.isascii() and value.isprintable()}
        case _:
            return {}


def _refusal(body: bytes, request: dict[str, Any]) -> bytes:
    """Returns the answer that an HTTP response with an error is."""
    answer = _object(body) or {"jsonrpc": "2.0", "error": {"code": -32600, "message": body.decode()}}
    asked = request.get("id")
    if answer.get("id") in (None, "server-error") and (isinstance(asked, str) or type(asked) is int):
        answer["id"] = asked
    return json.dumps(answer).encode()


@asynccontextmanager
async def http(workspace: Path, log: Path, env: Mapping[str, str], *options: str) -> AsyncGenerator[HttpWire]:
    """Runs a server whose stderr becomes a file, all but its first line; it must end well on SIGTERM."""
    command = [sys.executable, "-m", "ipybox.mcp_server", "--workspace", str(workspace), *options]
    command += ["--transport", "http", "--port", "0"]
    token = new_token()
    process = await asyncio.create_subprocess_exec(
        *command, stderr=asyncio.subprocess.PIPE, env={**env, "IPYBOX_TOKEN": token}
    )
    assert process.stderr
    try:
        async with asyncio.timeout(WAIT):
            serving = re.search(r"serving on (\S+);", (await process.stderr.readline()).decode())
        assert serving
        logging = asyncio.create_task(process.stderr.read())
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(None)) as session:
            yield HttpWire(process.pid, serving[1], token, session)
        process.terminate()
        async with asyncio.timeout(WAIT):
            assert await process.wait() == 128 + signal.SIGTERM
            log.write_bytes(await logging)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@asynccontextmanager
async def stdio(workspace: Path, log: Path, env: Mapping[str, str], *options: str) -> AsyncGenerator[StdioWire]:
    """Runs a server whose stderr becomes a file; it must end well when its stdin ends."""
    command = [sys.executable, "-m", "ipybox.mcp_server", "--workspace", str(workspace), *options]
    pipe = asyncio.subprocess.PIPE
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=stderr, env=env, limit=1 << 28
        )
    assert process.stdin
    assert process.stdout
    try:
        yield StdioWire(process)
        process.stdin.close()
        async with asyncio.timeout(WAIT):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
