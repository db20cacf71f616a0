"""Limits a settings file of the workspace until a person trusts it: it may restrict the user's settings, never open
more.

Deny lists are united, allow lists intersected. srt gets the entries of the file as absolute paths without links, and no
entry lies in another one: code that can write below such an entry can't replace it. Entries of `allowRead` may lie
where code can replace a directory with a link, so only the user's entries remain.
"""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from ipybox.sandbox.policy import DEEPEST_PATH, LONGEST_PATH, SandboxPolicy
from ipybox.sandbox.settings import SandboxSettings
from ipybox.support.names import expand
from ipybox.workspace.writable import is_below

_WILDCARD: Final = re.compile(r"[*?\[\]]")


def narrowed(own: SandboxSettings, wanted: SandboxSettings, workspace: Path) -> SandboxSettings:
    """Returns the user's settings, restricted by those of a file.

    Args:
        own: The user's settings.
        wanted: The user's settings with the keys of the file in place of those.
        workspace: The directory that relative paths mean.
    """
    return replace(
        own,
        source=f"{own.source} and {wanted.source}",
        deny_read=_united(own.deny_read, wanted.deny_read),
        allow_read=_common_allow_read(own, wanted, workspace),
        allow_write=_common_allow_write(own, wanted, workspace),
        deny_write=_united(own.deny_write, wanted.deny_write),
        allowed_domains=_common_hosts(own.allowed_domains, wanted.allowed_domains),
        denied_domains=_united(own.denied_domains, wanted.denied_domains),
        allow_local_binding=own.allow_local_binding and wanted.allow_local_binding,
        weaker_nested_sandbox=own.weaker_nested_sandbox and wanted.weaker_nested_sandbox,
        file=wanted.file,
    )


def opened(own: SandboxSettings, wanted: SandboxSettings, workspace: Path) -> dict[str, list[str]]:
    """Returns what a file opens beyond the user's settings: its entries as written, by the permission that they give.

    Args:
        own: The user's settings.
        wanted: The user's settings with the keys of the file in place of those.
        workspace: The directory that relative paths mean.
    """
    before, after = SandboxPolicy(own, workspace), SandboxPolicy(wanted, workspace)
    found = {
        "code may also write": [
            entry for entry in wanted.allow_write if entry not in own.allow_write and not _writable(entry, before)
        ],
        "code may also read": [
            entry for entry in wanted.allow_read if entry not in own.allow_read and not _readable(entry, before)
        ],
        "no longer hidden from code": [
            entry for entry in own.deny_read if entry not in wanted.deny_read and _is_readable_now(entry, after)
        ],
        "no longer protected from writing": [
            entry for entry in own.deny_write if entry not in wanted.deny_write and _is_writable_now(entry, after)
        ],
        "code may also reach the hosts": [
            entry for entry in wanted.allowed_domains if not _covers_host(own.allowed_domains, entry)
        ],
        "hosts no longer denied": [
            entry for entry in own.denied_domains if not _covers_host(wanted.denied_domains, entry)
        ],
    }
    if wanted.allow_local_binding and not own.allow_local_binding:
        found["code may listen on ports"] = ["network.allowLocalBinding"]
    if wanted.weaker_nested_sandbox and not own.weaker_nested_sandbox:
        found["the sandbox becomes weaker"] = ["enableWeakerNestedSandbox"]
    return {what: entries for what, entries in found.items() if entries}


def _united(own: Iterable[str], wanted: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*own, *wanted]))


# Paths


def _common_allow_write(own: SandboxSettings, wanted: SandboxSettings, workspace: Path) -> tuple[str, ...]:
    before, after = SandboxPolicy(own, workspace), SandboxPolicy(wanted, workspace)
    kept = [entry for entry in own.allow_write if entry in wanted.allow_write or _writable(entry, after)]
    places = [_place(entry, workspace) for entry in kept]
    added = {
        _place(entry, workspace)
        for entry in wanted.allow_write
        if entry not in own.allow_write and _writable(entry, before)
    }
    for place in sorted(added, key=lambda place: (len(place), place)):  # outer directories first
        if not any(is_below(place, other) for other in places):
            kept.append(place)
            places.append(place)
    return tuple(kept)


