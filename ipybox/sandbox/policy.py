"""What the settings of a sandbox say about one path or host: which rule refuses it, as srt applies them.

For messages, and for transfers of files on the host (`ipybox/transfer`), which obey the same settings; what runs in the
sandbox is held by srt, not by this. Paths may come from the sandbox, so no file is opened, and no path is walked that a
rule does not ask for.
"""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from fnmatch import translate
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from ipybox.sandbox.settings import SandboxSettings
from ipybox.workspace.names import OPENABLE, STATE_DIR, expand, is_protected
from ipybox.workspace.scan import is_name_pattern, name_matchers

#: Longer and deeper paths are not worth looking up.
_LONGEST_PATH: Final = 1024
_DEEPEST_PATH: Final = 64

#: Characters and components of a path for which there is an answer in any case, however the workspace is spelled.
LONGEST_PATH: Final = 1000
DEEPEST_PATH: Final = 60

_LOOPBACK_NAMES: Final = ("localhost", "localhost.localdomain", "ip6-localhost")


class Reason(Enum):
    """Which part of the settings refuses something."""

    DENY_READ = auto()
    DENY_WRITE = auto()
    #: No entry of `allowWrite` covers the path.
    NOT_IN_ALLOW_WRITE = auto()
    #: The scan of the workspace found credentials there that no entry names.
    SECRET = auto()
    #: Configuration that programs outside the sandbox believe or execute.
    PROTECTED = auto()
    #: ipybox's own keys and programs; no setting opens them.
    OWN = auto()


@dataclass(frozen=True)
class Rule:
    """What refuses a path.

    Attributes:
        reason: The part of the settings.
        entry: The entry as it is written there, or the protected name; empty if it is the lack of one.
        place: The path that the entry names: the refused path, or a directory above it.
        below: Whether the refused path is below `place`.
    """

    reason: Reason
    entry: str = ""
    place: str = ""
    below: bool = False


@dataclass(frozen=True)
class HostRule:
    """The entry of `allowedDomains` or `deniedDomains` that covers a host."""

    entry: str
    allowed: bool


