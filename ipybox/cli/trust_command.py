"""`ipybox trust`: shows a person what the files of a workspace open, and stores the agreement."""

import hashlib
import os
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ipybox.cli.output import agreed, say_json
from ipybox.sandbox.settings import PROFILES, SandboxSettings, parse_settings
from ipybox.support.errors import PolicyError, SandboxError
from ipybox.support.printable import printable
from ipybox.tool_exec.approval.policy import POLICY_FILE, ApprovalPolicy
from ipybox.workspace.trust import SANDBOX_CONFIG, Agreement, TrustStore, read_untrusted

#: Files of a workspace that ipybox would trust.
_KNOWN = (SANDBOX_CONFIG, POLICY_FILE)

#: The meaning of an entry that a settings file adds to a list, or removes from it, by the field of `SandboxSettings`.
_ADDED = {
    "allow_write": "code may also write",
    "allow_read": "code may also read",
    "allowed_domains": "code may also reach the hosts",
}
_REMOVED = {
    "deny_read": "no longer hidden from code",
    "deny_write": "no longer protected from writing",
    "denied_domains": "hosts no longer denied",
}

_WIDTH = 100


def trust(workspace: Path, files: Sequence[Path], *, profile: str, yes: bool) -> int:
    """Shows what files open, asks whether that is right, and remembers the answer. Returns the exit status.

    Args:
        workspace: The workspace.
        files: The files; by default those that ipybox looks for.
        profile: The user's sandbox profile, with which settings of the sandbox are compared.
        yes: Whether to agree without a question.
    """
    store = TrustStore(workspace)
    asked = [Path(file).absolute() for file in files] or [
        workspace / name for name in _KNOWN if os.path.lexists(workspace / name)
    ]
    if not asked:
        _say(f"nothing to trust: {workspace} has neither {' nor '.join(_KNOWN)}")
        return 0
    return max(_trust_file(store, file, profile, yes) for file in asked)


def show(workspace: Path, *, as_json: bool = False) -> int:
    """Prints the trusted files of a workspace. Returns the exit status."""
    agreements = TrustStore(workspace).agreements()
    if as_json:
        say_json([{**asdict(each), "current": _is_current(workspace, each)} for each in agreements])
        return 0
    if not agreements:
        _say(f"nothing is trusted in {workspace}")
    for agreement in agreements:
        profile = f" with the profile {agreement.profile!r}" if agreement.profile else ""
        changed = "" if _is_current(workspace, agreement) else "; the file has changed since and is no longer trusted"
        _say(f"{agreement.file}{profile}: trusted with the SHA-256 hash {agreement.sha256}{changed}")
    return 0


def _is_current(workspace: Path, agreement: Agreement) -> bool:
    """Returns whether a file still has the trusted content."""
    try:
        data = read_untrusted(workspace / agreement.file, workspace)
    except OSError:
        return False
    return hashlib.sha256(data).hexdigest() == agreement.sha256


def revoke(workspace: Path, files: Sequence[Path]) -> int:
    """Removes the trust in files of a workspace. Returns the exit status."""
    revoked = TrustStore(workspace).revoke([Path(file).absolute() for file in files])
    for name in dict.fromkeys(agreement.file for agreement in revoked):
        _say(f"{name} is no longer trusted; restart ipybox to apply this, in Claude Code with /mcp")
    if not revoked:
        _say("nothing to revoke: none of these files is trusted" if files else f"nothing is trusted in {workspace}")
    return 0


def _trust_file(store: TrustStore, file: Path, profile: str, yes: bool) -> int:
    is_policy = file.name == POLICY_FILE
    profile = "" if is_policy else profile
    try:
        data = read_untrusted(file, store.workspace)
        lines = _opened_calls(store, file, data) if is_policy else _opened_by_settings(file, data, PROFILES[profile])
    except OSError as exc:
        _say(f"can't trust {file}: {exc.strerror or exc}")
        return 1
    except (PolicyError, SandboxError) as exc:
        _say(f"can't trust {file}: {exc}")
        return 1
    if is_policy and not lines:
        _say(f"{file}: nothing to trust, because it only restricts what code may do")
        return 0
    if store.trusts(file, data, profile):
        _say(f"{file} is already trusted")
        return 0
    _say(f"{file} allows {'more than your own settings:' if lines else 'nothing beyond your own settings'}")
    for line in lines:
        print(
            textwrap.fill(
                printable(line), _WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
            )
        )
    if not yes and not agreed(f"Code in a session may have created {file}. Trust it with this content?", "not trusted"):
        return 1
    try:
        store.trust(file, data, profile)
    except OSError as exc:
        _say(f"can't trust {file}: {exc}")
        return 1
    _say(f"{file} is trusted until it changes; restart ipybox to apply it, in Claude Code with /mcp")
    return 0


def _opened_by_settings(file: Path, data: bytes, own: SandboxSettings) -> list[str]:
    """Returns a line for each list of a settings file that opens something: what it adds, or no longer denies."""
    wanted = parse_settings(data, file, own)
    found: dict[str, list[str]] = {}
    for field, what in _ADDED.items():
        found[what] = [entry for entry in getattr(wanted, field) if entry not in getattr(own, field)]
    for field, what in _REMOVED.items():
        found[what] = [entry for entry in getattr(own, field) if entry not in getattr(wanted, field)]
    if wanted.allow_local_binding and not own.allow_local_binding:
        found["code may listen on ports"] = ["network.allowLocalBinding"]
    if wanted.weaker_nested_sandbox and not own.weaker_nested_sandbox:
        found["the sandbox becomes weaker"] = ["enableWeakerNestedSandbox"]
    return [f"{what}: {', '.join(entries)}" for what, entries in found.items() if entries]


def _opened_calls(store: TrustStore, file: Path, data: bytes) -> list[str]:
    try:
        text = data.decode()
    except UnicodeDecodeError as exc:
        raise PolicyError(f"{file.name} is not UTF-8") from exc
    allowed = ApprovalPolicy(text, store.workspace, source=file.name).allowed
    return ["tool calls allowed without asking:", *(f"- {line}" for line in allowed)] if allowed else []


def _say(text: str) -> None:
    print(printable(text))
