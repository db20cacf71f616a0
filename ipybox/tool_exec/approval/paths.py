"""Globs for paths that tools get: what a path leads to is judged, not how it is spelled.

A text is joined to each directory that it may be relative to. Programs open that as it is, or take `.`, `..` and `//`
out first; where links are, these are two places. So there are three answers:

    True   wherever the path leads matches
    False  nothing matches: not that, not its spelling, not in another case or another normal form of Unicode, which
           some file systems don't tell apart
    None   anything else, and texts that a tool may read as something else than this path

In a workspace, links may be of the code's making: what a glob names there is taken as it is spelled.
"""

import errno
import os
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ipybox.beneath import spelled_in
from ipybox.tool_exec.approval.patterns import Pattern, is_text, literal

#: Characters of a path beyond which it is not looked at.
MAX_PATH = 1000

#: What tools or their libraries may expand, unescape or strip, and URLs.
_OTHER_READINGS = re.compile(r"^~|[*?\[{$\\%\0]|^[a-zA-Z][a-zA-Z0-9+.-]*:|^\s|\s$|^$")
#: What is there depends on who looks.
_OF_THE_PROCESS = re.compile(r"/(?:proc|dev/fd)(?:/|$)")
_WILDCARD = re.compile(r"[*?]")
#: What would be a wildcard elsewhere, but isn't here, or is in no path that is judged.
_NO_WILDCARD = re.compile(r"[\[\]{}$\\%]|^~(?!/|$)|^$")


@dataclass(frozen=True)
class Readings:
    """Paths that a text may mean.

    Attributes:
        places: Where it leads, through all links.
        spellings: How it is spelled, without `.`, `..` and `//`.
    """

    places: frozenset[str]
    spellings: frozenset[str]


class PathGlob:
    """A glob for paths: `*` and `?` stand for characters of one name, `**` for any number of directories.

    `data/**` is the directory itself, too.

    Args:
        glob: Absolute, beginning with `~/`, or relative to the workspace.
        workspace: The directory that relative paths mean.

    Raises:
        ValueError: If it is none; the message says what it has to be.
    """

    def __init__(self, glob: str, workspace: Path):
        names = glob.split("/")
        if _NO_WILDCARD.search(glob) or ".." in names or any("**" in name and name != "**" for name in names):
            raise ValueError("a path such as data/** or /srv/*.csv, without '..' and without wildcards but *, ? and **")
        spelled = _normalised(workspace / Path(glob).expanduser())
        self._prefix, self._rest = _split(spelled)
        # A glob that leads into the workspace by another way, such as a link to it, means the same there.
        inside = spelled_in(self._prefix, workspace)
        self._trusted = os.path.realpath(self._prefix) if inside is None else str(workspace.joinpath(*inside))
        self._exact = _pattern(self._trusted, self._rest)
        self._spelled = str(self._prefix)

    def judge(self, readings: Readings) -> bool | None:
        """Tells whether a path matches; None if that is not certain."""
        if all(self._exact.found_in(_rooted(place)) for place in readings.places):
            return True
        for prefix in {self._spelled, self._trusted, os.path.realpath(self._spelled)}:
            loose = _pattern(_folded(prefix), _folded(self._rest))
            if any(loose.found_in(_rooted(_folded(path))) for path in readings.places | readings.spellings):
                return None
        return False


def read(text: str, directories: Iterable[Path]) -> Readings | None:
    """Returns the paths that a text may mean; None if that can't be said.

    Args:
        text: What a tool gets.
        directories: Those that it may be relative to; none if they are not known.
    """
    if len(text) > MAX_PATH or not text.isprintable() or _OTHER_READINGS.search(text):
        return None
    given = [directory / text for directory in directories] or [Path(text)]
    if not given[0].is_absolute():
        return None
    spellings = frozenset(map(_normalised, given))
    if any(_has_too_many_links(path) for path in (*given, *spellings)):
        return None
    try:
        places = frozenset(os.path.realpath(path) for path in (*given, *spellings))
    except (OSError, RecursionError):  # links that were made meanwhile
        return None
    known = places | spellings
    certain = all(is_text(path) and not _OF_THE_PROCESS.match(path) for path in known)
    return Readings(places, spellings) if certain else None


def _has_too_many_links(path: Path | str) -> bool:
    """Tells whether the system follows so many links no further; where they lead, `realpath` says in some versions."""
    try:
        os.stat(path)
    except OSError as exc:
        return exc.errno == errno.ELOOP
    return False


def _normalised(path: Path) -> str:
    return re.sub("^/+", "/", os.path.normpath(path))


def _split(path: str) -> tuple[Path, str]:
    """Returns what is before the first name with a wildcard, and the rest."""
    names = path.split("/")
    first = next((number for number, name in enumerate(names) if _WILDCARD.search(name)), len(names))
    return Path("/", *names[:first]), "/".join(names[first:])


@lru_cache(maxsize=1024)
def _pattern(prefix: str, rest: str) -> Pattern:
    expression = literal(_rooted(prefix))
    names = rest.split("/") if rest else []
    for number, name in enumerate(names, 1):
        if name == "**":
            expression += "(?:/.*)?" if number == len(names) else "(?:/[^/]+)*"
        else:
            wildcards = {"*": "[^/]*", "?": "[^/]"}
            expression += "/" + "".join(wildcards.get(each) or literal(each) for each in name)
    return Pattern(f"^(?s:{expression})$")


def _rooted(path: str) -> str:
    """Returns a path as a sequence of names with a slash before each; the root has none."""
    return "" if path == "/" else path


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
