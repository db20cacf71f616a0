"""`ipybox import`: registers MCP servers from other clients' configurations."""

import json
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from ipybox.audit.audit import AuditLog
from ipybox.audit.redaction import is_key
from ipybox.cli.command import as_json, command
from ipybox.cli.output import agreed, counted, say, say_json, say_lines, say_table, tell
from ipybox.cli.parsing import Failure
from ipybox.cli.running import run
from ipybox.code_exec.registration import generate_mcp_sources
from ipybox.mcp_apigen.render.naming import package_name
from ipybox.mcp_client.configs.clients import CLIENTS
from ipybox.mcp_client.configs.servers import ITSELF, ConfiguredServer, configured_servers, find_server
from ipybox.mcp_server.shown_call import ascii_name
from ipybox.support.errors import IpyboxError
from ipybox.support.names import MCPTOOLS
from ipybox.support.placeholders import fill_in
from ipybox.support.printable import printable
from ipybox.workspace.env_file import env_file_placeholders
from ipybox.workspace.seal import ImportedSecrets
from ipybox.workspace.writable import WritablePlaces

_MORE = """Without NAME and --all, it lists the servers and asks which to import. Listing starts none of them.

Secrets are stored outside of the workspace, for the imported server only. The other client's files don't change."""


@command("import", _MORE)
@click.argument("name", nargs=-1)
@click.option("--from", "client", type=click.Choice(CLIENTS), metavar="CLIENT", help="consider only this client")
@click.option("--all", "every", is_flag=True, help="import all servers, except those disabled in their client")
@click.option("--dry-run", is_flag=True, help="only show what would be registered")
@as_json
def import_servers(
    workspace: Path, name: Sequence[str], *, client: str | None, every: bool, dry_run: bool, as_json: bool
) -> int:
    """Lists servers or registers the chosen ones; returns the exit status."""
    os.chdir(workspace)
    servers, unreadable = configured_servers(workspace, WritablePlaces(workspace))
    servers = [server for server in servers if client in (None, server.client) and server.problem != ITSELF]
    for line in unreadable:
        tell(line)
    if every:
        servers = [server for server in servers if not (server.disabled or server.problem)]
        name = [server.name for server in servers]
    elif not (name or as_json):
        name = _asked(servers, ask=not dry_run)
    chosen, status = list[ConfiguredServer](), 0
    named = defaultdict[str, list[ConfiguredServer]](list)
    for server in servers:
        named[server.name].append(server)
    for each in dict.fromkeys(name):
        try:
            chosen.append(find_server(named.get(each, servers), each))
        except ValueError as exc:
            if not every:
                raise Failure(str(exc)) from exc
            tell(exc)  # the others can be imported
            status = 1
    if as_json and (dry_run or not chosen):
        say_json([_described(server) for server in chosen or servers])
    elif dry_run:
        for server in chosen:
            say(f"{server.package}: {server.command_line}")
    elif chosen:
        return max(status, run(_import(workspace, chosen, as_json=as_json)))
    return status


def _asked(servers: Sequence[ConfiguredServer], *, ask: bool) -> list[str]:
    """Shows all servers; returns the names of those that a person at the terminal chooses."""
    if not servers:
        say("no MCP servers found in other clients' configurations")
        return []
    rows = [
        (each.name, f"{each.client} ({each.scope})", _kind(each), each.problem or each.command_line) for each in servers
    ]
    say_table(["Server", "Client", "Kind", "Command"], rows)
    answer = ""
    if ask and sys.stdin.isatty():
        with suppress(EOFError):
            answer = input("Servers to import (names, separated by commas): ")
    return [name.strip() for name in answer.split(",") if name.strip()]


async def _import(workspace: Path, servers: Sequence[ConfiguredServer], *, as_json: bool) -> int:
    audit = AuditLog(workspace)
    audit.open()
    results: list[dict[str, Any]] = []
    for server in servers:
        results.append(result := _described(server))
        label = printable(server.name)
        if server.is_untrusted and not _confirmed(workspace, server, as_json=as_json):
            result["error"] = "a person must confirm it: import it in a terminal, without --json"
            continue
        try:
            name = package_name(server.package)
            ImportedSecrets(workspace).store(name, server.params, server.secrets)
            modules = await generate_mcp_sources(name, server.params, workspace / MCPTOOLS, audit=audit)
        except (IpyboxError, OSError, ValueError) as exc:
            result["error"] = str(exc)
            tell(f"{label}: {exc}")
            continue
        tokens = modules.definition_chars // 4
        result |= {"package": f"{MCPTOOLS}/{name}", "tools": len(modules), "tokens": tokens}
        if not as_json:
            say(f"{label}: {counted(len(modules), 'tool')} in {result['package']}", bold=True)
            for line in filter(None, [server.note, *modules.warnings()]):
                say(f"  {line}", fg="yellow")
            say(f"  in {server.client}, their definitions cost about {tokens:,} tokens (characters / 4) per request")
            say(f"  to remove it there: {printable(server.removal)}")
            if reading := len(modules.registration.offline):
                say(f"  only read: {reading}; after `ipybox trust {name}`, `--approve writes` doesn't ask about them")
    audit.close()
    if as_json:
        say_json(results)
    return 1 if any("error" in result for result in results) else 0


def _confirmed(workspace: Path, server: ConfiguredServer, *, as_json: bool) -> bool:
    if as_json:
        return False
    # All that its author may have written, except keys: a placeholder could stand for a command.
    written = {**env_file_placeholders(workspace), **server.secrets}
    shown = fill_in(server.params, {name: value for name, value in written.items() if not is_key(value)})
    say_lines(f"{ascii_name(server.name)}: {json.dumps(shown)}")
    question = f"A repository or code in a session may have written {server.file}. Start and register this server?"
    return agreed(question, f"{printable(server.name)} was not imported", option="")


def _kind(server: ConfiguredServer) -> str:
    if server.problem or server.disabled:
        return "unsupported" if server.problem else "disabled"
    return server.params.get("type", "stdio")


def _described(server: ConfiguredServer) -> dict[str, Any]:
    names = ("name", "client", "scope", "disabled", "params", "problem", "note", "removal")
    return {"file": str(server.file), "kind": _kind(server), **{name: getattr(server, name) for name in names}}
