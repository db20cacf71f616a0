"""Questions about tool calls in the real client: in a terminal, and without a person."""

import json
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

from tests import servers
from tests.claude.api import Block, Request, serve, text, tool
from tests.claude.cli import SESSION_TIMEOUT, Home
from tests.claude.conftest import both_clients, newest_client
from tests.claude.terminal import DOWN, ENTER, ESCAPE, RIGHT, Terminal, terminal
from tests.servers import WAIT

CALL = "from registered import scripted; print(scripted.run_sync('echo', {'text': 'hello'}))"


#: The columns of a terminal as it starts by default.
COLUMNS = 80


def options(workspace: Path, *arguments: str, name: str = "ipybox", allowed: bool = True) -> list[str]:
    """Returns the options with which the client has a server."""
    servers.register(workspace, scripted=servers.scripted())
    with (workspace / ".git" / "info" / "exclude").open("a") as file:
        file.write("\n/registered.py\n/__pycache__/\n")
    command = ["-m", "ipybox", "--workspace", str(workspace), *arguments]
    server = {"type": "stdio", "command": sys.executable, "args": command, "alwaysLoad": True}
    config = ["--mcp-config", json.dumps({"mcpServers": {name: server}}), "--strict-mcp-config"]
    return [*config, f"--allowedTools=mcp__{name}"] if allowed else [*config, "--permission-mode=default"]


def call(_: Request) -> list[Block]:
    return [tool("execute_ipython_cell", code=CALL)]


def accept(screen: Terminal, choice: str = "only this call") -> None:
    """Chooses an answer of a form that is shown, and accepts it."""
    screen.type(RIGHT)
    screen.until("❯ ◯ only this call", "always for this server")
    if choice != "only this call":
        screen.type(DOWN)
        screen.until(f"❯ ◯ {choice}")
    screen.type(ENTER)
    screen.until(f"✔ Allow: {choice}", "❯ Accept")
    screen.type_until_gone(ENTER, "❯ Accept")


@both_clients
def test_form_appears_in_the_terminal_and_its_answer_decides(home: Home, workspace: Path):
    def has_run(request: Request) -> list[Block]:
        assert request.result == "hello"
        return call(request)

    def has_failed(request: Request) -> list[Block]:
        (result,) = request.results
        assert result.is_error
        # The keys of a test may come faster than those of a person.
        assert re.search(r"scripted.echo was rejected: the (user declined it$|client declined it on)", result.text)
        return call(request)

    def was_dismissed(request: Request) -> list[Block]:
        (result,) = request.results
        assert result.is_error
        assert "dismissed the form" in result.text or "the form was dismissed" in result.text
        return [text("All answered.")]

    with (
        serve([call, has_run, has_failed, was_dismissed]) as api,
        terminal(home, workspace, *options(workspace, "--approve", "ask"), "Go", ANTHROPIC_BASE_URL=api.url) as screen,
    ):
        shown = ("Code calls scripted.echo", '| text: "hello"', "❯ * Allow: ▸ not set", "Expires at ")
        screen.until(*shown, timeout=SESSION_TIMEOUT)  # client and server start before it
        accept(screen)
        screen.until("Calling ipybox 2 times", *shown)
        for key, chosen in (DOWN, "❯ Accept"), (DOWN, "❯ Decline"):
            screen.type(key)
            screen.until(chosen)
        screen.type(ENTER)
        screen.until("Calling ipybox 3 times", *shown)
        screen.type(ESCAPE)
        screen.until("All answered.")


MANY: dict[str, object] = {f"argument{number}": "y" * 50 for number in range(15)}

#: What a call sends, and what a form shows of it.
CALLS: dict[str, tuple[dict[str, object], tuple[str, ...]]] = {
    "three": ({"to": "alice", "amount": 100, "note": "LAST"}, ('| to: "alice"', "| amount: 100", '| note: "LAST"')),
    "five": (
        {"to": "alice", "amount": 100, "currency": "EUR", "purpose": "rent for November", "note": "the very LAST"},
        ('echo(to="alice", amount=100, currency="EUR"', 'note="the very LAST")'),
    ),
    "long": ({"text": "first " + "x" * 2000, "note": "LAST"}, ("Shortened.", 'text="first xxx', 'note="LAST")')),
    "many": ({**MANY, "note": "LAST"}, ("Shortened.", "argume", 'note="LAST")')),
}


@newest_client  # whose forms show less
def test_last_argument_of_a_call_is_visible_in_a_terminal_of_80_columns(home: Home, workspace: Path):
    turns = [
        [tool("execute_ipython_cell", code=f"from registered import scripted\nscripted.run_sync('echo', {sent!r})")]
        for sent, _ in CALLS.values()
    ]
    with (
        serve([*turns, [text("All shown.")]]) as api,
        terminal(
            home,
            workspace,
            *options(workspace, "--approve", "ask"),
            "Go",
            columns=COLUMNS,
            ANTHROPIC_BASE_URL=api.url,
        ) as screen,
    ):
        for number, (sent, shown) in enumerate(CALLS.values(), 1):
            screen.until(
                *shown,
                "Calling ipybox" + (f" {number} times" if number > 1 else ""),
                "▸ not set",
                "Expires at ",
                timeout=SESSION_TIMEOUT,
            )
            if "Shortened." in shown:
                (path,) = re.findall(r"Full text: (.*?) *\n *(?:\| (\S+) *\n)?", "\n".join(screen.screen.display))
                file = Path("".join(path).replace("~", str(home.path)))
                kept = file.read_text()
                assert [name for name, value in sent.items() if str(value) not in kept] == [], kept
            screen.type(ESCAPE)
        screen.until("All shown.")


