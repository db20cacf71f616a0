"""Patterns for texts, names and paths, which take linear time, because the agent's code chooses the text.

Python's `re` backtracks, and a few characters can keep it busy for years. pydantic includes Rust's `regex`, whose time
is linear in the length of the text; it supports neither look-around nor back-references.
https://docs.rs/regex/latest/regex/#syntax

Globs for paths match the file that a path leads to, not its spelling. A path is joined to each directory that it may be
relative to. Programs open the result directly, or remove `.`, `..` and `//` first; with links, these can be two
different files. So there are three answers:

    True   every file that the path may lead to matches
    False  nothing matches: neither those files nor their spellings, even in another case or Unicode normal form, which
           some file systems don't distinguish
    None   anything else, and texts that a tool may interpret differently

Code may have created links in a workspace, so a glob for a path there is not resolved.
"""

import errno
import os
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pydantic_core import SchemaError, SchemaValidator, core_schema

from ipybox.support.safe_directory import names_below

#: Maximum characters of a text; longer ones are not searched.
MAX_TEXT = 20_000

#: Maximum characters of a path; longer ones are not evaluated.
MAX_PATH = 1000

#: Texts that tools or their libraries may expand, unescape or strip, and URLs.
_OTHER_READINGS = re.compile(r"^~|[*?\[{$\\%\0]|^[a-zA-Z][a-zA-Z0-9+.-]*:|^\s|\s$|^$")
#: Directories whose content depends on the process that reads them.
_OF_THE_PROCESS = re.compile(r"/(?:proc|dev/fd)(?:/|$)")
_WILDCARD = re.compile(r"[*?]")
#: Characters that are wildcards elsewhere but not here, or that no evaluated path contains.
_NO_WILDCARD = re.compile(r"[\[\]{}$\\%]|^~(?!/|$)|^$")


class Pattern:
    """A regular expression to search for, in the syntax of Rust's `regex`.

    Raises:
        ValueError: If it is invalid; the message says why.
    """

    def __init__(self, expression: str):
        try:
            self._validator = SchemaValidator(core_schema.str_schema(pattern=expression, strict=True))
        except SchemaError as exc:
            # The first lines only repeat the expression.
            raise ValueError(str(exc).strip().rpartition("\n")[2].removeprefix("error: ")) from None

    def found_in(self, text: str) -> bool:
        """Returns whether the text contains a match."""
        return self._validator.isinstance_python(text)


def is_text(value: str) -> bool:
    """Returns whether patterns can search a text: it is not too long and contains no lone surrogates."""
    if len(value) > MAX_TEXT:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def name_glob(glob: str) -> Pattern:
    """Returns a pattern for whole names: `*` matches any characters, `?` matches one."""
    wildcards = {"*": ".*", "?": "."}
    return Pattern(f"^(?s:{''.join(wildcards.get(each) or literal(each) for each in glob)})$")


def literal(text: str) -> str:
    """Returns an expression that matches exactly this text."""
    return "".join(each if each.isascii() and each.isalnum() else f"\\x{{{ord(each):X}}}" for each in text)


@dataclass(frozen=True)
class PathCandidates:
    """Paths that a text may mean: with all links resolved, and as spelled but without `.`, `..` and `//`."""

    places: frozenset[str]
    spellings: frozenset[str]


class PathGlob:
    """A glob for paths: `*` and `?` match characters within a name, `**` matches any number of directories.

    `data/**` also matches the directory itself.

    Args:
        glob: Absolute, beginning with `~/`, or relative to the workspace.
        workspace: The base of relative globs.

    Raises:
        ValueError: If the glob is invalid; the message describes valid ones.
    """

    def __init__(self, glob: str, workspace: Path):
        names = glob.split("/")
        if _NO_WILDCARD.search(glob) or ".." in names or any("**" in name and name != "**" for name in names):
            raise ValueError(
                "a path such as data/** or /srv/*.csv, without '..' and with no wildcards except *, ? and **"
            )
        self.text = glob
        spelled = _normalised(workspace / Path(glob).expanduser())
        self._prefix, self._rest = _split(spelled)
        # A glob that reaches the workspace another way, such as through a link to it, means the same path there.
        inside = names_below(self._prefix, workspace)
        self._trusted = os.path.realpath(self._prefix) if inside is None else str(workspace.joinpath(*inside))
        self._exact = _pattern(self._trusted, self._rest)
        self._spelled = str(self._prefix)

        # Of each glob, because a policy can have thousands, which one cache for all would compile again for each path.
        @lru_cache(maxsize=4)
        def loose(prefix: str) -> Pattern:
            return _pattern(_folded(prefix), _folded(self._rest))

        self._loose = loose

    def judge(self, readings: PathCandidates) -> bool | None:
        """Returns whether a path matches; None if that is uncertain."""
        if all(self._exact.found_in(_rooted(place)) for place in readings.places):
            return True
        for prefix in {self._spelled, self._trusted, os.path.realpath(self._spelled)}:
            loose = self._loose(prefix)
            if any(loose.found_in(_rooted(_folded(path))) for path in readings.places | readings.spellings):
                return None
        return False


def read(text: str, directories: Iterable[Path]) -> PathCandidates | None:
    """Returns the paths that a text may mean; None if unknown, such as a relative path without directories."""
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
    except (OSError, RecursionError):  # links created in the meantime
        return None
    known = places | spellings
    certain = all(is_text(path) and not _OF_THE_PROCESS.match(path) for path in known)
    return PathCandidates(places, spellings) if certain else None


def _has_too_many_links(path: Path | str) -> bool:
    """Returns whether a path has more links than the system follows; some versions of `realpath` follow them."""
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
    """Returns a path as names with a slash before each; empty for the root."""
    return "" if path == "/" else path


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
