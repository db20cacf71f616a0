"""Real MCP clients, each in its own process, with the real server: all get the same answers.

`make clients` installs them. What a client gets does not depend on the sandbox, so kernels run without one.
"""

import base64
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.clients.runs import run_client, stdio_server
from tests.conftest import Fifo
from tests.http_server import serving
from tests.servers import ROOT

Transport = Literal["stdio", "http"]

pytestmark = pytest.mark.kernel

CLIENTS = (
    "with_mcp1.py",
    "with_mcp2.py",
    "with_fastmcp.py",
    "with_typescript1.mjs",
    "with_typescript2.mjs",
    "with_langchain.py",
    "with_pydantic_ai.py",
    "with_openai_agents.py",
)

#: Clients that don't report the cancellation of a call to the server, which is how version 1 of the Python SDK is.
WITHOUT_CANCELLATION = ("with_mcp1.py", "with_langchain.py")

TOOLS = {"register_mcp_server", "execute_ipython_cell", "install_package", "reset"}
ECHO = {"command": sys.executable, "args": [str(ROOT / "tests" / "echo_server.py")]}

IMAGE = "from PIL import Image; display(Image.new('RGB', (2, 2), 'red'))"
TOOL_CALL = "from mcptools.echo import echo; echo.run(echo.Params(text='hello')).result"
WAITING = """
interrupted = False
try:
    with open({pipe!r}, 'w') as pipe:  # as Python ignores an interrupt while it closes a file that nothing refers to
        pipe.write('runs')
    time.sleep(600)
except KeyboardInterrupt:
    interrupted = True
"""


def cell(code: str, **arguments: Any) -> dict[str, Any]:
    return {"tool": "execute_ipython_cell", "arguments": {"code": code, **arguments}}


@contextmanager
def connectable(transport: Transport, workspace: Path) -> Generator[dict[str, Any]]:
    """Yields what a client needs to connect."""
    if transport == "stdio":
        yield stdio_server(workspace)
        return
    with serving(workspace) as server:
        yield {"url": server.url, "headers": server.headers}


@pytest.fixture(params=["stdio", "http"])
def transport(request: pytest.FixtureRequest) -> Transport:
    return request.param


@pytest.mark.parametrize("client", CLIENTS)
def test_client_gets_what_all_clients_get(client: str, transport: Transport, tmp_path: Path, fifo: Fifo):
    pipe = str(fifo.path)
    calls: list[dict[str, Any]] = [
        cell("import time; x = 41"),
        cell("x + 1"),
        cell("1 / 0"),
        cell(IMAGE),
        {"tool": "register_mcp_server", "arguments": {"server_name": "echo", "server_params": ECHO}},
        cell(TOOL_CALL),
        cell("time.sleep(600)", timeout=1),
        {**cell(WAITING.format(pipe=pipe)), "pipe": pipe},
        cell("interrupted, x", timeout=10),
        {"tool": "reset", "arguments": {}},
    ]
    with connectable(transport, tmp_path) as server:
        reported = run_client(client, server, calls)
    print(client, reported["version"], transport)

    nothing, value, error, image, registered, called, timed_out, cancelled, afterwards, reset = reported["answers"]
    assert set(reported["tools"]) == TOOLS
    assert nothing == text("(no output)")
    assert value == text("42")
    assert error["error"]
    assert error["texts"][0].endswith("ZeroDivisionError: division by zero")
    assert [kind for kind, _ in image["images"]] == ["image/png"]
    assert base64.b64decode(image["images"][0][1]).startswith(b"\x89PNG")
    assert image["texts"][0].startswith("Images:\n- ")
    assert registered == text("echo")
    assert called == text("'hello'")
    assert timed_out["error"]
    assert "exceeded 1 s" in timed_out["texts"][0]
    assert cancelled is None
    if client in WITHOUT_CANCELLATION:
        assert "an earlier execution is still running" in afterwards["texts"][0]
    else:
        assert afterwards == text("(True, 41)")
    assert not reset["error"]


def text(text: str) -> dict[str, Any]:
    return {"error": False, "texts": [text], "images": []}


@pytest.mark.parametrize("client", ["with_langchain_per_call.py", "with_llamaindex.py"])
def test_state_of_a_client_that_connects_for_each_call_stays_over_http_alone(
    client: str, transport: Transport, tmp_path: Path
):
    with connectable(transport, tmp_path) as server:
        reported = run_client(client, server, [cell("x = 41"), cell("x + 1"), cell("x", session="other")])

    print(client, reported["version"], transport)
    begin, state, other = reported["answers"]
    assert begin == text("(no output)")
    assert state == text("42") if transport == "http" else "NameError" in state["texts"][0]
    assert "NameError" in other["texts"][0]
