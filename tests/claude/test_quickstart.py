"""The part of the quickstart about Claude Code, as a new user follows it in the real client."""

import json
import re
import shlex
from collections.abc import Sequence

from tests.claude.api import Block, Request, Turn, serve, text, tool
from tests.claude.cli import BUILD_TIMEOUT, Home
from tests.claude.terminal import ENTER, RIGHT, terminal
from tests.test_readme import QUICKSTART, blocks_of, part_of

PAGE = part_of(QUICKSTART, "Claude Code")

ZONES = ("America/New_York", "Asia/Tokyo", "Africa/Nairobi")
CODE = f"""
from mcptools.clock import get_current_time
for zone in {ZONES}:
    print(get_current_time.run(get_current_time.Params(timezone=zone)).timezone)
"""


def prompt() -> str:
    """Returns the prompt of the page."""
    return " ".join(re.findall(r"^> (.*)$", PAGE, re.MULTILINE))


def test_what_the_page_says_leads_to_an_approved_tool_call(home: Home):
    (commands,) = blocks_of(PAGE, "bash")
    *plugin, begin = commands.splitlines()
    assert begin == "mkdir my-project && cd my-project && claude"
    for line in plugin:
        program, *arguments = shlex.split(line)
        assert program == "claude"
        home.claude(*arguments)
    workspace = home.path / "my-project"
    workspace.mkdir()

    script: list[Turn] = [acts, answers]

    def begins(request: Request) -> Sequence[Block]:
        # A prompt that is typed early may come before the client has connected to servers.
        if "WaitForMcpServers" not in request.tools:
            return registers(request)
        script.insert(1, registers)
        return [tool("WaitForMcpServers")]

    script.insert(0, begins)
    with serve(script) as api, terminal(home, workspace, ANTHROPIC_BASE_URL=api.url) as screen:
        screen.until("? for shortcuts")
        screen.type(prompt())
        screen.until("office hours now?")
        screen.type(ENTER)
        screen.until("Add server(", "❯ 1. Yes")
        screen.type(ENTER)
        # It waits until the packages are installed.
        screen.until("Execute code(", "❯ 1. Yes", timeout=BUILD_TIMEOUT)
        screen.type(ENTER)
        for zone in ZONES:
            screen.until("Code calls clock.get_current_time", f'timezone: "{zone}"', "▸ not set")
            screen.type(RIGHT)
            screen.until("❯ ◯ only this call")
            screen.type(ENTER)
            screen.until("✔ Allow: only this call", "❯ Accept")
            screen.type_until_gone(ENTER, "❯ Accept")
        screen.until("All of them were asked.")


def registers(_: Request) -> list[Block]:
    (parameters,) = re.findall(r"`(\{.*?\})`", prompt())
    return [tool("register_mcp_server", server_name="clock", server_params=json.loads(parameters))]


def acts(request: Request) -> list[Block]:
    assert "get_current_time" in request.result
    return [tool("execute_ipython_cell", code=CODE)]


def answers(request: Request) -> list[Block]:
    assert tuple(request.result.split()) == ZONES
    return [text("All of them were asked.")]
