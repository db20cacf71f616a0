"""What people and clients type: commands and options, mistakes in them, and terminals of all kinds."""

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
from importlib.metadata import version
from pathlib import Path

import click
import pytest

from ipybox.cli.command import ipybox
from ipybox.cli.parsing import SUMMARIES, explain, with_command
from tests.cli.parsed import parsed
from tests.servers import ROOT, WAIT

INITIALIZE = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    b'"clientInfo":{"name":"test","version":"1"}}}\n'
)


def run(*arguments: str, sent: bytes = b"", cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "ipybox", *arguments]
    return subprocess.run(
        command, input=sent, capture_output=True, timeout=2 * WAIT, check=False, cwd=cwd, env={**os.environ, **env}
    )


def on_terminal(
    *arguments: str, columns: int = 80, environment: dict[str, str] | None = None, typed: bytes = b""
) -> str:
    """Returns what a command writes to a terminal, which is also its stdin."""
    ours, theirs = pty.openpty()
    os.write(ours, typed)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    env |= {"TERM": "xterm", **(environment or {})}
    command = [sys.executable, "-m", "ipybox", *arguments]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        written = b""
        try:
            while select.select([ours], [], [], WAIT)[0] and (part := os.read(ours, 65536)):
                written += part
        except OSError:  # the other end is closed
            pass
        process.wait(WAIT)
    os.close(ours)
    return written.decode().replace("\r\n", "\n")


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["--workspace", "x"], "serve"),
        (["--workspace=x", "--approve", "ask", "--sandbox"], "serve"),
        (["serve", "--workspace", "x"], "serve"),
        (["--workspace", "tools", "tools"], "tools"),
        (["--workspace", "x", "--memory-limit", "0", "docker"], "docker"),
        (["--sandbox", "--allow-domain", "demo", "check"], "check"),
        (["tools", "--workspace", "x"], "tools"),
    ],
    ids=" ".join,
)
def test_the_command_is_the_first_argument_that_is_no_option_or_its_value(arguments: list[str], command: str):
    assert with_command(arguments)[0] == command


@pytest.mark.parametrize("name", sorted(ipybox.commands))
def test_each_command_accepts_a_workspace_before_and_after_its_name(name: str, tmp_path: Path):
    for arguments in ([name, "--workspace", str(tmp_path)], [f"--workspace={tmp_path}", name]):
        assert parsed(arguments)["workspace"] == tmp_path


def test_of_an_option_that_is_given_twice_the_last_one_counts():
    assert parsed(["--host=a", "--images=link", "--host=b", "--images=both"]) == {"host": "b", "images": "both"}


