"""Applies a sandbox's settings to one path, like srt, and returns the rule that denies it.

It is used for messages, and for file transfers on the host (`ipybox/kernel_mgr/transfer`), which obey the same
settings. It doesn't confine code in the sandbox; srt does. Paths may come from the sandbox, so no file is opened, and
long or deep paths aren't resolved.
"""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import Enum, auto
from fnmatch import translate
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Final

from ipybox.sandbox.settings import SandboxSettings
from ipybox.support.names import OPENABLE, STATE_DIR, expand, is_protected
from ipybox.support.untrusted_paths import real_path
from ipybox.workspace.scan import is_name_pattern, name_matchers

#: Maximum characters and components of a path; longer or deeper paths aren't checked.
LONGEST_PATH: Final = 1024
DEEPEST_PATH: Final = 64

#: System directories that no entry covers, and that have their own rules.
_SYSTEM: Final = (["dev"], ["proc"], ["sys"])


class Reason(Enum):
    """The kind of rule that denies access."""

    DENY_READ = auto()
    DENY_WRITE = auto()
    #: No entry of `allowWrite` covers the path.
    NOT_IN_ALLOW_WRITE = auto()
    #: Configuration that programs outside the sandbox trust or execute.
    PROTECTED = auto()
    #: ipybox's keys and programs, which no setting opens.
    INTERNAL = auto()


@dataclass(frozen=True)
class Denial:
    """The reason why access to a path is denied."""

    reason: Reason
    #: The entry as written in the settings, or the protected name; empty if no entry allows access.
    entry: str = ""
    #: The path that the entry names: the denied path, or a directory above it.
    place: str = ""
    #: Whether the denied path is below `place`.
    below: bool = False


@dataclass(frozen=True)
class PathPattern:
    """An entry of the settings, as the components of its path. None represents `**`."""

    reason: Reason
    entry: str
    matchers: tuple[str | re.Pattern[str] | None, ...]

    def depth(self, components: Sequence[str], start: int = 0, place: int = 0) -> int:
        """Returns the depth of the longest prefix of the path that the entry matches, or -1 if it covers no prefix."""
        if place == len(self.matchers):
            return start
        matcher = self.matchers[place]
        if matcher is None:
            return max(self.depth(components, each, place + 1) for each in range(start, len(components) + 1))
        if start == len(components):
            return -1
        component = components[start]
        matches = matcher == component if isinstance(matcher, str) else matcher.match(component)
        return self.depth(components, start + 1, place + 1) if matches else -1


@dataclass(frozen=True, eq=False)
class SandboxPolicy:
    """A sandbox's rules for paths, as srt applies them. Relative paths start at the workspace."""

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

    def read_denial(self, path: str) -> Denial | None:
        """Returns the denial that hides a path; None if the settings allow reading it.

        The most specific entry that covers a path decides; if two are equally specific, `allowRead` does. For a link,
        the rules for its target also apply.
        """
        for form in self._forms(path):
            depth, denied = _deepest(self._deny_read, form)
            if depth > _deepest(self._allow_read, form)[0]:
                return denied
        return None

    def write_denial(self, path: str) -> Denial | None:
        """Returns the denial that makes a path read-only; None if the settings allow writing it."""
        forms = self._forms(path)
        for form in forms:
            for denied in (
                _deepest(self._deny_write, form)[1],
                self._protects(form),
                _deepest(self._own_read_only, form)[1],
            ):
                if denied is not None:
                    return denied
        # Only the real path counts; whether a link to it is inside or outside doesn't matter.
        outside = forms and _deepest(self._allow_write, forms[-1])[0] < 0
        return Denial(Reason.NOT_IN_ALLOW_WRITE) if outside and forms[-1][:1] not in _SYSTEM else None

    @cached_property
    def _deny_read(self) -> list[PathPattern]:
        given = self._patterns(self.settings.deny_read, Reason.DENY_READ, variables=True)
        above = self._patterns(self.above, Reason.DENY_READ)
        return [*given, *above, *self._patterns(self.hidden, Reason.INTERNAL)]

    @cached_property
    def _allow_read(self) -> list[PathPattern]:
        return self._patterns((*self.settings.allow_read, *self.readable), Reason.DENY_READ)

    @cached_property
    def _deny_write(self) -> list[PathPattern]:
        return self._patterns(self.settings.deny_write, Reason.DENY_WRITE)

    @cached_property
    def _own_read_only(self) -> list[PathPattern]:
        return self._patterns((*self.hidden, *self.read_only), Reason.INTERNAL)

    @cached_property
    def _allow_write(self) -> list[PathPattern]:
        return self._patterns((*self.settings.allow_write, *self.writable), Reason.NOT_IN_ALLOW_WRITE)

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
        if not path or "\0" in path or len(path) > LONGEST_PATH or path.count("/") > DEEPEST_PATH:
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
        for depth, name in enumerate(inside, 1):
            closed = [part for part in inside[depth : depth + 1] if part.lower() in OPENABLE.get(name, ())]
            if name in OPENABLE and tuple(inside[:depth]) in self._opened and not closed:
                continue
            if is_protected(name) if name.lower() not in (".env", STATE_DIR) else depth == 1:
                depth += len(closed)  # an entry that opens `name` leaves this part closed
                place = "/" + "/".join(form[: outside + depth])
                return Denial(Reason.PROTECTED, "/".join([name, *closed]), place, depth < len(inside))
        return None


def _deepest(patterns: Iterable[PathPattern], components: list[str]) -> tuple[int, Denial | None]:
    """Returns the depth of the deepest pattern that covers a path, or the first of these, and its denial; or -1."""
    found = ((pattern.depth(components), pattern) for pattern in patterns)
    depth, pattern = max(found, key=itemgetter(0), default=(-1, None))
    if pattern is None or depth < 0:
        return -1, None
    place = "/" + "/".join(components[:depth])
    return depth, Denial(pattern.reason, pattern.entry, place, depth < len(components))


def patterns_of(reason: Reason, entry: str, path: str) -> Iterable[PathPattern]:
    """Yields the patterns of an entry with this absolute path: as written, and with its links resolved."""
    names = name_matchers(entry) if is_name_pattern(entry) else []
    for spelling in _spellings(path):
        matchers = list(_matchers(spelling))
        matchers[len(matchers) - len(names) :] = names
        yield PathPattern(reason, entry, tuple(matchers))


def components_of(path: str) -> list[str]:
    """Returns the components of a path."""
    return [component for component in path.split("/") if component]


def _spellings(path: str) -> Iterable[str]:
    """Yields an absolute path or glob as written, and with the links in its literal part resolved."""
    path = os.path.normpath(path)
    while path.endswith("/**"):  # in srt, a directory's entry also covers its contents
        path = path[:-3] or "/"
    literal = path
    while _has_wildcard(literal):
        literal = os.path.dirname(literal)
    real = real_path(literal)
    return dict.fromkeys((path, os.path.normpath(real + "/" + path[len(literal) :])))


def _matchers(path: str) -> Iterable[str | re.Pattern[str] | None]:
    for component in components_of(path):
        if component == "**":
            yield None
        else:
            yield re.compile(translate(component)) if _has_wildcard(component) else component


def _has_wildcard(path: str) -> bool:
    return any(character in path for character in "*?[")
