"""`ipybox trust`: shows what a workspace's files would allow, and stores the user's agreement."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from textwrap import fill

import click

from ipybox.cli.command import as_json, command, without_question
from ipybox.cli.output import agreed, say, say_json
from ipybox.cli.parsing import Mistake
from ipybox.sandbox.settings import PROFILES, parse_settings
from ipybox.sandbox.workspace_settings import opened
from ipybox.support.errors import PolicyError, SandboxError
from ipybox.support.printable import printable
from ipybox.tool_exec.approval.policy import POLICY_FILE, ApprovalPolicy
from ipybox.workspace.trust import SANDBOX_CONFIG, TrustStore, read_untrusted

#: The workspace files that ipybox reviews by default.
_KNOWN = (SANDBOX_CONFIG, POLICY_FILE)

_PROFILE = "profile to compare with (default: default)"


@command("trust", "FILE defaults to sandbox-config.json and ipybox.yaml in the workspace.")
@click.argument("file", nargs=-1, type=Path)
@click.option("--list", "listed", is_flag=True, help="list trusted files")
@click.option("--revoke", "revoked", is_flag=True, help="revoke trust in FILE, or in all files if none is given")
@click.option(
    "--sandbox-profile", "profile", type=click.Choice(PROFILES), metavar="NAME", default="default", help=_PROFILE
)
@without_question
@as_json
def trust(
    workspace: Path, file: Sequence[Path], *, listed: bool, revoked: bool, profile: str, yes: bool, as_json: bool
) -> int:
    """Shows what files would allow, asks for confirmation, and stores it; returns the exit status."""
    if as_json and not listed:
        raise Mistake("--json needs --list", "add --list")
    if listed and revoked:
        raise Mistake("--list and --revoke can't be given together")
    store = TrustStore(workspace)
    if listed:
        return _show(store, as_json=as_json)
    if revoked:
        return _revoke(store, file)
    known = [workspace / name for name in _KNOWN if os.path.lexists(workspace / name)]
    asked = [each.absolute() for each in file] or known
    if not asked:
        say(f"nothing to trust: {workspace} has neither {' nor '.join(_KNOWN)}")
        return 0
    return max(_trust_file(store, each, profile, yes) for each in asked)


def _show(store: TrustStore, *, as_json: bool) -> int:
    agreements = store.agreements()
    if as_json:
        say_json([{**asdict(each), "current": store.is_current(each)} for each in agreements])
        return 0
    if not agreements:
        say(f"nothing is trusted in {store.workspace}")
    for each in agreements:
        profile = f" with the profile {each.profile!r}" if each.profile else ""
        changed = "" if store.is_current(each) else "; the file has changed since and is no longer trusted"
        say(f"{each.file}{profile}: trusted with the SHA-256 hash {each.sha256}{changed}")
    return 0


def _revoke(store: TrustStore, files: Sequence[Path]) -> int:
    revoked = store.revoke([file.absolute() for file in files])
    for name in dict.fromkeys(agreement.file for agreement in revoked):
        say(f"{name} is no longer trusted; restart ipybox to apply this, in Claude Code with /mcp")
    if not revoked and files:
        say("nothing to revoke: none of these files is trusted")
    elif not revoked:
        say(f"nothing is trusted in {store.workspace}")
    return 0


def _trust_file(store: TrustStore, file: Path, profile: str, yes: bool) -> int:
    is_policy = file.name == POLICY_FILE
    profile = "" if is_policy else profile
    try:
        data = read_untrusted(file, store.workspace)
        if is_policy:
            lines = _opened_calls(store, file, data)
        else:
            lines = opened(parse_settings(data, file, PROFILES[profile]), PROFILES[profile])
        if is_policy and not lines:
            say(f"{file}: nothing to trust, because it only restricts what code may do")
            return 0
        if store.trusts(file, data, profile):
            say(f"{file} is already trusted")
            return 0
        say(f"{file} allows {'more than your own settings:' if lines else 'nothing beyond your own settings'}")
        for line in lines:
            say(fill(printable(line), 100, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False))
        question = f"Code in a session may have created {file}. Trust it with this content?"
        if not yes and not agreed(question, "not trusted"):
            return 1
        store.trust(file, data, profile)
    except (OSError, PolicyError, SandboxError) as exc:
        say(f"can't trust {file}: {getattr(exc, 'strerror', None) or exc}")
        return 1
    say(f"{file} is trusted until it changes; restart ipybox to apply it, in Claude Code with /mcp")
    return 0


def _opened_calls(store: TrustStore, file: Path, data: bytes) -> list[str]:
    try:
        allowed = ApprovalPolicy(data.decode(), store.workspace, source=file.name).allowed
    except UnicodeDecodeError as exc:
        raise PolicyError(f"{file.name} is not UTF-8") from exc
    return ["tool calls allowed without asking:", *(f"- {line}" for line in allowed)] if allowed else []
