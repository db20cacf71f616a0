"""Finds descriptions that only repeat names around them, as "The repository name" does for `repo: str`, or types."""

import re
from collections.abc import Iterable

from ipybox.mcp_apigen.schema.ir import Constraints

# The words of such descriptions, in addition to names.
_EMPTY = {
    "a", "an", "and", "as", "at", "be", "by", "for", "from", "id", "identifier", "if", "in", "into", "is", "it", "list",
    "name", "number", "of", "on", "or", "pagination", "result", "results", "string", "that", "the", "this", "to",
    "value", "whether", "will", "with",
}  # fmt: skip
_WORD = re.compile(r"[A-Za-z][a-z]+|[A-Z]+(?![a-z])")
# A description with numbers, quotations, remarks or words of another script says something.
_SAYING = re.compile(r"[^\w\s.,/-]|\d", re.ASCII)
# It begins before the first of several spaces: to try again at each takes a time that grows with their square.
_REMARK = re.compile(r"(?<! ) *\(([^()]*)\)")
_BOUNDS = {"ge": "min", "le": "max"}
_ENDING = re.compile(r"(?<=...)(?:ies|es|s|ed|ing)\Z")
_LEAST_PREFIX = 4


def known_words(names: Iterable[str]) -> set[str]:
    """The words in the names of a tool and of an object's fields."""
    return {_ENDING.sub("", word.lower()) for name in names for word in _WORD.findall(name)}


def is_redundant(description: str, known: set[str]) -> bool:
    """Whether all words of a description are known from names, or empty themselves."""
    if _SAYING.search(description):
        return False
    for word in map(str.lower, _WORD.findall(description)):
        stem = _ENDING.sub("", word)
        # Names are often abbreviated, as `repo` is.
        if word in _EMPTY or stem in known:
            continue
        if not any(len(name) >= _LEAST_PREFIX and stem.startswith(name) for name in known):
            return False
    return True


def without_remarks(description: str, limits: Constraints, *, required: bool) -> str:
    """The description without what it says in brackets if a field's type says so: "(optional)", "(min 1, max 9)"."""
    if "(" not in description:
        return description
    known = {f"{_BOUNDS[name]} {value}" for name, value in limits if name in _BOUNDS}
    known.add("required" if required else "optional")

    def kept(remark: re.Match[str]) -> str:
        return "" if {each.strip().lower() for each in remark[1].split(",")} <= known else remark[0]

    return _REMARK.sub(kept, description)