class Policy:
    """Answers which rule of a sandbox refuses a path or a host.

    Args:
        settings: The settings.
        workspace: The directory that relative paths mean.
        hidden: What ipybox hides besides, whatever the settings say.
        readable: What can be read besides.
        writable: What can be written besides.
        read_only: What can't be written besides, whatever the settings say.
        secret: What the scan of the workspace hides besides.
        closed: What it keeps from being written besides.
    """

    def __init__(
        self,
        settings: SandboxSettings,
        workspace: Path,
        *,
        hidden: Iterable[str] = (),
        readable: Iterable[str] = (),
        writable: Iterable[str] = (),
        read_only: Iterable[str] = (),
        secret: Iterable[str] = (),
        closed: Iterable[str] = (),
    ):
        self.settings = settings
        self.workspace = os.path.abspath(workspace)
        self._hidden = tuple(hidden)
        self._readable = tuple(readable)
        self._writable = tuple(writable)
        self._read_only = tuple(read_only)
        self._secret = tuple(secret)
        self._closed = tuple(closed)

    @cached_property
    def untrusted(self) -> "Policy | None":
        """What would hold if the workspace's file of settings was trusted; None if nothing would change."""
        if self.settings.untrusted is None:
            return None
        return Policy(
            self.settings.untrusted.settings,
            Path(self.workspace),
            hidden=self._hidden,
            readable=self._readable,
            writable=self._writable,
            read_only=self._read_only,
        )

    def reads(self, path: str) -> Rule | None:
        """Returns what hides a path; None if it can be read, as far as the settings go.

        Of the entries that cover a path the most specific one decides, and between two of the same place
        `allowRead`. A path that is a link counts as what it leads to, too.
        """
        for form in self._forms(path):
            denied = _deepest(self._deny_read, form)
            if denied is not None and denied[0] > _depth(self._allow_read, form):
                return _rule(*denied, form)
        return None

    def writes(self, path: str) -> Rule | None:
        """Returns what makes a path read-only; None if it can be written, as far as the settings go."""
        forms = self._forms(path)
        for form in forms:
            rule = _covering(self._deny_write, form) or self._protects(form) or _covering(self._own_read_only, form)
            if rule is not None:
                return rule
        # Only the place itself counts: a name that leads to it may be outside, or inside, by accident.
        if forms and _depth(self._allow_write, forms[-1]) < 0 and forms[-1][:1] not in (["dev"], ["proc"], ["sys"]):
            return Rule(Reason.NOT_IN_ALLOW_WRITE)
        return None

    def moves(self, path: str) -> Rule | None:
        """Returns what keeps a path from being moved or removed: a rule for it, or for something below it."""
        rule = self.writes(path) or self.reads(path)
        if rule is not None:
            return rule
        for form in self._forms(path):
            for pattern in (*self._deny_read, *self._deny_write, *self._own_read_only):
                if pattern.is_below(form):
                    return Rule(pattern.reason, pattern.entry, "/" + "/".join(form))
            inside = self._inside(form)
            if inside and OPENABLE.get(inside[-1]):
                return Rule(Reason.PROTECTED, f"{inside[-1]}/{OPENABLE[inside[-1]][0]}", "/" + "/".join(form))
        return None

    def host(self, host: str) -> HostRule | None:
        """Returns the entry that covers a host; None if there is none, which means that it is refused."""
        for entries, allowed in ((self.settings.denied_domains, False), (self.settings.allowed_domains, True)):
            for entry in entries:
                if _names_host(entry, host.lower()):
                    return HostRule(entry, allowed)
        return None

    @cached_property
    def _deny_read(self) -> Sequence["_Pattern"]:
        given = self._patterns(self.settings.deny_read, Reason.DENY_READ, variables=True)
        found = self._patterns(self._secret, Reason.SECRET)
        return [*given, *found, *self._patterns(self._hidden, Reason.OWN)]

    @cached_property
    def _allow_read(self) -> Sequence["_Pattern"]:
        return self._patterns((*self.settings.allow_read, *self._readable), Reason.DENY_READ)

    @cached_property
    def _deny_write(self) -> Sequence["_Pattern"]:
        given = self._patterns(self.settings.deny_write, Reason.DENY_WRITE)
        return [*given, *self._patterns(self._closed, Reason.PROTECTED)]

    @cached_property
    def _own_read_only(self) -> Sequence["_Pattern"]:
        return self._patterns((*self._hidden, *self._read_only), Reason.OWN)

    @cached_property
    def _allow_write(self) -> Sequence["_Pattern"]:
        return self._patterns((*self.settings.allow_write, *self._writable), Reason.NOT_IN_ALLOW_WRITE)

    @cached_property
    def _opened(self) -> set[tuple[str, ...]]:
        paths = (os.path.normpath(self._absolute(entry)) for entry in self.settings.allow_write)
        return {tuple(self._inside(_components(path))) for path in paths}

    @cached_property
    def _roots(self) -> Sequence[list[str]]:
        return [_components(path) for path in dict.fromkeys((self.workspace, os.path.realpath(self.workspace)))]

    def _patterns(self, entries: Iterable[str], reason: Reason, *, variables: bool = False) -> list["_Pattern"]:
        patterns: list[_Pattern] = []
        for entry in entries:
            names = name_matchers(entry) if is_name_pattern(entry) else []
            for path in expand(entry) if variables else [entry]:
                for spelling in _spellings(self._absolute(path)):
                    matchers = list(_matchers(spelling))
                    matchers[len(matchers) - len(names) :] = names
                    patterns.append(_Pattern(reason, entry, tuple(matchers)))
        return patterns

    def _absolute(self, path: str) -> str:
        return os.path.join(self.workspace, os.path.expanduser(path))

    def _forms(self, path: str) -> list[list[str]]:
        """The components of a path as it is written, and, if that differs, of where it leads to."""
        if not path or "\0" in path or len(path) > _LONGEST_PATH or path.count("/") > _DEEPEST_PATH:
            return []
        absolute = self._absolute(path)
        try:
            forms = dict.fromkeys((os.path.normpath(absolute), os.path.realpath(absolute)))
        except (OSError, ValueError):  # such as a lone surrogate, which no file system knows
            return []
        return [_components(form) for form in forms]

    def _inside(self, form: list[str]) -> list[str]:
        """What follows the workspace in a path, or nothing."""
        for root in self._roots:
            if form[: len(root)] == root:
                return form[len(root) :]
        return []

    def _protects(self, form: list[str]) -> Rule | None:
        inside = self._inside(form)
        outside = len(form) - len(inside)
        opened = ""
        for depth, name in enumerate(inside, 1):
            place = "/" + "/".join(form[: outside + depth])
            below = depth < len(inside)
            if opened and name.lower() in OPENABLE[opened]:
                return Rule(Reason.PROTECTED, f"{opened}/{name}", place, below)
            opened = name if name in OPENABLE and tuple(inside[:depth]) in self._opened else ""
            if opened:
                continue
            if is_protected(name) if name.lower() not in (".env", STATE_DIR) else depth == 1:
                return Rule(Reason.PROTECTED, name, place, below)
        return None


