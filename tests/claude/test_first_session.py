"""The first session after an installation, while the environment is being built for longer than servers may take."""

import os
from collections.abc import Sequence
from pathlib import Path

from tests.claude.api import Block, Request, Turn, serve, text, tool
from tests.claude.cli import BUILD_TIMEOUT, SESSION_TIMEOUT, Home
from tests.claude.conftest import newest_client
from tests.claude.terminal import terminal

#: Seconds after which the client gives up on a server. By default, these are 30.
LIMIT = 10

#: Seconds by which the build is slowed down. SLOW_BUILD=90 is what a slow network costs.
SLOW = float(os.environ.get("SLOW_BUILD", LIMIT + 2))

TIMEOUT = SLOW + BUILD_TIMEOUT + SESSION_TIMEOUT


def slow_down(home: Home) -> None:
    home.env["MCP_TIMEOUT"] = f"{LIMIT * 1000}"
    home.slow_down(SLOW)


def calls(request: Request) -> list[Block]:
    assert "is installing its packages" in request.text
    assert "WaitForMcpServers" in request.text
    return [tool("execute_ipython_cell", code="print(6 * 7)")]


def answers(request: Request) -> list[Block]:
    return [text(f"It is {request.result}.")]


def test_a_slow_build_is_waited_for_by_the_first_call(new_home: Home, workspace: Path):
    new_home.marketplace_add()
    new_home.install("codeact-default")
    slow_down(new_home)
    allowed = ["mcp__plugin_codeact-default_ipybox"]

    session = new_home.session("Go", [calls, answers], workspace, allowed=allowed, timeout=TIMEOUT)

    assert session.servers == {"plugin:codeact-default:ipybox": "connected"}
    assert session.answer == "It is 42."


@newest_client
def test_a_person_sees_how_far_a_slow_build_is(new_home: Home, workspace: Path):
    new_home.marketplace_add()
    new_home.install("codeact-sandbox")
    slow_down(new_home)
    allowed = "--allowedTools=mcp__plugin_codeact-sandbox_ipybox,WaitForMcpServers"

    script: list[Turn] = [answers]

    def begins(request: Request) -> Sequence[Block]:
        # A prompt that is there at the start may come before the client has connected to servers.
        if "WaitForMcpServers" not in request.tools:
            return calls(request)
        script.insert(1, calls)
        return [tool("WaitForMcpServers")]

    script.insert(0, begins)
    with (
        serve(script) as api,
        terminal(new_home, workspace, allowed, "Go", ANTHROPIC_BASE_URL=api.url) as screen,
    ):
        screen.until("codeact-sandbox is installing its packages")
        screen.until("installing packages")
        screen.until("It is 42.", timeout=TIMEOUT)
