"""ipybox with npm's inspector as its client, of which each request is a process of its own."""

import asyncio
import json
import re
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Fifo, Mode
from tests.http_server import serving
from tests.proxy import forwarding
from tests.servers import NODE_MODULES, WAIT, time_

SCRIPT = NODE_MODULES / "@modelcontextprotocol/inspector/cli/build/cli.js"

PRINTS = "for i in range(10_000): print('line', i)"
PRINTED = "".join(f"line {i}\n" for i in range(10_000)).removesuffix("\n")

PLOT = "import matplotlib.pyplot as plt; plt.plot([1, 4, 9]); plt.show()"


@dataclass(frozen=True)
class Inspector:
    """The inspector's command line, for one server."""

    server: tuple[str, ...]

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        command = ("node", str(SCRIPT), "--cli", *self.server, *arguments)
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)

    async def __call__(self, *arguments: str) -> Any:
        process = await self.start(*arguments)
        async with asyncio.timeout(4 * WAIT):
            output, error = await process.communicate()
        assert process.returncode == 0, error.decode()
        return json.loads(output)

    async def call(self, tool: str, **arguments: str) -> list[dict[str, Any]]:
        result = await self(*_call(tool, **arguments))
        assert not result.get("isError"), result
        return result["content"]

    async def execute(self, code: str) -> str:
        return "\n".join(block["text"] for block in await self.call("execute_ipython_cell", code=code))


def _call(tool: str, **arguments: str) -> list[str]:
    pairs = (f"{name}={value}" for name, value in arguments.items())
    return ["--method", "tools/call", "--tool-name", tool, "--tool-arg", *pairs]


@asynccontextmanager
async def inspector_over_http(workspace: Path, mode: Mode) -> AsyncGenerator[Inspector]:
    with serving(workspace, *mode.options) as server:
        token = server.headers["Authorization"].removeprefix("Bearer ")
        async with forwarding(server.url, token) as url:  # as it has no option for headers
            yield Inspector((url, "--transport", "http"))


@pytest.mark.parametrize("mode", [Mode.PLAIN], indirect=True)
async def test_server_on_stdio_lists_and_calls_tools(tmp_path: Path, mode: Mode):
    inspector = Inspector((sys.executable, "-m", "ipybox", "--workspace", str(tmp_path), *mode.options))
    listed = await inspector("--method", "tools/list")
    assert {tool["name"] for tool in listed["tools"]} >= {"execute_ipython_cell", "reset"}
    assert await inspector.execute("print(6*7)") == "42"


@pytest.mark.parametrize("mode", [Mode.SANDBOX], indirect=True)
async def test_session_over_http(tmp_path: Path, mode: Mode, fifo: Fifo):
    async with inspector_over_http(tmp_path, mode) as inspector:
        (names,) = await inspector.call("register_mcp_server", server_name="clock", server_params=json.dumps(time_()))
        assert names["text"].splitlines() == ["get_current_time", "convert_time"]
        code = "from mcptools.clock import get_current_time as t; t.run(t.Params(timezone='UTC')).timezone"
        assert await inspector.execute(code) == "'UTC'"

        links, picture = await inspector.call("execute_ipython_cell", code=PLOT)
        assert links["text"].startswith("Images:\n- ")
        assert (picture["type"], picture["mimeType"]) == ("image", "image/png")

        assert await _pages(inspector, await inspector.execute(PRINTS)) == PRINTED

        code = f"import time; x = 41; open({str(fifo.path)!r}, 'w').write('begun\\n'); time.sleep(600)"
        process = await inspector.start(*_call("execute_ipython_cell", code=code))
        await fifo.until("begun")
        process.send_signal(signal.SIGINT)
        await process.communicate()
        assert await inspector.execute("x + 1") == "42"


async def _pages(inspector: Inspector, cut: str) -> str:
    """Returns all of an output, page by page, as the cut and each page say."""
    found = re.search(r"Full output: (ipybox://\S+),", cut)
    pages: list[str] = []
    while found is not None:
        page, *lines = (await inspector("--method", "resources/read", "--uri", found[1]))["contents"]
        pages.append(page["text"])
        found = re.search(r"Next: (\S+)$", lines[0]["text"]) if lines else None
    return "".join(pages)
