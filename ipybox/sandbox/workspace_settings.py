"""Sandbox settings from workspace files, as the command line applies them.

A file that code can write applies only after a person has agreed to exactly its content (`ipybox trust`): the hashed
bytes are the parsed bytes. Files elsewhere belong to the user.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ipybox.sandbox.settings import PROFILES, SandboxSettings, load_settings, parse_settings, unreadable
from ipybox.support.safe_directory import names_below
from ipybox.support.untrusted_paths import real_path
from ipybox.workspace.trust import SANDBOX_CONFIG, TrustStore, read_untrusted
from ipybox.workspace.writable import WritablePlaces

#: The effect of adding an entry to a list, or of removing one from a list of denials.
_MEANINGS = {
    "allow_write": "code may also write",
    "allow_read": "code may also read",
    "allowed_domains": "code may also reach the hosts",
    "deny_read": "no longer hidden from code",
    "deny_write": "no longer protected from writing",
    "denied_domains": "hosts no longer denied",
}


def sandbox_settings(
    store: TrustStore,
    *,
    profile: str = "default",
    allowed_domains: Sequence[str] = (),
    file: Path | None = None,
    discover: bool = False,
    program: Sequence[str] = (),
) -> SandboxSettings:
    """Returns the sandbox settings that the command line requests.

    Args:
        store: The workspace files that a person trusts.
        profile: The user's profile. Keys in a trusted file replace the profile's.
        allowed_domains: Additional hosts that the user allows.
        file: A settings file.
        discover: Whether to use `sandbox-config.json` in the workspace instead.
        program: The program that trusts files, for messages; by default, the current program.

    Raises:
        SandboxError: If the file can't be read, is trusted but invalid, or an allowed host is invalid.
    """
    base = PROFILES[profile]
    own = load_settings(base, allowed_domains)
    workspace = store.workspace
    if discover:
        file = workspace / SANDBOX_CONFIG if os.path.lexists(workspace / SANDBOX_CONFIG) else None
    if file is None:
        return replace(own, trust=store.command(profile, None, program)) if discover else own
    place = untrusted_path(file, own, workspace)
    try:
        data = file.read_bytes() if place is None else read_untrusted(place, workspace)
    except OSError as exc:
        raise unreadable(place or file, exc) from exc
    if place is None:
        return load_settings(parse_settings(data, file, base), allowed_domains)
    command = store.command(profile, None if place == workspace / SANDBOX_CONFIG else place, program)
    if store.trusts(place, data, profile):
        return replace(load_settings(parse_settings(data, place, base), allowed_domains), trust=command)
    return replace(own, file=place, untrusted=True, trust=command)


def untrusted_path(file: Path, own: SandboxSettings, workspace: Path) -> Path | None:
    """Returns the path to read a file from if code could write or redirect it; None if the file is the user's own."""
    spelled = Path(os.path.abspath(file.expanduser()))
    if not WritablePlaces(workspace, own).covers(spelled):
        return None
    real = Path(real_path(spelled))
    for path in (spelled, real):
        if (names := names_below(path, workspace)) is not None:
            return workspace.joinpath(*names)
    return real


def opened(wanted: SandboxSettings, own: SandboxSettings) -> list[str]:
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