@newest_client
def test_permission_for_each_tool_can_be_given_for_good(home: Home, workspace: Path):
    name = "as-long-as-that-of-the-plugin"

    def registers(_: Request) -> list[Block]:
        return [tool("register_mcp_server", server_name="x", server_params={"command": "true"})]

    with (
        serve([[tool("execute_ipython_cell", code="6 * 7")], registers, [tool("reset")], [text("All done.")]]) as api,
        terminal(
            home,
            workspace,
            *options(workspace, name=name, allowed=False),
            "Go",
            columns=120,
            ANTHROPIC_BASE_URL=api.url,
        ) as screen,
    ):
        for title in ("Execute code", "Add server", "Reset kernel"):
            asked = f"2. Yes, and don't ask again for {name} — {title} commands in"
            screen.until(asked, timeout=SESSION_TIMEOUT)
            screen.type_until_gone(ENTER, asked)
        screen.until("All done.", timeout=SESSION_TIMEOUT)


@newest_client
def test_loop_is_one_question_for_who_wants_it_so(home: Home, workspace: Path):
    loop = """
from registered import scripted
print(sum(scripted.run_sync("echo", {"text": str(number)}) == str(number) for number in range(30)))
"""

    def has_run(request: Request) -> list[Block]:
        assert request.result == "30"
        return [text("All answered.")]

    with (
        serve([[tool("execute_ipython_cell", code=loop)], has_run]) as api,
        terminal(home, workspace, *options(workspace, "--approve", "ask"), "Go", ANTHROPIC_BASE_URL=api.url) as screen,
    ):
        screen.until("▸ not set", timeout=SESSION_TIMEOUT)
        accept(screen, "the rest of this cell")
        screen.until("All answered.")


READS = {"readOnlyHint": True, "openWorldHint": False}
SENDS = {"type": "object", "properties": {"to": {"type": "string"}, "text": {"type": "string"}}}
THIRTY_READS_AND_TWELVE_WRITES = """
from mcptools.scripted import echo, pid
found = [pid.run(pid.Params()) for _ in range(30)]
done = echo.run_many([echo.Params(to="all", text=f"issue {number}") for number in range(12)])
print(len(found), len(done), done[-1])
"""
GENERATE = """
import asyncio, json, sys
from pathlib import Path
from ipybox import generate_mcp_sources
asyncio.run(generate_mcp_sources("scripted", json.loads(sys.argv[1]), Path("mcptools")))
"""


def agree(home: Home, workspace: Path, tools: Path) -> None:
    """Registers a server, with tools from a file, and agrees to those that only read, as this client's user would."""
    listed = [{"name": "pid", "annotations": READS}, {"name": "echo", "inputSchema": SENDS}]
    tools.write_text(json.dumps([{"inputSchema": {"type": "object"}, **each} for each in listed]))
    params = json.dumps(servers.scripted("--tools", str(tools)))
    for command in ["-c", GENERATE, params], ["-m", "ipybox", "trust", "scripted", "--yes"]:
        subprocess.run([sys.executable, *command], cwd=workspace, env=home.env, check=True, timeout=SESSION_TIMEOUT)


def has_run_all(request: Request) -> list[Block]:
    assert request.result == "30 12 issue 11"
    return [text("All answered.")]


@newest_client
def test_thirty_reads_and_twelve_writes_take_one_answer(home: Home, workspace: Path, tmp_path: Path):
    given = options(workspace, "--approve", "writes")
    agree(home, workspace, tmp_path / "tools.json")
    turns = [[tool("execute_ipython_cell", code=THIRTY_READS_AND_TWELVE_WRITES)], has_run_all]
    with serve(turns) as api, terminal(home, workspace, *given, "Go", ANTHROPIC_BASE_URL=api.url) as screen:
        shown = "Code calls scripted.echo 12 times", 'to="all"', "+9 more", '#12 text="issue 11"'
        screen.until("Shortened. Full text: ", *shown, "▸ not set", timeout=SESSION_TIMEOUT)
        screen.type(RIGHT)
        screen.until("❯ ◯ only these calls", "always for this server")
        screen.type(ENTER)
        screen.until("✔ Allow: only these calls", "❯ Accept")
        screen.type_until_gone(ENTER, "❯ Accept")
        screen.until("All answered.")


