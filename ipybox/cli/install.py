"""`ipybox install`: adds ipybox to an MCP client, by the client's own command if it has one.

Other files than ipybox's own are never edited: for a client without a command, the file and its new part are printed.
What each client needs was measured with the real one, except for `UNTRIED`.
"""

import json
import os
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Any

import click

from ipybox.cli.command import command
from ipybox.cli.option import workspace_option
from ipybox.cli.option_table import command_options
from ipybox.cli.output import say, say_table, tell
from ipybox.cli.parsing import Failure
from ipybox.mcp_client.configs.clients import FILES
from ipybox.workspace.trust import own_program
from ipybox.workspace.writable import dropped_program

FORMS = "in its forms (not in headless runs), or with `ipybox approvals --watch`"
NO_FORMS = "with `ipybox approvals --watch`, as it shows no forms; or use a rules file"
UNTRIED = "in its forms; if it shows none, with `ipybox approvals --watch`"


@dataclass(frozen=True)
class Client:
    """What an MCP client needs.

    Attributes:
        approvals: How its user answers approval requests.
        add: Its command that adds a server, followed by ipybox's command; empty if it has none.
        follows_project: Whether it starts ipybox in the directory of each project.
        advice: What its user must do beside that.
    """

    approvals: str
    add: str = ""
    follows_project: bool = True
    advice: str = ""


#: Variables for ipybox's directories.
_PLACES = ("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "JUPYTER_RUNTIME_DIR")

_CODEX = """In ~/.codex/config.toml, add to [mcp_servers.ipybox] what its command can't set:
  required = true         # so that the first turn waits for ipybox
  tool_timeout_sec = 700  # for cells that take more than 5 minutes"""
_CLINE = """Calls end after 60 s unless you add "timeout": 700 to ipybox's entry in
~/.cline/data/settings/cline_mcp_settings.json."""
_GEMINI = "It starts servers only in folders that you trust: start `gemini` there once, and trust the folder."
_QWEN = """For pictures, set this in ~/.qwen/settings.json:
  {"model": {"generationConfig": {"modalities": {"image": true}}}}"""

CLIENTS = {
    "claude-code": Client(FORMS, "claude mcp add --scope user ipybox --"),
    "codex": Client(FORMS, "codex mcp add ipybox --", advice=_CODEX),
    "copilot": Client(FORMS, "copilot mcp add ipybox --"),
    "gemini": Client(NO_FORMS, "gemini mcp add --scope user ipybox", advice=_GEMINI),
    "opencode": Client(NO_FORMS, "opencode mcp add ipybox --"),
    "qwen": Client(NO_FORMS, "qwen mcp add --scope user ipybox", advice=_QWEN),
    # Its daemon outlives the directory that it started in.
    "cline": Client(NO_FORMS, "cline mcp install ipybox --yes --", follows_project=False, advice=_CLINE),
    "vscode": Client(UNTRIED, "code --add-mcp", follows_project=False),
    "cursor": Client(UNTRIED, follows_project=False),
    "zed": Client(UNTRIED, follows_project=False),
    "claude-desktop": Client(UNTRIED, follows_project=False),
}

_MORE = "Runs the client's own command, or prints what to add to which file. Without CLIENT, it lists the clients."
_WORKSPACE = workspace_option(default="each project; the current directory if the client can't tell the project")


@command("install", _MORE, options=[_WORKSPACE, *command_options("install")])
@click.argument("client", required=False, type=click.Choice(list(CLIENTS)), metavar="[CLIENT]")
@click.option("--dry-run", is_flag=True, help="only show the client's command")
def install(workspace: Path, given: dict[str, Any], *, client: str | None, dry_run: bool) -> int:
    """Adds ipybox to a client, or lists the clients; returns the exit status."""
    if client is None:
        rows = [(name, each.add or "prints what to add to its file") for name, each in CLIENTS.items()]
        say_table(["Client", "Command"], rows)
        return 0
    traits = CLIENTS[client]
    serve = _serve_command(workspace, given, traits)
    if traits.add:
        entry = [json.dumps({"name": "ipybox", **_entry(serve)})] if client == "vscode" else serve
        adding = [*shlex.split(traits.add), *entry]
        if client == "codex":  # it passes on few variables
            places = [f"--env={name}={os.environ[name]}" for name in _PLACES if name in os.environ]
            adding[adding.index("--") : adding.index("--")] = places
        say(shlex.join(adding), bold=True)
        if not dry_run:
            _run(adding, workspace)
    else:
        file = next(each for each in FILES if each.client == client)
        path = str([*file.paths(workspace)][-1]).replace(os.path.expanduser("~"), "~", 1)  # the last is the user's
        say(f"add this to {path}:\n{json.dumps({file.key: {'ipybox': _entry(serve)}}, indent=2)}")
    if traits.advice:
        say(traits.advice)
    if given.get("approve", "auto") != "auto":
        say(f"You answer approval requests {traits.approvals}.")
    return 0


def _serve_command(workspace: Path, given: dict[str, Any], client: Client) -> list[str]:
    program, *rest = own_program()
    # Clients with windows don't have the PATH of a terminal.
    serve = [which(program) or program, *rest, "serve"]
    if "archive-v0" in Path(serve[0]).parts:
        tell("this ipybox is in uv's cache, which uv may empty: install it first, with `uv tool install`")
    if "workspace" in given or not client.follows_project:
        serve += ["--workspace", str(workspace)]
    if "sandbox" in given:
        serve.append("--sandbox")
    if "approve" in given:
        serve += ["--approve", str(given["approve"])]
    return serve


def _entry(serve: Sequence[str]) -> dict[str, Any]:
    program, *arguments = serve
    return {"command": program, "args": arguments}


def _run(adding: Sequence[str], workspace: Path) -> None:
    """Runs a client's command in the workspace, as some clients add servers to a directory."""
    name = adding[0]
    if (program := which(name)) is None:
        unsafe = dropped_program(name)
        problem = f"code in the workspace could replace {unsafe}: install it elsewhere"
        raise Failure(f"{name} is not on your PATH" if unsafe is None else problem)
    done = subprocess.run([program, *adding[1:]], cwd=workspace, check=False)
    if done.returncode:
        raise Failure(f"`{name}` failed with status {done.returncode}")
