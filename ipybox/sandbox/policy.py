"""Applies a sandbox's settings to one path or host, like srt, and returns the rule that denies it.

It is used for messages, and for file transfers on the host (`ipybox/kernel_mgr/transfer`), which obey the same
settings. It doesn't confine code in the sandbox; srt does. Paths may come from the sandbox, so no file is opened, and
long or deep paths aren't resolved.
"""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from ipybox.sandbox.path_patterns import (
    Denial,
    PathPattern,
    PathPatterns,
    Reason,
    components_of,
    patterns_of,
)
from ipybox.sandbox.settings import SandboxSettings
from ipybox.support.names import OPENABLE, STATE_DIR, expand, is_protected
from ipybox.support.untrusted_paths import real_path

#: Maximum characters and components of a path; longer or deeper paths aren't checked.
_LONGEST_PATH: Final = 1024
_DEEPEST_PATH: Final = 64

#: System directories that no entry covers, and that have their own rules.
_SYSTEM: Final = (["dev"], ["proc"], ["sys"])

#: Characters and components up to which a path is checked regardless of the workspace's path.
LONGEST_PATH: Final = 1000
DEEPEST_PATH: Final = 60


@dataclass(frozen=True)
class HostRule:
    """The entry of `allowedDomains` or `deniedDomains` that covers a host."""

    entry: str
    allowed: bool