@both_clients
def test_another_terminal_gives_the_one_answer_of_a_client_without_a_person(
    home: Home, workspace: Path, tmp_path: Path
):
    given = options(workspace, "--approve", "writes")
    agree(home, workspace, tmp_path / "tools.json")
    command, piped = [sys.executable, "-m", "ipybox", "approvals"], subprocess.PIPE
    with subprocess.Popen(
        [*command, "--watch"], env=home.env, stdin=subprocess.DEVNULL, stdout=piped, stderr=subprocess.STDOUT, text=True
    ) as watching:
        seen, connected = list[str](), Event()

        def until(pattern: str) -> str:
            for line in watching.stdout or ():
                seen.append(line)
                if found := re.search(pattern, line):
                    return found[0]
            raise AssertionError(seen)

        def runs(_: Request) -> list[Block]:
            assert connected.wait(WAIT)
            return [tool("execute_ipython_cell", code=THIRTY_READS_AND_TWELVE_WRITES)]

        turns = [[tool("execute_ipython_cell", code="1")], runs, has_run_all]
        with serve(turns) as api, ThreadPoolExecutor() as threads:
            try:
                client = threads.submit(
                    *(home.claude, *given, "-p", "Go"),
                    cwd=workspace,
                    timeout=SESSION_TIMEOUT,
                    ANTHROPIC_BASE_URL=api.url,
                )
                client.add_done_callback(lambda _: watching.send_signal(signal.SIGINT))  # also if nothing is asked
                until("watching the MCP server in ")
                connected.set()
                call_id = until("^[0-9a-f]{6}(?=  )")
                until('#12 text: "issue 11"')
                decided = subprocess.run(
                    [*command, "accept", call_id], env=home.env, stdout=piped, text=True, timeout=SESSION_TIMEOUT
                )
                assert (decided.stdout, client.result().strip()) == ("accepted\n", "All answered.")
            finally:
                watching.send_signal(signal.SIGINT)
        assert [line for line in (watching.stdout or ()) if "Code calls" in line] == []


@both_clients
def test_without_a_person_the_call_fails_and_says_what_to_do(home: Home, workspace: Path):
    def has_failed(request: Request) -> list[Block]:
        (result,) = request.results
        assert "scripted.echo was rejected: the client dismissed the form on its own" in result.text
        assert "`--approve FILE`" in result.text
        return [text("Nobody there.")]

    with serve([call, has_failed]) as api:
        asks = options(workspace, "--approve", "ask")
        said = home.claude(*asks, "-p", "Go", cwd=workspace, timeout=SESSION_TIMEOUT, ANTHROPIC_BASE_URL=api.url)
    assert said.strip() == "Nobody there."


@newest_client
def test_a_person_agrees_once_to_the_tools_of_a_server(home: Home, workspace: Path, tmp_path: Path):
    file = tmp_path / "tools.json"
    reads = {"readOnlyHint": True, "openWorldHint": False}
    hints: dict[str, dict[str, bool]] = {"echo": reads, "env": {"readOnlyHint": True}, "pid": {}}
    file.write_text(json.dumps([{"name": name, "annotations": each} for name, each in hints.items()]))

    def registers(*flags: str) -> list[Block]:
        params = servers.scripted("--tools", str(file), *flags)
        return [tool("register_mcp_server", server_name="scripted", server_params=params)]

    def runs(request: Request) -> list[Block]:
        assert (
            "2 of 3 tools only read, 1 of them reaches the internet; 1 runs without asking" in request.results[0].text
        )
        generated = CALL.replace("registered import scripted", "mcptools.scripted import CLIENT as scripted")
        return [tool("execute_ipython_cell", code=generated)]

    def registers_another(request: Request) -> list[Block]:
        assert request.result == "hello"
        return registers("--noisy")

    def has_chosen(request: Request) -> list[Block]:
        assert "; 2 run without asking" in request.results[0].text
        return [text("All agreed.")]

    shown = (
        "MCP server scripted: let read-only tools run without asking?",
        "It says: 2 of 3 tools only read, 1 of",
        "▸ not set",
    )
    with (
        serve([registers(), runs, registers_another, has_chosen]) as api,
        terminal(
            home, workspace, *options(workspace, "--approve", "writes"), "Go", ANTHROPIC_BASE_URL=api.url
        ) as screen,
    ):
        screen.until(*shown, "ipybox can't check that.", "Stay offline: echo", timeout=SESSION_TIMEOUT)
        screen.type(RIGHT)
        screen.until("❯ ◯ read-only tools that stay offline (1)", "◯ choose", "◯ none")
        screen.type(ENTER)
        screen.until("✔ Run without asking: read-only tools that stay offline (1)", "❯ Accept")
        screen.type_until_gone(ENTER, "❯ Accept")

        screen.until(*shown)
        screen.type(RIGHT)
        screen.until("❯ ◯ read-only tools that stay offline (1)")
        screen.type(DOWN)
        screen.until("❯ ◯ choose")
        screen.type(ENTER)
        screen.until("✔ Run without asking: choose", "❯ Accept")
        screen.type_until_gone(ENTER, "❯ Accept")
        screen.until("MCP server scripted: which tools run without asking?", "Also reach the internet: env", "Tools")
        screen.type("echo, env")
        screen.until("echo, env")
        screen.type(ENTER)
        screen.until("❯ Accept")
        screen.type_until_gone(ENTER, "❯ Accept")
        screen.until("All agreed.")
