"""Registering servers behind OAuth: by `generate_mcp_sources`, and by a real client of the MCP server."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp import Client
from mcp.client import ClientRequestContext
from mcp.client.stdio import StdioServerParameters
from mcp_types import CallToolResult, ElicitRequestParams, ElicitRequestURLParams, ElicitResult, TextContent

from ipybox import ExecutorConfig, generate_mcp_sources
from ipybox.mcp_client.client import MCPClient
from ipybox.mcp_server import MCPServer
from tests.conftest import Mode
from tests.mcp_client.oauth.conftest import BROWSER, browse, sign_in
from tests.mcp_client.oauth.guarded import Guarded
from tests.mcp_server.in_process import connected
from tests.servers import WAIT

GREET = "from mcptools.greeter.greet import Params, run; print(run(Params(name='you')))"


async def test_generating_opens_the_browser_and_the_package_has_no_token(
    server: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setenv("BROWSER", BROWSER)
    async with asyncio.timeout(WAIT):
        assert await generate_mcp_sources("greeter", {"url": server.url}, tmp_path) == ["greet"]

    assert f"sign in at {server.url.removesuffix('mcp')}authorize?" in caplog.text
    assert server.count("GET /authorize") == 1
    written = "".join(file.read_text() for file in (tmp_path / "greeter").rglob("*.*"))
    assert server.url in written
    assert not any(token in written for token in (*server.access, *server.refresh))


async def test_a_console_browser_is_not_opened_on_the_wire_of_a_server(
    server: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    script = tmp_path / "browser"
    script.write_text(f'#!/bin/sh\necho "on the wire"\nexec {BROWSER.replace("%s", "$1")}\n')
    script.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{script} %s")
    await generate_mcp_sources("greeter", {"url": server.url}, tmp_path)
    assert capfd.readouterr() == ("", "")


@asynccontextmanager
async def client_of(workspace: Path, *options: str, **env: str) -> AsyncGenerator[Client]:
    arguments = ["-m", "ipybox", "--workspace", str(workspace), *options]
    env = {"PATH": os.environ["PATH"], "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"], **env}
    async with Client(StdioServerParameters(command=sys.executable, args=arguments, env=env)) as client:
        yield client


async def call(client: Client, tool: str, **arguments: Any) -> str:
    async with asyncio.timeout(2 * WAIT):
        return text_of(await client.call_tool(tool, arguments))


def text_of(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


async def test_a_registered_server_lasts_over_a_restart_with_its_sign_in_and_placeholders(
    server: Guarded, tmp_path: Path, mode: Mode
):
    (tmp_path / ".env").write_text(f"GREETER={server.url}\n")
    async with client_of(tmp_path, *mode.options, BROWSER=BROWSER) as client:
        registered = await call(
            client, "register_mcp_server", server_name="greeter", server_params={"url": "${GREETER}"}
        )
        assert registered == "greet"

    server.expire()
    async with client_of(tmp_path, *mode.options) as client:
        assert await call(client, "execute_ipython_cell", code=GREET) == "Hello, you!"
        known = "import ipybox.codeact; print(ipybox.codeact.tools('greet'))"
        assert "mcptools/greeter/greet.py" in await call(client, "execute_ipython_cell", code=known)
        # A call never opens a browser.
        server.revoke()
        assert "register it again" in await call(client, "execute_ipython_cell", code=GREET)
    assert server.count("GET /authorize") == 1


@pytest.mark.kernel
@pytest.mark.sandbox
async def test_code_in_the_sandbox_cannot_read_tokens(server: Guarded, tmp_path: Path, state: Path):
    # Without a sandbox there is no boundary.
    async with MCPClient({"url": server.url}, WAIT, sign_in=sign_in):
        (file,) = (state / "oauth").glob("*.json")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    read = f"import os; print(os.path.exists({str(file)!r})); open({str(file)!r})"
    async with client_of(workspace, "--sandbox") as client:
        answer = await call(client, "execute_ipython_cell", code=read)
    assert answer.startswith("False\n")
    assert "Error" in answer


def client_of_user(
    tmp_path: Path, user: "User | None", era: Literal["legacy", "auto"]
) -> AbstractAsyncContextManager[Client]:
    """Connects a client to a server in this process, so that a test has a say in how long it waits."""
    return connected(MCPServer(ExecutorConfig(working_dir=tmp_path)), elicitation_callback=user, mode=era)


async def register(client: Client, url: str) -> str:
    return await call(client, "register_mcp_server", server_name="greeter", server_params={"url": url})


class User:
    """Whoever sees the addresses that a client shows."""

    def __init__(self, action: Literal["accept", "decline", "cancel"]):
        self.action: Literal["accept", "decline", "cancel"] = action

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        assert isinstance(params, ElicitRequestURLParams)
        if self.action == "accept":
            await sign_in(params.url)
        return ElicitResult(action=self.action)


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_a_client_that_shows_addresses_is_asked_to(server: Guarded, tmp_path: Path, era: Any):
    async with client_of_user(tmp_path, User("accept"), era) as client:
        assert await register(client, server.url) == "greet"


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_a_user_who_does_not_want_to_sign_in_ends_the_registration(server: Guarded, tmp_path: Path, era: Any):
    async with client_of_user(tmp_path, User("decline"), era) as client:
        assert "the user declined to sign in" in await register(client, server.url)
    assert list(tmp_path.glob("mcptools/greeter*")) == []


async def test_a_registration_whose_sign_in_takes_long_is_taken_up_by_the_same_request(
    server: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("BROWSER", "false")
    monkeypatch.setattr("ipybox.mcp_server.registration.ANSWER_TIMEOUT", 0.1)
    async with client_of_user(tmp_path, None, "auto") as client:
        first = await register(client, server.url)
        again = await register(client, server.url)
        assert "then register the server again" in first
        assert first == again
        (url,) = [word for word in first.split() if "/authorize?" in word]
        assert (await browse(url)).status_code == 200

        async with asyncio.timeout(WAIT):
            while (then := await register(client, server.url)) == first:
                pass
        assert then == "greet"


async def test_what_waits_for_a_person_ends_with_the_server(
    server: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("BROWSER", "false")
    monkeypatch.setattr("ipybox.mcp_server.registration.ANSWER_TIMEOUT", 0.1)
    async with asyncio.timeout(WAIT), client_of_user(tmp_path, None, "auto") as client:
        await register(client, server.url)