def _common_allow_read(own: SandboxSettings, wanted: SandboxSettings, workspace: Path) -> tuple[str, ...]:
    named = [_literal(_place(entry, workspace)) for entry in wanted.allow_read]

    def is_touched(entry: str) -> bool:
        place = _literal(_place(entry, workspace))
        return any(is_below(place, other) or is_below(other, place) for other in named)

    return tuple(entry for entry in own.allow_read if entry in wanted.allow_read or is_touched(entry))


def _writable(entry: str, policy: SandboxPolicy) -> bool:
    """Whether settings let code write all of an entry, apart from what they deny below it."""
    place = _place(entry, Path(policy.workspace))
    # `SandboxPolicy` ignores the kernel's virtual files, but srt would mount them.
    return (
        _is_answerable(place) and not place.startswith(("/dev", "/proc", "/sys")) and policy.write_denial(place) is None
    )


def _readable(entry: str, policy: SandboxPolicy) -> bool:
    """Returns whether an entry of `allowRead` opens nothing, because settings don't hide it."""
    place = _place(entry, Path(policy.workspace))
    return _is_answerable(place) and policy.read_denial(place) is None


def _is_readable_now(entry: str, policy: SandboxPolicy) -> bool:
    """Returns whether code may read files that an entry of `denyRead` hid, which the settings no longer contain."""
    workspace = Path(policy.workspace)
    places = [_literal(_place(path, workspace)) for path in expand(entry)]
    excepted = [_literal(_place(other, workspace)) for other in policy.settings.allow_read]
    # A variable that is not set here may be set where ipybox runs.
    return not places or any(
        not _is_answerable(place)
        or policy.read_denial(place) is None
        or any(is_below(other, place) or is_below(place, other) for other in excepted)
        for place in places
    )


def _is_writable_now(entry: str, policy: SandboxPolicy) -> bool:
    place = _literal(_place(entry, Path(policy.workspace)))
    # A pattern may stand for any path below its literal part.
    return (
        not _is_answerable(place)
        or policy.write_denial(place) is None
        or place != _place(entry, Path(policy.workspace))
    )


def _place(entry: str, workspace: Path) -> str:
    """Returns the absolute path that an entry names, without links as far as it has no wildcards."""
    path = os.path.join(workspace, os.path.expanduser(entry) if entry == "~" or entry.startswith("~/") else entry)
    while path.endswith("/**"):  # srt covers a directory together with its content
        path = path[:-3] or "/"
    literal = _literal(path)
    return os.path.normpath(os.path.realpath(literal) + path[len(literal) :])


def _literal(path: str) -> str:
    """Returns the directory up to which a pattern has no wildcards, or the path itself."""
    wildcard = _WILDCARD.search(path)
    return path if wildcard is None else path[: wildcard.start()].rpartition("/")[0] or "/"


def _is_answerable(place: str) -> bool:
    """Returns whether `SandboxPolicy` can decide on a place: it names one path, which is not too long."""
    return len(place) <= LONGEST_PATH and place.count("/") <= DEEPEST_PATH and not _WILDCARD.search(place)


# Hosts


def _common_hosts(own: Sequence[str], wanted: Sequence[str]) -> tuple[str, ...]:
    kept = [entry for entry in own if _covers_host(wanted, entry)]
    return _united(kept, [entry for entry in wanted if _covers_host(own, entry)])


def _covers_host(entries: Iterable[str], entry: str) -> bool:
    """Returns whether one of the entries covers all hosts and ports of another entry."""
    name, port = _name_and_port(entry)
    for other in entries:
        other_name, other_port = _name_and_port(other)
        if other_port in ("", port) and (other_name in ("*", name) or _is_subdomain(name, other_name)):
            return True
    return False


def _is_subdomain(name: str, pattern: str) -> bool:
    # srt never compares addresses with wildcards, because an address has no subdomains.
    return pattern.startswith("*.") and name.endswith(pattern[1:]) and not _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _name_and_port(entry: str) -> tuple[str, str]:
    name, port = re.fullmatch(r"(\[[^\]]*\]|[^:]*)(?::(.*))?", entry.lower(), re.DOTALL).groups("")  # pyright: ignore[reportOptionalMemberAccess] settings hold nothing else
    return name, port
