"""Finds descriptions that only repeat names around them, as "The repository name" does for `repo: str`."""

import re
from collections.abc import Iterable

# Words that add nothing to the names.
_EMPTY = {
    "a", "an", "and", "as", "at", "be", "by", "for", "from", "id", "identifier", "if", "in", "into", "is", "it", "list",
    "name", "number", "of", "on", "or", "pagination", "result", "results", "string", "that", "the", "this", "to",
    "value", "whether", "will", "with",
}  # fmt: skip
_WORD = re.compile(r"[A-Za-z][a-z]+|[A-Z]+(?![a-z])")
# A description with numbers, quotations, remarks or words of another script says something.
_SAYING = re.compile(r"[^\w\s.,/-]|\d", re.ASCII)
_ENDING = re.compile(r"(?<=[a-z]{3})(?:ies|es|s|ed|ing)\b")
_LEAST_PREFIX = 4


def known_words(names: Iterable[str]) -> set[str]:
    """Returns the words in the names of a tool and of an object's fields."""
    words = " ".join(_WORD.findall(" ".join(names))).lower()
    return {*_ENDING.sub("", words).split()}


def is_redundant(description: str, known: set[str]) -> bool:
    """Returns whether each word of a description occurs in a name or adds nothing."""
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