@pytest.mark.parametrize("arguments", [[], ["--workspace=."], ["--audit=off", "--max-sessions=2"]], ids=" ".join)
def test_what_clients_have_in_their_configurations_serves(arguments: list[str], tmp_path: Path):
    done = run(*arguments, sent=INITIALIZE, cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["result"]["serverInfo"]["name"] == "ipybox"


def test_the_own_folder_of_a_plugin_is_no_workspace(tmp_path: Path):
    inside, project = tmp_path / "plugin" / "data", tmp_path / "project"
    inside.mkdir(parents=True)
    project.mkdir()

    refused = run("--sandbox", sent=INITIALIZE, cwd=inside, PLUGIN_ROOT=str(tmp_path / "plugin"))
    named = run(f"--workspace={project}", sent=INITIALIZE, cwd=inside, PLUGIN_ROOT=str(tmp_path / "plugin"))
    elsewhere = run(sent=INITIALIZE, cwd=project, PLUGIN_ROOT=str(tmp_path / "plugin"))

    assert (refused.returncode, named.returncode, elsewhere.returncode) == (2, 0, 0)
    assert refused.stderr.decode() == (
        f"ipybox: the client started ipybox in the plugin's own folder, {inside}, without naming the project\n"
        "Set --workspace, or add ipybox with `ipybox install` instead of a plugin\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        ("demos", "unknown command 'demos': did you mean 'demo'?", "See `ipybox --help`"),
        ("xyz", "unknown command 'xyz'", "See `ipybox --help`"),
        ("serve --sandbx", "unknown option '--sandbx': did you mean '--sandbox'?", "See `ipybox serve --help`"),
        ("--work x", "unknown option '--work': did you mean '--workspace'?", "See `ipybox serve --help`"),
        ("tools -x", "unknown option '-x'", "See `ipybox tools --help`"),
        ("docker --host x", "unknown option '--host'", "See `ipybox docker --help`"),
        ("--port", "--port needs a value", "See `ipybox serve --help`"),
        ("--sandbox=yes", "--sandbox takes no value", "See `ipybox serve --help`"),
        ("serve here", "unexpected argument: here", "See `ipybox serve --help`"),
        (
            "--workspace=",
            "--workspace: the value is empty",
            "--workspace: directory to use as the workspace (default: cu",
        ),
        ("--images all", "--images: 'all' is not one of 'link', 'inline', 'both'", "--images: return images "),
        (
            "--approve allow",
            "--approve: 'allow' is not auto, writes, ask, or the path of a rules file",
            "--approve: tool calls that the client's user must approve",
        ),
        ("--port 99999", "--port: 99999 is not in the range 0<=x<=65535", "--port: port for --transport http"),
        ("--max-sessions 1e3", "--max-sessions: '1e3' is not a valid integer", "--max-sessions: maximum number"),
        (
            "--connect-timeout 0",
            "--connect-timeout: 0.0 is not in the range 0<x<=1000000000",
            "--connect-timeout: ",
        ),
        (
            "--memory-limit much",
            "--memory-limit: 'much' is not an amount of memory",
            "--memory-limit: memory limit for",
        ),
        ("attach --server x", "--server: 'x' is not a valid integer", "--server: process id of "),
        ("install emacs", "client: 'emacs' is not one of 'claude-code', ", "See `ipybox install --help`"),
    ],
)
def test_a_mistake_is_two_lines_with_what_to_do(arguments: str, message: str, hint: str):
    with pytest.raises(click.UsageError) as raised:
        parsed(arguments.split())

    first, second = explain(raised.value).splitlines()
    assert first.startswith(message)
    assert second.startswith(hint)


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        ("serve --sandbx", "unknown option '--sandbx': did you mean '--sandbox'?", "See `ipybox serve --help`"),
        (
            "--workspace /none",
            "--workspace: Directory '/none' does not exist",
            "--workspace: directory to use as the workspace",
        ),
        (
            "check --workspace /etc/passwd",
            "--workspace: Directory '/etc/passwd' is a file",
            "--workspace: directory to ",
        ),
        ("docker --workspace /none", "--workspace: Directory '/none' does not exist", "--workspace: directory to use "),
        ("--tool-server-port 0 docker", "unknown option '--tool-server-port'", "See `ipybox docker --help`"),
        ("--host x", "--host, --port and --allowed-host apply to HTTP only", "Add --transport http"),
        ("--transport http --allowed-host a/b", "--allowed-host: ", "--allowed-host: host name of "),
        ("clean .git", "unexpected argument: .git", "See `ipybox clean --help`"),
        ("trust --json", "--json needs --list", "Add --list"),
        ("trust --list --revoke", "--list and --revoke can't be given together", "See `ipybox trust --help`"),
        ("approvals allow", "a decision is `accept ID` or `decline ID [REASON]`", "`ipybox approvals` lists the "),
        ("--sandbox-config=x --workspace-config", "--sandbox-config and --workspace-config can't be ", "See `ipybox s"),
        ("--engine none", "no engines are defined because ", "See `ipybox serve --help`"),
        (
            "--memory-limit 64M",
            "memory_limit=64 MiB is too low: a kernel needs at least 128 MiB",
            "See `ipybox serve -",
        ),
        ("docker --sandbox-profile=workspace", "--sandbox-profile has no effect without the sandbox", "See `ipybox do"),
        ("--require-shell-escape", "--require-shell-escape requires --approve-shell-cmds", "Add --approve-shell-cmds"),
        ("--allowed-dir . --allowed-dir ../missing", "the allowed directory ", "See `ipybox serve --help`"),
    ],
)
def test_after_a_mistake_the_exit_status_is_2(arguments: str, message: str, hint: str, tmp_path: Path):
    done = run(*arguments.split(), cwd=tmp_path, XDG_CONFIG_HOME="/none")

    assert (done.returncode, done.stdout) == (2, b"")
    first, second = done.stderr.decode().splitlines()
    assert first.startswith(f"ipybox: {message}")
    assert second.startswith(hint)


def test_a_variable_of_the_environment_with_a_wrong_value_is_named(tmp_path: Path):
    done = run("--transport=http", "--port=0", cwd=tmp_path, IPYBOX_TOKEN="short")

    assert done.returncode == 2
    assert done.stderr.startswith(b"ipybox: IPYBOX_TOKEN: the token must be at least 16 characters long")


def test_a_workspace_that_this_user_may_not_read_is_refused():
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o711)
        closed = Path(place) / "closed"
        closed.mkdir(mode=0o000)
        (closed / "inside").mkdir() if os.geteuid() == 0 else None
        code = "import click, os, sys; from ipybox.cli.option import DIRECTORY\n"
        code += "if os.geteuid() == 0: os.setuid(65534)\n"
        code += "for path in sys.argv[1:]:\n    try: DIRECTORY['type'](path)\n"
        code += "    except click.BadParameter as exc: print(exc.message)"
        command = [sys.executable, "-c", code, str(closed), f"{closed}/inside"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, check=True)

    first, second = done.stdout.splitlines()
    assert first == f"Directory '{closed}' is not readable."
    assert second == f"Directory '{closed}/inside' does not exist."


