"""Questions about tool calls in the real client: in a terminal, and without a person."""

import json
import sys
from pathlib import Path

from tests import servers
from tests.claude.api import Block, Request, serve, text, tool
from tests.claude.cli import SESSION_TIMEOUT, Home
from tests.claude.terminal import DOWN, ENTER, ESCAPE, RIGHT, terminal

CALL = "from registered import scripted; print(scripted.run_sync('echo', {'text': 'hello'}))"


def options(workspace: Path) -> list[str]:
    """Returns the options with which the client has a server that asks."""
    servers.register(workspace, scripted=servers.scripted())
    with (workspace / ".git" / "info" / "exclude").open("a") as file:
        file.write("\n/registered.py\n/__pycache__/\n")
    arguments = ["-m", "ipybox", "--workspace", str(workspace), "--approve", "ask"]
    server = {"type": "stdio", "command": sys.executable, "args": arguments, "alwaysLoad": True}
    config = json.dumps({"mcpServers": {"ipybox": server}})
    return ["--mcp-config", config, "--strict-mcp-config", "--allowedTools=mcp__ipybox,WaitForMcpServers"]


def call(_: Request) -> list[Block]:
    return [tool("execute_ipython_cell", code=CALL)]


def test_form_appears_in_the_terminal_and_its_answer_decides(home: Home, workspace: Path):
    def has_run(request: Request) -> list[Block]:
        assert request.result == "hello"
        return call(request)

    def has_failed(request: Request) -> list[Block]:
        (result,) = request.results
        assert result.is_error
        assert result.text.endswith("call of scripted.echo was rejected: the user declined it")
        return call(request)

    def was_dismissed(request: Request) -> list[Block]:
        (result,) = request.results
        assert result.is_error
        assert "the question was dismissed without an answer" in result.text
        return [text("All answered.")]

    with (
        serve([[tool("WaitForMcpServers")], call, has_run, has_failed, was_dismissed]) as api,
        terminal(home, workspace, *options(workspace), "Go", ANTHROPIC_BASE_URL=api.url) as screen,
    ):
        shown = ("Code calls the tool echo of the MCP server scripted", 'text: "hello"', "This question expires at ")
        screen.until(*shown, "❯ Accept", timeout=SESSION_TIMEOUT)  # client and server start before it
        screen.type(ENTER)
        screen.until("Calling ipybox 2 times", *shown, "❯ ✔ Allow: ▸ only this call")
        for key, chosen in (DOWN, "❯ Accept"), (DOWN, "❯ Decline"):
            screen.type(key)
            screen.until(chosen)
        screen.type(ENTER)
        screen.until("Calling ipybox 3 times", *shown, "❯ ✔ Allow: ▸ only this call")
        screen.type(ESCAPE)
        screen.until("All answered.")


def test_loop_is_one_question_whose_answer_is_given_with_the_first_form(home: Home, workspace: Path):
    loop = """
from registered import scripted
print(sum(scripted.run_sync("echo", {"text": str(number)}) == str(number) for number in range(30)))
"""

    def has_run(request: Request) -> list[Block]:
        assert request.result == "30"
        return [text("All answered.")]

    with (
        serve([[tool("WaitForMcpServers")], [tool("execute_ipython_cell", code=loop)], has_run]) as api,
        terminal(home, workspace, *options(workspace), "Go", ANTHROPIC_BASE_URL=api.url) as screen,
    ):
        screen.until("Decline offers to allow more", "❯ Accept", timeout=SESSION_TIMEOUT)
        screen.type(DOWN)
        screen.until("❯ Decline")
        screen.type(ENTER)
        screen.until("It is declined unless you allow more than this call", "❯ ✔ Allow: ▸ decline it")
        screen.type(RIGHT)
        screen.until("the rest of this cell", "always for this server")
        screen.type(DOWN)
        screen.until("❯ ◯ the rest of this cell")
        screen.type(ENTER)
        screen.until("Allow: the rest of this cell", "❯ Accept")
        screen.type(ENTER)
        screen.until("All answered.")


def test_without_a_person_the_call_fails_and_says_what_to_do(home: Home, workspace: Path):
    def has_failed(request: Request) -> list[Block]:
        (result,) = request.results
        assert "scripted.echo was rejected: the question was dismissed without an answer; where no" in result.text
        assert "`--approve FILE`" in result.text
        return [text("Nobody there.")]

    with serve([call, has_failed]) as api:
        said = home.claude(
            *options(workspace), "-p", "Go", cwd=workspace, timeout=SESSION_TIMEOUT, ANTHROPIC_BASE_URL=api.url
        )
    assert said.strip() == "Nobody there."
