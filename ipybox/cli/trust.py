"""`ipybox trust`: shows what a workspace's files and MCP servers would allow, and stores the user's agreement."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from ipybox.cli.command import as_json, command, without_question
from ipybox.cli.output import agreed, counted, say, say_json, say_lines
from ipybox.cli.parsing import Mistake
from ipybox.codeact.library import MCPTOOLS
from ipybox.mcp_server.shown_call import ascii_name
from ipybox.sandbox.settings import PROFILES, SandboxSettings, parse_settings
from ipybox.support.errors import PolicyError, SandboxError
from ipybox.support.printable import printable
from ipybox.tool_exec.approval.policy import POLICY_FILE, ApprovalPolicy
from ipybox.workspace.registrations import Registration, registrations
from ipybox.workspace.trust import SANDBOX_CONFIG, TrustStore, read_untrusted

#: The workspace files that ipybox reviews by default.
_KNOWN = (SANDBOX_CONFIG, POLICY_FILE)

#: The effect of adding an entry to a list, or of removing one from a list of denials.
_MEANINGS = {
    "allow_write": "code may also write",
    "allow_read": "code may also read",
    "allowed_domains": "code may also reach the hosts",
    "deny_read": "no longer hidden from code",
    "deny_write": "no longer protected from writing",
    "denied_domains": "hosts no longer denied",
}

_PROFILE = "profile to compare with (default: default)"


@command("trust", "NAME is a file or an MCP server. By default, this reviews all of the workspace's.")
@click.argument("name", nargs=-1, type=Path)
@click.option("--list", "listed", is_flag=True, help="list trusted files and servers")
@click.option("--revoke", "revoked", is_flag=True, help="revoke trust in NAME, or all trust if none is given")
@click.option(
    "--sandbox-profile", "profile", type=click.Choice(PROFILES), metavar="NAME", default="default", help=_PROFILE
)
@without_question
@as_json
def trust(
    workspace: Path, name: Sequence[Path], *, listed: bool, revoked: bool, profile: str, yes: bool, as_json: bool
) -> int:
    """Shows what files and servers would allow, asks for confirmation, and stores it; returns the exit status."""
    if as_json and not listed:
        raise Mistake("--json needs --list", "add --list")
    if listed and revoked:
        raise Mistake("--list and --revoke can't be given together")
    store, registered = TrustStore(workspace), registrations(workspace.resolve() / MCPTOOLS)
    servers = {each: record for each, record in registered.items() if not name or Path(each) in name}
    files = [each.absolute() for each in name if str(each) not in servers]
    if listed:
        return _show(store, servers, as_json=as_json)
    if revoked:
        return _revoke(store, files, servers, everything=not name)
    asked = files or [workspace / each for each in _KNOWN if not name and os.path.lexists(workspace / each)]
    reading = {each: record for each, record in servers.items() if record.offline and (name or record.undecided)}
    for each in (servers.keys() - reading) if name else ():
        say(f"MCP server {ascii_name(each)}: nothing to trust; it says that {servers[each].split}")
    if not asked and not reading and not name:
        say(f"nothing to trust: {workspace} has neither {' nor '.join(_KNOWN)}")
    statuses = [_trust_file(store, each, profile, yes) for each in asked]
    return max([0, *statuses, *(_trust_server(each, record, yes) for each, record in reading.items())])


def _show(store: TrustStore, servers: Mapping[str, Registration], *, as_json: bool) -> int:
    agreements = store.agreements()
    unasked = {name: [*record.unasked] for name, record in servers.items() if record.unasked}
    if as_json:
        files = [{**asdict(each), "current": store.is_current(each)} for each in agreements]
        say_json([*files, *({"server": name, "tools": tools} for name, tools in unasked.items())])
        return 0
    if not agreements and not unasked:
        say(f"nothing is trusted in {store.workspace}")
    for each in agreements:
        profile = f" with the profile {each.profile!r}" if each.profile else ""
        changed = "" if store.is_current(each) else "; the file has changed since and is no longer trusted"
        say(f"{each.file}{profile}: trusted with the SHA-256 hash {each.sha256}{changed}")
    for name, tools in unasked.items():
        _say_lines([f"MCP server {ascii_name(name)} runs without asking: {_names(tools)}"], "")
    return 0


def _revoke(store: TrustStore, files: Sequence[Path], servers: Mapping[str, Registration], *, everything: bool) -> int:
    revoked = [agreement.file for agreement in store.revoke(files)] if files or everything else []
    for name, record in servers.items():
        if any(tool.unasked is not None for tool in record.tools.values()):
            record.agree(None)
            revoked.append(f"MCP server {ascii_name(name)}")
    for name in dict.fromkeys(revoked):
        say(f"{name} is no longer trusted; restart ipybox to apply this, in Claude Code with /mcp")
    if not revoked and not everything:
        say("nothing to revoke: none of these files is trusted")
    elif not revoked:
        say(f"nothing is trusted in {store.workspace}")
    return 0


def _trust_server(name: str, record: Registration, yes: bool) -> int:
    unasked = record.offline
    if {*unasked} <= {*record.unasked}:
        say(f"MCP server {ascii_name(name)} is already trusted: {_running(record)} without asking")
        return 0
    say(f"MCP server {ascii_name(name)} says: {record.split}")
    away = [each for each in record.reading if each not in unasked]
    _say_lines([f"started as: {record.launch}", f"stay offline: {_names(unasked)}"])
    _say_lines([f"reach the internet, so calls still ask: {_names(away)}"] if away else [])
    question = f"ipybox can't check this. Let the {len(unasked)} that stay offline run without asking?"
    if not yes and not agreed(question, "not trusted"):
        return 1
    record = record.agree([*unasked, *record.unasked])
    say(f"MCP server {ascii_name(name)}: {_running(record)} without asking until changed")
    return 0


def _running(record: Registration) -> str:
    return f"{counted(len(record.unasked), 'tool')} {'runs' if len(record.unasked) == 1 else 'run'}"


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(ascii_name, names))


def _say_lines(lines: Sequence[str], indent: str = "  ") -> None:
    for line in lines:
        say_lines(f"{indent}{printable(line)}", words=True)


def _trust_file(store: TrustStore, file: Path, profile: str, yes: bool) -> int:
    is_policy = file.name == POLICY_FILE
    profile = "" if is_policy else profile
    try:
        data = read_untrusted(file, store.workspace)
        if is_policy:
            lines = _opened_calls(store, file, data)
        else:
            lines = _opened_places(parse_settings(data, file, PROFILES[profile]), PROFILES[profile])
        if is_policy and not lines:
            say(f"{file}: nothing to trust, because it only restricts what code may do")
            return 0
        if store.trusts(file, data, profile):
            say(f"{file} is already trusted")
            return 0
        say(f"{file} allows {'more than your own settings:' if lines else 'nothing beyond your own settings'}")
        _say_lines(lines)
        question = f"Code in a session may have created {file}. Trust it with this content?"
        if not yes and not agreed(question, "not trusted"):
            return 1
        store.trust(file, data, profile)
    except FileNotFoundError:
        say(f"can't trust {file}: it does not exist, and no MCP server named {ascii_name(file.name)} is registered")
        return 1
    except (OSError, PolicyError, SandboxError) as exc:
        say(f"can't trust {file}: {getattr(exc, 'strerror', None) or exc}")
        return 1
    say(f"{file} is trusted until it changes; restart ipybox to apply it, in Claude Code with /mcp")
    return 0


def _opened_places(wanted: SandboxSettings, own: SandboxSettings) -> list[str]:
    """Returns what `wanted` permits beyond `own`: a line per list, with the entries added or no longer denied."""
    found: dict[str, list[str]] = {}
    for field, meaning in _MEANINGS.items():
        more, less = (own, wanted) if field.startswith("den") else (wanted, own)
        found[meaning] = [entry for entry in getattr(more, field) if entry not in getattr(less, field)]
    if wanted.allow_local_binding and not own.allow_local_binding:
        found["code may listen on ports"] = ["network.allowLocalBinding"]
    if wanted.weaker_nested_sandbox and not own.weaker_nested_sandbox:
        found["the sandbox becomes weaker"] = ["enableWeakerNestedSandbox"]
    return [f"{meaning}: {', '.join(entries)}" for meaning, entries in found.items() if entries]


def _opened_calls(store: TrustStore, file: Path, data: bytes) -> list[str]:
    try:
        allowed = ApprovalPolicy(data.decode(), store.workspace, source=file.name).allowed
    except UnicodeDecodeError as exc:
        raise PolicyError(f"{file.name} is not UTF-8") from exc
    return ["tool calls allowed without asking:", *(f"- {line}" for line in allowed)] if allowed else []
