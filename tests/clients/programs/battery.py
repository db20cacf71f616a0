"""What all programs of this folder in Python do: they make the calls that the test gives, and print what comes back.

    python with_X.py '{"server": {…}, "calls": […]}'

The server is a command with arguments and environment, or a URL with headers. A call names a tool and its arguments;
with a `pipe`, the client cancels it as soon as the code has written there. Each program runs with the Python of its own
virtual environment, in which the packages of the tests are not installed.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from importlib.metadata import version
from typing import Any, Protocol, TypedDict

#: Seconds that a client waits for a result. Some have a default of five, which is too little for a cell.
PATIENCE = 60


class Answer(TypedDict):
    """A result in the words of no framework."""

    error: bool
    texts: list[str]
    images: list[tuple[str, str]]


class Connection(Protocol):
    """What each program has for its client."""

    async def tools(self) -> list[str]:
        """Returns the names of the tools."""
        ...

    async def call(self, tool: str, arguments: dict[str, Any]) -> Answer:
        """Calls a tool."""
        ...


#: What the context managers of the programs yield.
Connected = AsyncGenerator[Connection]


def answer(content: Any, error: bool = False) -> Answer:
    """Returns the answer with these blocks, which are MCP's in most frameworks."""
    return Answer(
        error=error,
        texts=[block.text for block in content if block.type == "text"],
        images=[
            (getattr(block, "mime_type", None) or block.mimeType, block.data)
            for block in content
            if block.type == "image"
        ],
    )


def main(package: str, connect: Callable[[dict[str, Any]], AbstractAsyncContextManager[Connection]]) -> None:
    """Connects, makes all calls, and prints the version of the package, the tools and the answers as JSON."""
    given: dict[str, Any] = json.loads(sys.argv[1])

    async def run() -> dict[str, Any]:
        async with connect(given["server"]) as connection:
            tools = await connection.tools()
            answers = [await _answer(connection, **call) for call in given["calls"]]
        return {"version": version(package), "tools": tools, "answers": answers}

    print(json.dumps(asyncio.run(run())))


async def _answer(
    connection: Connection, tool: str, arguments: dict[str, Any], pipe: str | None = None
) -> Answer | None:
    call = asyncio.create_task(connection.call(tool, arguments))
    if pipe is None:
        return await call
    written = asyncio.create_task(_written(pipe))
    await asyncio.wait([call, written], return_when=asyncio.FIRST_COMPLETED)
    assert not call.done(), f"the call ended before its code wrote there: {call.result()}"
    call.cancel()
    await asyncio.wait([call])
    assert call.cancelled(), call
    return None


async def _written(pipe: str) -> None:
    """Returns when code has written to a pipe. A thread that waits for that would outlast a call that fails."""
    written = asyncio.Event()
    loop = asyncio.get_running_loop()
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    loop.add_reader(descriptor, written.set)
    try:
        await written.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
