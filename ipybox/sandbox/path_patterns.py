"""Path patterns of sandbox settings: which paths an entry covers, and how specifically, as srt interprets it."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from fnmatch import translate
from operator import itemgetter

from ipybox.support.untrusted_paths import real_path
from ipybox.workspace.scan import is_name_pattern, name_matchers


class Reason(Enum):
    """The kind of rule that denies access."""

    DENY_READ = auto()
    DENY_WRITE = auto()
    #: No entry of `allowWrite` covers the path.
    NOT_IN_ALLOW_WRITE = auto()
    #: Only entries of `allowWrite` that don't exist cover the path; srt skips these entries.
    ABSENT = auto()
    #: The workspace scan found credentials that no entry covers.
    SECRET = auto()
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

    def depth(self, components: list[str]) -> int:
        """Returns the depth of the longest prefix of the path that the entry matches, or -1 if it covers no prefix."""
        places = self._skip({0})
        deepest = 0 if len(self.matchers) in places else -1
        for depth, component in enumerate(components, 1):
            places = self._skip({after for place in places for after in self._after(place, component)})
            if not places:
                break
            if len(self.matchers) in places:
                deepest = depth
        return deepest

    def _after(self, place: int, component: str) -> Iterable[int]:
        if place == len(self.matchers):
            return
        matcher = self.matchers[place]
        if matcher is None:
            yield place
        elif matcher == component if isinstance(matcher, str) else matcher.match(component):
            yield place + 1

    def _skip(self, places: set[int]) -> set[int]:
        """Adds the places after each `**`, because `**` also matches zero components."""
        for place in sorted(places):
            while place < len(self.matchers) and self.matchers[place] is None:
                place += 1
                places.add(place)
        return places


class PathPatterns:
    """Entries of the settings. The deepest match decides; among equally deep matches, the first entry."""

    def __init__(self, patterns: Iterable[PathPattern]):
        # Indexed, because a scan may find more than a thousand paths without wildcards.
        self._literal: dict[tuple[str | re.Pattern[str] | None, ...], tuple[int, PathPattern]] = {}
        self._others: list[tuple[int, PathPattern]] = []
        for number, pattern in enumerate(patterns):
            if all(isinstance(matcher, str) for matcher in pattern.matchers):
                self._literal.setdefault(pattern.matchers, (-number, pattern))
            else:
                self._others.append((-number, pattern))

    def covering(self, components: list[str]) -> list[tuple[int, int, PathPattern]]:
        """Returns the patterns that cover a path, each preceded by its depth and its negated index."""
        found = [(depth, *each) for each in self._others if (depth := each[1].depth(components)) >= 0]
        prefixes = ((depth, self._literal.get(tuple(components[:depth]))) for depth in range(len(components) + 1))
        return [*found, *((depth, *literal) for depth, literal in prefixes if literal is not None)]

    def deepest(self, components: list[str]) -> tuple[int, PathPattern] | None:
        """Returns the deepest pattern that covers a path, preceded by its depth; None if there is none."""
        found = max(self.covering(components), key=itemgetter(0, 1), default=None)
        return None if found is None else (found[0], found[2])

    def covered_depth(self, components: list[str]) -> int:
        """Returns the depth of the deepest pattern that covers a path, or -1 if there is none."""
        return max((depth for depth, *_ in self.covering(components)), default=-1)


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
