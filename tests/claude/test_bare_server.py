"""The server as people add it to the real client by themselves: without a plugin, and so without the skill."""

import json
import re
import subprocess
import sys
from pathlib import Path

from ipybox.mcp_server.instructions import FULL
from tests import servers
from tests.claude.api import Block, Request, serve, text, tool
from tests.claude.cli import COMMAND_TIMEOUT, SESSION_TIMEOUT, Home
from tests.claude.conftest import newest_client
from tests.claude.terminal import ENTER, ESCAPE, terminal
from tests.github_server import repositories

PLOT = "import matplotlib.pyplot as plt; plt.plot([1, 4, 9]); plt.show()"

#: By itself, the client begins after 5 s without the servers that have not answered yet.
PATIENCE = {"MCP_CONNECTION_NONBLOCKING": "0", "MCP_CONNECT_TIMEOUT_MS": "30000"}


def options(workspace: Path, *more: str) -> list[str]:
    """Returns the options of a client that has nothing but the server, which has more options."""
    arguments = ["-m", "ipybox", "--workspace", str(workspace), *more]
    config = json.dumps({"mcpServers": {"ipybox": {"command": sys.executable, "args": arguments}}})
    return ["--mcp-config", config, "--strict-mcp-config", "--allowedTools=mcp__ipybox,WaitForMcpServers"]


def test_agent_without_the_skill_is_told_what_to_do_and_gets_what_it_asks_for(home: Home, workspace: Path):
    github = {"command": sys.executable, "args": [str(servers.ROOT / "tests" / "github_server.py")]}
    code = "\n".join(re.findall(r"^(?:from |print\(|commits = ).*", FULL, re.MULTILINE))
    code = code.replace("hello-world", repositories("octocat")[0].name)

    def is_told(request: Request) -> list[Block]:
        assert FULL in request.text
        return [tool("register_mcp_server", server_name="github", server_params=github)]

    def does_as_told(request: Request) -> list[Block]:
        assert "list_commits" in request.result
        return [tool("execute_ipython_cell", code=f"{code}\nprint(len(commits))")]

    def prints_much(request: Request) -> list[Block]:
        assert "list_commits.run(list_commits.Params(owner=…, repo=…)) -> str" in request.result
        assert int(request.result.splitlines()[-1]) > 0
        return [tool("execute_ipython_cell", code=f"print('x' * 60_000)\n{PLOT}", max_output_chars=100_000)]

    def gets_it_whole(request: Request) -> list[Block]:
        (result,) = request.results
        assert "x" * 60_000 in result.text
        assert result.images == 1
        return [text("Done.")]

    script = [is_told, does_as_told, prints_much, gets_it_whole]
    with serve(script) as api:
        said = home.claude(
            *(*options(workspace), "-p", "Go"), cwd=workspace, timeout=120, ANTHROPIC_BASE_URL=api.url, **PATIENCE
        )
    assert said.strip() == "Done."


def test_the_next_prompt_uses_servers_that_were_imported_from_other_clients(home: Home, workspace: Path):
    echo = {"command": sys.executable, "args": [str(servers.ROOT / "tests" / "echo_server.py")]}
    for client in (".cursor/mcp.json", ".gemini/settings.json", ".qwen/settings.json"):
        (home.path / client).parent.mkdir()
        (home.path / client).write_text(json.dumps({"mcpServers": {client[1:4]: echo}}))
    command = [sys.executable, "-m", "ipybox", "import", "--all"]
    subprocess.run(command, cwd=workspace, env=home.env, check=True, timeout=COMMAND_TIMEOUT)
    code = "".join(f"from mcptools.{name} import echo as {name[0]}\n" for name in ("cur", "gem", "qwe"))
    code += "print([tool.run(tool.Params(text=text)).result for tool, text in ((c, 'x'), (g, 'y'), (q, 'z'))])"

    with serve([[tool("execute_ipython_cell", code=code)], lambda request: [text(request.result)]]) as api:
        said = home.claude(
            *(*options(workspace), "-p", "Go"), cwd=workspace, timeout=120, ANTHROPIC_BASE_URL=api.url, **PATIENCE
        )
    assert said.strip() == "['x', 'y', 'z']"


@newest_client  # which moves calls of this length to the background
def test_cell_that_outlasts_a_request_is_waited_for_in_the_foreground(home: Home, workspace: Path):
    code = "import os, time\nprint('in')\nwhile not os.path.exists('begun'): time.sleep(0.01)\nprint('out')"

    def still_runs(request: Request) -> list[Block]:
        assert "in\n" in f"{request.result}\n"
        assert "[ipybox] The cell is still running after" in request.result
        (workspace / "begun").touch()
        return [tool("execute_ipython_cell", code="", wait=60)]

    def has_ended(request: Request) -> list[Block]:
        return [text(request.result)]

    script = [[tool("execute_ipython_cell", code=code, wait=3)], still_runs, has_ended]
    with serve(script) as api:
        said = home.claude(
            *(*options(workspace), "-p", "Go"),
            cwd=workspace,
            timeout=120,
            ANTHROPIC_BASE_URL=api.url,
            CLAUDE_AUTO_BACKGROUND_TASKS="1",
            CLAUDE_CODE_MCP_AUTO_BACKGROUND_MS="5000",
            **PATIENCE,
        )
    assert said.strip() == "out"


def test_interrupted_cell_leaves_the_kernel_as_it_was(home: Home, workspace: Path):
    def sleeps(_: Request) -> list[Block]:
        code = "import time\nx = 41\nopen('begun', 'w').close()\ntime.sleep(600)"
        return [tool("execute_ipython_cell", code=code, timeout=700)]

    def goes_on(request: Request) -> list[Block]:
        assert request.results[0].is_error
        return [tool("execute_ipython_cell", code="x + 1")]

    def is_kept(request: Request) -> list[Block]:
        return [text(f"It is {request.result}.")]

    with (
        serve([[tool("WaitForMcpServers")], sleeps, goes_on, is_kept]) as api,
        terminal(home, workspace, *options(workspace), "Go", ANTHROPIC_BASE_URL=api.url) as screen,
    ):
        screen.until_file(workspace / "begun", timeout=SESSION_TIMEOUT)  # client and server start before it
        screen.type(ESCAPE)
        screen.until("? for shortcuts")  # it takes prompts again
        screen.type("Go on")
        screen.until("Go on")
        screen.type(ENTER)
        screen.until("It is 42.")
