"""Globs for the paths that tools get: they match the file that a path leads to, not its spelling.

A text is joined to each directory that it may be relative to. Programs open the result directly, or remove `.`, `..`
and `//` first; with links, these are two different places. So there are three answers:

    True   wherever the path leads matches
    False  nothing matches: not that, not its spelling, not in another case or another normal form of Unicode, which
           some file systems don't tell apart
    None   anything else, and texts that a tool may read as something else than this path

In a workspace, code may have created links: a glob that names a path there matches its spelling.
"""

import errno
import os
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ipybox.support.safe_directory import names_below
from ipybox.tool_exec.approval.patterns import Pattern, is_text, literal

#: Characters of a path up to which it is evaluated.
MAX_PATH = 1000

#: What tools or their libraries may expand, unescape or strip, and URLs.
_OTHER_READINGS = re.compile(r"^~|[*?\[{$\\%\0]|^[a-zA-Z][a-zA-Z0-9+.-]*:|^\s|\s$|^$")
#: Directories whose content depends on the process that reads them.
_OF_THE_PROCESS = re.compile(r"/(?:proc|dev/fd)(?:/|$)")
_WILDCARD = re.compile(r"[*?]")
#: Characters that are wildcards elsewhere but not here, or that no evaluated path contains.
_NO_WILDCARD = re.compile(r"[\[\]{}$\\%]|^~(?!/|$)|^$")


@dataclass(frozen=True)
class PathCandidates:
    """Paths that a text may mean: through all links, and as they are spelled, without `.`, `..` and `//`."""

    places: frozenset[str]
    spellings: frozenset[str]


class PathGlob:
    """A glob for paths: `*` and `?` stand for characters of one name, `**` for any number of directories.

    `data/**` is the directory itself, too.

    Args:
        glob: Absolute, beginning with `~/`, or relative to the workspace.
        workspace: The directory that relative paths mean.

    Raises:
        ValueError: If it is not a valid glob; the message describes valid ones.
    """

    def __init__(self, glob: str, workspace: Path):
        names = glob.split("/")
        if _NO_WILDCARD.search(glob) or ".." in names or any("**" in name and name != "**" for name in names):
            raise ValueError(
                "a path such as data/** or /srv/*.csv, without '..' and with no wildcards except *, ? and **"
            )
        spelled = _normalised(workspace / Path(glob).expanduser())
        self._prefix, self._rest = _split(spelled)
        # A glob that leads into the workspace by another way, such as a link to it, means the same there.
        inside = names_below(self._prefix, workspace)
        self._trusted = os.path.realpath(self._prefix) if inside is None else str(workspace.joinpath(*inside))
        self._exact = _pattern(self._trusted, self._rest)
        self._spelled = str(self._prefix)

    def judge(self, readings: PathCandidates) -> bool | None:
        """Returns whether a path matches; None if that is not certain."""
        if all(self._exact.found_in(_rooted(place)) for place in readings.places):
            return True
        for prefix in {self._spelled, self._trusted, os.path.realpath(self._spelled)}:
            loose = _pattern(_folded(prefix), _folded(self._rest))
            if any(loose.found_in(_rooted(_folded(path))) for path in readings.places | readings.spellings):
                return None
        return False


def read(text: str, directories: Iterable[Path]) -> PathCandidates | None:
    """Returns the paths that a text may mean; None if that is unknown, as without directories if it is relative."""
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
    except (OSError, RecursionError):  # links that were created in between
        return None
    known = places | spellings
    certain = all(is_text(path) and not _OF_THE_PROCESS.match(path) for path in known)
    return PathCandidates(places, spellings) if certain else None


def _has_too_many_links(path: Path | str) -> bool:
    """Returns whether the system refuses to follow that many links, which `realpath` does in some versions."""
    try:
        os.stat(path)
    except OSError as exc:
        return exc.errno == errno.ELOOP
    return False


def _normalised(path: Path) -> str:
    return re.sub("^/+", "/", os.path.normpath(path))


def _split(path: str) -> tuple[Path, str]:
    """Returns the path before the first name with a wildcard, and the rest."""
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
    """Returns a path as a sequence of names with a slash before each; the root is empty."""
    return "" if path == "/" else path


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
