"""Descriptions that say nothing beyond the names around them: `repo: str` is no clearer by "The repository name"."""

import re
from collections.abc import Iterable

# What such descriptions are made of, besides names.
_EMPTY = {
    "a", "an", "and", "as", "at", "be", "by", "for", "from", "id", "identifier", "if", "in", "into", "is", "it", "list",
    "name", "number", "of", "on", "or", "string", "that", "the", "this", "to", "value", "whether", "will", "with",
}  # fmt: skip
_WORD = re.compile(r"[A-Za-z][a-z]+|[A-Z]+(?![a-z])")
# A description with numbers, quotations, remarks or words of another script says something.
_SAYING = re.compile(r"[^\w\s.,/-]|\d", re.ASCII)
_ENDINGS = ("ies", "es", "s", "ed", "ing")
_LEAST_PREFIX = 4


def known_words(names: Iterable[str]) -> set[str]:
    """The words in the names of a tool and of an object's fields."""
    return {_stem(word) for name in names for word in _words(name)}


def says_nothing(description: str, known: set[str]) -> bool:
    """Whether all words of a description are known from names, or empty themselves."""
    if _SAYING.search(description):
        return False
    return all(_is_known(_stem(word), known) for word in _words(description) if word not in _EMPTY)


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def _stem(word: str) -> str:
    ending = next((each for each in _ENDINGS if word.endswith(each) and len(word) > len(each) + 2), "")
    return word.removesuffix(ending)


def _is_known(word: str, known: set[str]) -> bool:
    # Names are often abbreviated, as `repo` is.
    return word in known or any(len(name) >= _LEAST_PREFIX and word.startswith(name) for name in known)