@dataclass(frozen=True)
class _Pattern:
    """An entry of the settings, by the components of its path; None stands for `**`."""

    reason: Reason
    entry: str
    matchers: tuple[str | re.Pattern[str] | None, ...]

    def depth(self, components: list[str]) -> int:
        """How many components lead to the deepest place that the entry names; -1 if it does not cover the path."""
        places = self._skip({0})
        deepest = 0 if len(self.matchers) in places else -1
        for depth, component in enumerate(components, 1):
            places = self._skip({after for place in places for after in self._after(place, component)})
            if not places:
                break
            if len(self.matchers) in places:
                deepest = depth
        return deepest

    def is_below(self, components: list[str]) -> bool:
        """Whether this is a path without wildcards that is below another one."""
        return len(self.matchers) > len(components) and list(self.matchers[: len(components)]) == components

    def _after(self, place: int, component: str) -> Iterable[int]:
        if place == len(self.matchers):
            return
        matcher = self.matchers[place]
        if matcher is None:
            yield place
        elif matcher == component if isinstance(matcher, str) else matcher.match(component):
            yield place + 1

    def _skip(self, places: set[int]) -> set[int]:
        """Adds the places behind every `**`, as it may stand for nothing."""
        for place in sorted(places):
            while place < len(self.matchers) and self.matchers[place] is None:
                place += 1
                places.add(place)
        return places


def is_loopback(host: str) -> bool:
    """Whether a host is the sandbox itself."""
    name = host.lower().rstrip(".")
    if name in _LOOPBACK_NAMES or name.endswith(".localhost"):
        return True
    try:
        address = ip_address(name.strip("[]"))
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _deepest(patterns: Sequence[_Pattern], form: list[str]) -> tuple[int, _Pattern] | None:
    found = [(depth, pattern) for pattern in patterns if (depth := pattern.depth(form)) >= 0]
    return max(found, key=lambda one: one[0], default=None)


def _depth(patterns: Sequence[_Pattern], form: list[str]) -> int:
    return max((pattern.depth(form) for pattern in patterns), default=-1)


def _covering(patterns: Sequence[_Pattern], form: list[str]) -> Rule | None:
    found = _deepest(patterns, form)
    return None if found is None else _rule(*found, form)


def _rule(depth: int, pattern: _Pattern, form: list[str]) -> Rule:
    return Rule(pattern.reason, pattern.entry, "/" + "/".join(form[:depth]), depth < len(form))


def _components(path: str) -> list[str]:
    return [component for component in path.split("/") if component]


def _spellings(path: str) -> Iterable[str]:
    """An absolute path or glob as it is written, and with the links of its literal part resolved."""
    path = os.path.normpath(path)
    while path.endswith("/**"):  # srt: a directory is covered together with all that is in it
        path = path[:-3] or "/"
    literal = path
    while _has_wildcard(literal):
        literal = os.path.dirname(literal)
    real = os.path.realpath(literal)
    return dict.fromkeys((path, os.path.normpath(real + "/" + path[len(literal) :])))


def _matchers(path: str) -> Iterable[str | re.Pattern[str] | None]:
    for component in _components(path):
        if component == "**":
            yield None
        else:
            yield re.compile(translate(component)) if _has_wildcard(component) else component


def _has_wildcard(path: str) -> bool:
    return any(character in path for character in "*?[")


def _names_host(entry: str, host: str) -> bool:
    name = re.sub(r":\d{1,5}$", "", entry) if entry.count(":") == 1 or entry.startswith("[") else entry
    name = name.strip("[]").lower()
    return name == "*" or name == host or (name.startswith("*.") and host.endswith(name[1:]))