def test_control_characters_of_arguments_do_not_reach_the_terminal(tmp_path: Path):
    done = run("--workspace", "\x1b[31m", cwd=tmp_path)

    assert b"\x1b" not in done.stderr
    assert b"Directory '\\x1b[31m' does not exist\n" in done.stderr


def test_the_version_is_that_of_the_package():
    assert run("-V").stdout.decode() == version("ipybox") + "\n"
    assert b"  -V, --version " in run("--help").stdout


def test_people_who_just_type_ipybox_get_the_help():
    assert on_terminal().startswith("Usage: ipybox [OPTIONS] COMMAND")


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_help_is_as_wide_as_the_terminal(columns: int):
    for command in ([], ["check"]):
        shown = re.sub(r"\x1b\[\d*m", "", on_terminal(*command, "--help", columns=columns))
        lines = shown.splitlines()
        assert "Usage: ipybox" in shown
        assert max(map(len, lines)) <= max(min(columns, 100), 70)  # a link or a command is not broken
        if columns == 80 and not command:
            assert 24 <= len(lines) <= 40


@pytest.mark.parametrize(
    ("env", "colored"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
    ids=["", "NO_COLOR", "dumb"],
)
def test_colors_are_for_terminals_that_want_them(env: dict[str, str], colored: bool, tmp_path: Path):
    save_tool(tmp_path)
    assert ("\x1b[1m" in on_terminal("--help", environment=env)) == colored
    assert ("\x1b[" in on_terminal("tools", "--workspace", str(tmp_path), environment=env)) == colored
    if colored:
        assert b"\x1b" not in run("--help").stdout + run("tools", "--workspace", str(tmp_path)).stdout


def test_a_tool_is_shown_in_color_and_an_unknown_one_is_a_failure(tmp_path: Path):
    save_tool(tmp_path)
    assert "\x1b[" in on_terminal("tools", "--workspace", str(tmp_path), "some.action")
    (tmp_path / "gentools/some/broken").mkdir()
    (tmp_path / "gentools/some/broken/api.py").write_text("def")

    done = run("tools", "xyzzy", cwd=tmp_path)

    assert done.returncode == 1
    first, *failure = done.stderr.decode().splitlines()
    assert "broken/api.py" in first
    assert failure == ["ipybox: no tool matches 'xyzzy'", "`ipybox tools` lists all 1"]


def save_tool(workspace: Path) -> None:
    package = workspace / "gentools" / "some" / "action"
    package.mkdir(parents=True)
    (package / "api.py").write_text('def run(text: str) -> int:\n    """Counts the words of a text."""\n')


def test_tools_are_a_table_on_a_terminal(tmp_path: Path):
    save_tool(tmp_path)
    shown = on_terminal("tools", "--workspace", str(tmp_path), environment={"TERM": "dumb"})

    assert re.search(r"^Tool \(1\) +Kind +What it does", shown)
    assert re.search(r"^some\.action +saved +Counts the words of a text", shown, re.MULTILINE)
    assert "`ipybox tools NAME` shows how to call one." in shown


@pytest.mark.kernel
def test_mistakes_in_saved_code_are_a_table_on_a_terminal(tmp_path: Path):
    save_tool(tmp_path)
    (tmp_path / "gentools/some/action/api.py").write_text("def")
    shown = on_terminal("check", "--workspace", str(tmp_path), environment={"TERM": "dumb"}, columns=200)

    assert re.search(r"^Where +Problem +What to do\s+gentools/some/action/", shown)


def test_a_pipe_that_nobody_reads_ends_a_command_quietly(tmp_path: Path):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        command = [sys.executable, "-m", "ipybox", "tools", "--json"]
        done = subprocess.run(
            command,
            stdout=closed,
            stderr=subprocess.PIPE,
            timeout=WAIT,
            check=False,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
        )

    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize(("arguments", "closed"), [("", "<&- >&- 2>&-"), ("tools", ">&-"), ("--help", ">&- 2>&-")])
def test_streams_may_be_closed(arguments: str, closed: str, tmp_path: Path):
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m ipybox {arguments} {closed}', sys.executable],
        capture_output=True,
        text=True,
        timeout=2 * WAIT,
        check=False,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
    )

    assert done.returncode == 0
    assert "Traceback" not in done.stderr


def test_internal_options_are_not_shown():
    shown = run("serve", "--help").stdout.decode()

    assert "--late-checks" not in shown
    assert "--trusted" not in shown
    for title in ("Workspace", "Approvals", "Sandbox", "Limits", "Kernels", "Results", "Transport", "Other machines"):
        assert f"\n{title}:\n" in shown


def test_settings_page_lists_all_commands():
    listed = (ROOT / "docs" / "settings.md").read_text().split("```")[1]
    assert sorted(re.findall(r"^ipybox (\w+)", listed, re.MULTILINE)) == sorted(SUMMARIES)