@dataclass(frozen=True, eq=False)
class SandboxPolicy:
    """A sandbox's rules for paths and hosts, as srt applies them. Relative paths start at the workspace."""

    settings: SandboxSettings
    workspace: Path
    _: KW_ONLY
    #: Paths that ipybox hides regardless of the settings.
    hidden: Sequence[str] = ()
    #: Additional paths that can be read, or written.
    readable: Sequence[str] = ()
    writable: Sequence[str] = ()
    #: Additional paths that are read-only regardless of the settings.
    read_only: Sequence[str] = ()
    #: Additional paths above the workspace that match `deny_read`.
    above: Sequence[str] = ()
    #: Additional paths that the workspace scan hides, or makes read-only.
    secret: Sequence[str] = ()
    closed: Sequence[str] = ()

    def read_denial(self, path: str) -> Denial | None:
        """Returns the denial that hides a path; None if the settings allow reading it.

        The most specific entry that covers a path decides; if two are equally specific, `allowRead` does. For a link,
        the rules for its target also apply.
        """
        for form in self._forms(path):
            denied = self._deny_read.deepest(form)
            if denied is not None and denied[0] > self._allow_read.covered_depth(form):
                return _rule(*denied, form)
        return None

    def write_denial(self, path: str) -> Denial | None:
        """Returns the denial that makes a path read-only; None if the settings allow writing it."""
        forms = self._forms(path)
        for form in forms:
            rule = _covering(self._deny_write, form) or self._protects(form) or _covering(self._own_read_only, form)
            if rule is not None:
                return rule
        # Only the real path counts; whether a link to it is inside or outside doesn't matter.
        outside = forms and self._allow_write.covered_depth(forms[-1]) < 0
        return Denial(Reason.NOT_IN_ALLOW_WRITE) if outside and forms[-1][:1] not in _SYSTEM else None

    def absent_entry(self, path: str) -> Denial | None:
        """Returns the entry of `allowWrite` that would make a path writable if the entry existed."""
        forms = self._forms(path)[-1:]
        rules = [_rule(each[0], each[2], form) for form in forms for each in self._allow_write.covering(form)]
        absent = rules and not any(os.path.lexists(rule.place) for rule in rules)
        return replace(rules[0], reason=Reason.ABSENT) if absent else None

    def host_rule(self, host: str) -> HostRule | None:
        """Returns the entry that covers a host; None if no entry does, which denies the host."""
        rules = [HostRule(entry, False) for entry in self.settings.denied_domains]
        rules += [HostRule(entry, True) for entry in self.settings.allowed_domains]
        return next((rule for rule in rules if _names_host(rule.entry, host.lower())), None)

    @cached_property
    def _deny_read(self) -> PathPatterns:
        given = self._patterns(self.settings.deny_read, Reason.DENY_READ, variables=True)
        above = self._patterns(self.above, Reason.DENY_READ)
        found = self._patterns(self.secret, Reason.SECRET)
        return PathPatterns([*given, *above, *found, *self._patterns(self.hidden, Reason.INTERNAL)])

    @cached_property
    def _allow_read(self) -> PathPatterns:
        return PathPatterns(self._patterns((*self.settings.allow_read, *self.readable), Reason.DENY_READ))

    @cached_property
    def _deny_write(self) -> PathPatterns:
        given = self._patterns(self.settings.deny_write, Reason.DENY_WRITE)
        return PathPatterns([*given, *self._patterns(self.closed, Reason.PROTECTED)])

    @cached_property
    def _own_read_only(self) -> PathPatterns:
        return PathPatterns(self._patterns((*self.hidden, *self.read_only), Reason.INTERNAL))

    @cached_property
    def _allow_write(self) -> PathPatterns:
        entries = (*self.settings.allow_write, *self.writable)
        return PathPatterns(self._patterns(entries, Reason.NOT_IN_ALLOW_WRITE))

    @cached_property
    def _opened(self) -> set[tuple[str, ...]]:
        paths = (os.path.normpath(self._absolute(entry)) for entry in self.settings.allow_write)
        return {tuple(self._inside(components_of(path))) for path in paths}

    @cached_property
    def _roots(self) -> Sequence[list[str]]:
        spellings = (os.path.abspath(self.workspace), os.path.realpath(self.workspace))
        return [components_of(path) for path in dict.fromkeys(spellings)]

    def _patterns(self, entries: Iterable[str], reason: Reason, *, variables: bool = False) -> list[PathPattern]:
        return [
            pattern
            for entry in entries
            for path in (expand(entry) if variables else [entry])
            for pattern in patterns_of(reason, entry, self._absolute(path))
        ]

    def _absolute(self, path: str) -> str:
        return os.path.join(os.path.abspath(self.workspace), os.path.expanduser(path))

    def _forms(self, path: str) -> list[list[str]]:
        """Returns the components of a path as written and, if different, of the real path."""
        if not path or "\0" in path or len(path) > _LONGEST_PATH or path.count("/") > _DEEPEST_PATH:
            return []
        absolute = self._absolute(path)
        try:
            forms = dict.fromkeys((os.path.normpath(absolute), real_path(absolute)))
        except (OSError, ValueError):  # such as a lone surrogate, which can't be encoded
            return []
        return [components_of(form) for form in forms]

    def _inside(self, form: list[str]) -> list[str]:
        """Returns the components below the workspace; empty for a path outside."""
        for root in self._roots:
            if form[: len(root)] == root:
                return form[len(root) :]
        return []

    def _protects(self, form: list[str]) -> Denial | None:
        inside = self._inside(form)
        outside = len(form) - len(inside)
        opened = ""
        for depth, name in enumerate(inside, 1):
            place = "/" + "/".join(form[: outside + depth])
            below = depth < len(inside)
            if opened and name.lower() in OPENABLE[opened]:
                return Denial(Reason.PROTECTED, f"{opened}/{name}", place, below)
            opened = name if name in OPENABLE and tuple(inside[:depth]) in self._opened else ""
            if opened:
                continue
            if is_protected(name) if name.lower() not in (".env", STATE_DIR) else depth == 1:
                return Denial(Reason.PROTECTED, name, place, below)
        return None


def is_loopback(host: str) -> bool:
    """Returns whether a host is the sandbox itself."""
    name = host.lower().rstrip(".")
    try:
        address = ip_address(name.strip("[]"))
    except ValueError:
        return name in ("localhost", "localhost.localdomain", "ip6-localhost") or name.endswith(".localhost")
    return address.is_loopback or address.is_unspecified


def _covering(patterns: PathPatterns, form: list[str]) -> Denial | None:
    found = patterns.deepest(form)
    return None if found is None else _rule(*found, form)


def _rule(depth: int, pattern: PathPattern, form: list[str]) -> Denial:
    return Denial(pattern.reason, pattern.entry, "/" + "/".join(form[:depth]), depth < len(form))


def _names_host(entry: str, host: str) -> bool:
    name = re.sub(r":\d{1,5}$", "", entry) if entry.count(":") == 1 or entry.startswith("[") else entry
    name = name.strip("[]").lower()
    return name == "*" or name == host or (name.startswith("*.") and host.endswith(name[1:]))
