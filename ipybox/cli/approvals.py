"""`ipybox approvals`: shows the tool calls that wait for a decision in all of the user's MCP servers, and decides."""

import asyncio
import json
import shlex
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from ipybox.cli.command import command
from ipybox.cli.option import workspace_option
from ipybox.cli.output import say, say_lines, tell
from ipybox.cli.parsing import Mistake
from ipybox.cli.running import run
from ipybox.mcp_server.attach_socket import answers, running_servers
from ipybox.support.printable import printable

#: Characters of an id that are shown, and needed to decide. Ids are random, so few calls' start alike.
MIN_ID = 6

#: Seconds between two searches for servers that have started.
_SEARCH_INTERVAL = 1.0
#: Seconds for a server to send a line, unless it is watched: a stopped server must not hide the others' calls.
_RESPONSE_TIMEOUT = 10.0

_HELP = """Without arguments, it lists the calls. `accept ID` and `decline ID [REASON]` decide; agents see the reason.

With --watch, calls wait for you even if the client has no forms or closes them, as `claude -p` and editors do."""
_HOW = "enter `a ID` to accept a call, or `d ID REASON` to decline it"


@command("approvals", _HELP, options=[workspace_option()])
@click.option("--watch", is_flag=True, help="show calls as they arrive, until Ctrl-C")
@click.option("--notify", metavar="CMD", help="watch, and run CMD with each call as JSON on its stdin")
@click.argument("decision", nargs=-1, metavar="[accept|decline ID [REASON]]")
def approvals(
    workspace: Path, given: Mapping[str, Any], *, watch: bool, notify: str | None, decision: Sequence[str]
) -> int:
    """Lists or watches calls, or decides on one; returns the exit status."""
    place = workspace if "workspace" in given else None
    match [*decision]:
        case []:
            return run(_Watch(place, shlex.split(notify or "")).run() if watch or notify else _list(place))
        case ["accept" | "decline" as verb, call_id, *reason]:
            return run(_decide(place, verb, call_id, *reason))
        case _:
            raise Mistake("a decision is `accept ID` or `decline ID [REASON]`", "`ipybox approvals` lists the calls")


async def _messages(server: Path, **request: object) -> AsyncGenerator[dict[str, Any]]:
    """Yields a server's answers to a request; says so if it does not respond."""
    timeout = None if request.get("approvals") == "watch" else _RESPONSE_TIMEOUT
    try:
        async for answer in answers(server, timeout, request):
            yield answer
    except TimeoutError:
        tell(f"the MCP server with process id {server.stem.rpartition('-')[2]} does not respond")
    except OSError:
        pass  # the server has ended


async def _waiting(workspace: Path | None, start: str = "") -> list[tuple[Path, dict[str, Any]]]:
    """Returns the waiting calls whose ids start like this, each with its server."""
    servers = running_servers(workspace).values()
    return [(server, call) for server in servers async for call in _messages(server, approvals="list", id=start)]


async def _list(workspace: Path | None) -> None:
    calls = await _waiting(workspace)
    for _, call in calls:
        _show(call)
    if not calls:
        say("No call is waiting for your decision.")


async def _decide(workspace: Path | None, verb: str, call_id: str, *reason: str) -> int:
    """Decides on the call whose id starts like this, in whichever server; returns the exit status."""
    if len(call_id) < MIN_ID:
        tell(f"an id needs at least {MIN_ID} characters, to tell calls apart")
        return 1
    found = [(server, call["id"]) for server, call in await _waiting(workspace, call_id)]
    if len(found) > 1:
        tell(f"several calls have an id that starts with {call_id!r}: {', '.join(each for _, each in found)}")
        return 1
    for server, each in found:
        async for answer in _messages(server, decide=each, accept=verb[0] == "a", reason=" ".join(reason) or None):
            if "done" in answer:
                say(answer["done"], dim=True)
                return 0
    tell(f"no call with the id {call_id} is waiting: it may have been decided, or its cell has ended")
    return 1


def _show(call: Mapping[str, Any]) -> None:
    made = datetime.fromisoformat(call["created_at"]).astimezone()
    say(f"{call['id'][:MIN_ID]}  {made:%H:%M:%S}  {printable(call['workspace'])}", bold=True)
    say_lines(call["call"])


@dataclass
class _Watch:
    """A terminal that shows calls as they arrive, and reads decisions."""

    _workspace: Path | None
    _notify: list[str]
    _notifying: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self) -> None:
        """Watches all servers, until cancelled."""
        watched: dict[Path, asyncio.Task[None]] = {}
        tell(f"waiting for calls until Ctrl-C{f'; {_HOW}' if sys.stdin.isatty() else ''}")
        async with asyncio.TaskGroup() as tasks:
            if sys.stdin.isatty():
                asyncio.get_running_loop().add_reader(sys.stdin, self._read_decision, tasks)
            while True:
                for server in running_servers(self._workspace).values():
                    if server not in watched or watched[server].done():
                        watched[server] = tasks.create_task(self._follow(server, tasks))
                await asyncio.sleep(_SEARCH_INTERVAL)

    async def _follow(self, server: Path, tasks: asyncio.TaskGroup) -> None:
        async for message in _messages(server, approvals="watch"):
            if "watching" in message:
                tell(f"watching the MCP server in {printable(message['watching'])}")
            elif "ended" in message:
                say(f"{message['ended'][:MIN_ID]}  {message['state']}", dim=True)
            else:
                _show(message)
            if self._notify and "call" in message:
                tasks.create_task(self._run_notify(message))

    async def _run_notify(self, call: Mapping[str, Any]) -> None:
        async with self._notifying:  # one at a time: there can be thousands of calls
            process = None
            try:
                process = await asyncio.create_subprocess_exec(*self._notify, stdin=asyncio.subprocess.PIPE)
                await process.communicate(json.dumps(call).encode())
            except OSError as exc:
                tell(f"can't run {self._notify[0]}: {exc.strerror}")
            finally:
                if process is not None and process.returncode is None:
                    process.kill()

    def _read_decision(self, tasks: asyncio.TaskGroup) -> None:
        """Reads a line that the user has entered. It names its call, because others may end and arrive meanwhile."""
        words = (line := sys.stdin.readline()).split()
        if not line:  # end of file: only watch from now on
            asyncio.get_running_loop().remove_reader(sys.stdin)
        elif len(words) < 2 or words[0] not in ("a", "accept", "d", "decline"):
            tell(_HOW)
        else:
            tasks.create_task(_decide(self._workspace, *words))
