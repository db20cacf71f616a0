"""The part of the quickstart about Claude Code, as a new user follows it in the real client."""

import json
import re
import shlex

from tests.claude.api import Block, Request, serve, text, tool
from tests.claude.cli import Home
from tests.claude.terminal import ENTER, terminal
from tests.test_quickstart import blocks, part

PAGE = part("Claude Code")

CODE = """
from mcptools.clock import get_current_time
for zone in ("America/New_York", "Asia/Tokyo", "Africa/Nairobi"):
    print(zone, get_current_time.run(get_current_time.Params(timezone=zone)).timezone)
"""


def prompt() -> str:
    """Returns the prompt of the page."""
    return " ".join(re.findall(r"^> (.*)$", PAGE, re.MULTILINE))


def test_what_the_page_says_leads_to_an_approved_tool_call(home: Home):
    (commands,) = blocks(PAGE, "bash")
    *plugin, begin = commands.splitlines()
    assert begin == "mkdir my-project && cd my-project && claude"
    for line in plugin:
        program, *arguments = shlex.split(line)
        assert program == "claude"
        home.claude(*arguments)
    workspace = home.path / "my-project"
    workspace.mkdir()

    with (
        serve([lambda _: [tool("WaitForMcpServers")], registers, acts, answers]) as api,
        terminal(home, workspace, ANTHROPIC_BASE_URL=api.url) as screen,
    ):
        screen.until("❯")
        screen.type(prompt())
        screen.type(ENTER)
        screen.until("zzz", timeout=75)


def registers(request: Request) -> list[Block]:
    (parameters,) = re.findall(r"`(\{.*?\})`", prompt())
    return [tool("register_mcp_server", server_name="clock", server_params=json.loads(parameters))]


def acts(request: Request) -> list[Block]:
    assert "get_current_time" in request.result
    return [tool("execute_ipython_cell", code=CODE)]


def answers(request: Request) -> list[Block]:
    assert request.result.split()[0] == "America/New_York"
    return [text("All of them were asked.")]
