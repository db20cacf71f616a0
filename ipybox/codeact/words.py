"""The words of names and texts, and which of them mean the same."""

import re
from collections.abc import Sequence
from functools import lru_cache

from ipybox.codeact.vocabulary import (
    CHANGES,
    COMPOUNDS,
    FILLERS,
    MAYBE_CHANGES,
    PHRASES,
    READING,
    SHORT_FORMS,
    SYNONYMS,
    VERBS,
)

#: How forms of a word end, and what is left of the ending, to be applied one after the other.
_ENDINGS = tuple(
    (re.compile(ending + "$"), rest)
    for ending, rest in (
        (r"(?<=\w\w)ie[sd]", "y"),
        (r"(?<=\wtu)ses|(?<=\w\w[^s])s", ""),
        (r"(?<!^str)(?<!^spr)(?<=\w\w[^e])(?:ing|ed)", ""),
        (r"(?<=\w{3})ee|(?<=if)ication|(?<=iz|ur)ation|(?<=\w\w[ts])ion|(?<=at|ut)or|(?<=\w{5})ment|(?<=ov|ev)al", ""),
        (r"(?<=sc)ript", "rib"),
        (r"(?<=\w{3})[ey]", ""),
        (r"(?<=\w{5})at", ""),
        (r"(?<=\w\w)(\w)\1", r"\1"),
    )
)

_COMPOUND = re.compile(rf"\b({'|'.join(COMPOUNDS)})(s?)\b")
#: To remove a star is to unstar; changes not yet staged are unstaged ones.
_UNDOING = re.compile(r"\b(undo|remove|take back|reverse|cancel) (?:the |an? )?(\w+)", re.IGNORECASE)
_NOT_DONE = re.compile(r"\bnot (?:yet |been )*(\w+ed)\b", re.IGNORECASE)


def words_of(text: str) -> list[str]:
    """Returns the words of a text, in lower case and written out; `perPage` is two."""
    words: list[str] = re.findall(r"[^\W_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).casefold())
    written = " ".join(SHORT_FORMS.get(word, word) for word in words)
    return _COMPOUND.sub(lambda found: COMPOUNDS[found[1]] + found[2], written).split()


def asked_words(query: str) -> list[str]:
    """Returns the words that a query is about, each once: without fillers, in the words of tools."""
    for phrase, words in PHRASES:
        query = phrase.sub(words, query)
    query = _UNDOING.sub(r"\1 un\2 \2", _NOT_DONE.sub(r"un\1", query))
    return list(dict.fromkeys(told_words(query)))


def told_words(name: str) -> list[str]:
    """Returns the words of a name without fillers."""
    return [word for word in words_of(name) if word not in FILLERS]


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """Returns what the forms of a word have in common: `commit` for `commits` and `committed`."""
    for ending, rest in _ENDINGS:
        word = ending.sub(rest, word)
    return word


@lru_cache(maxsize=8192)
def synonyms(word: str) -> frozenset[str]:
    """Returns the stems of the words that mean the same: of `update` for `change`, but not for `changed`."""
    if word not in _MEANINGS and word.startswith("un"):
        return frozenset(f"un{other}" for other in synonyms(word.removeprefix("un")))
    return _MEANINGS.get(word) or (frozenset() if is_state(word) else _MEANINGS.get(stem(word), frozenset()))


def changes(words: Sequence[str]) -> frozenset[str]:
    """Returns how the words of a query or a name say that something is changed; nothing if it is only looked at."""
    return frozenset(
        [kind for kind, verbs in CHANGES.items() if not verbs.isdisjoint(words)]
        + [kind for kind, verbs in MAYBE_CHANGES.items() if not verbs.isdisjoint(words[:1])]
    )


def tells_reading(word: str) -> bool:
    """Returns whether a word of a tool's name says that the tool only looks."""
    return word in READING


def is_verb(word: str) -> bool:
    """Returns whether a word says what is done, rather than with what."""
    return word in VERBS


def is_state(word: str) -> bool:
    """Returns whether a word is the form of a verb that says what was done: `staged`."""
    return word.endswith("ed")


def is_plural(word: str) -> bool:
    """Returns whether a word of a query stands for several things."""
    return word.endswith("s") and not word.endswith("ss")


def _meanings() -> dict[str, frozenset[str]]:
    meanings: dict[str, frozenset[str]] = {}
    for group in SYNONYMS:
        for word in group:
            others = {stem(other) for other in group if other != word}
            for key in {word, stem(word)}:
                meanings[key] = meanings.get(key, frozenset()) | others
    return meanings


_MEANINGS = _meanings()
