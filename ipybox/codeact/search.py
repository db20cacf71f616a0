"""Finds the tools that words are about: in names first, then in parameters, then in what is said."""

import math
import re
from collections import Counter
from collections.abc import Sequence

from ipybox.codeact.card import Card
from ipybox.codeact.library import GENTOOLS

#: What a word is worth, by where it is found; in another form, or as a part of a longer word, it is worth less.
_IN_NAME = 4.0
_IN_PARAMETER = 2.0
_IN_TEXT = 1.0
_IN_OTHER_FORM = 0.9
_AS_PART = 0.7
#: How much more a tool is worth that somebody has saved or given a parser: it is what is used here.
_CARED_FOR = 1.2
#: Words that are about nothing; names have them, too, as commits_of_top_repos.
_FILLERS = frozenset(("a", "an", "and", "at", "by", "for", "from", "in", "is", "of", "on", "or", "the", "to", "with"))
#: Characters of a word that is looked for in others.
_SHORTEST_PART = 3


def search(cards: Sequence[Card], query: str) -> list[Card]:
    """The cards that have at least a word of the query, the best first; else in the order given."""
    words = [word for word in _words(query) if word not in _FILLERS]
    found = [[fields.worth(word) for word in words] for fields in map(_Fields, cards)]
    # Words that most tools have, as "the" and "get", tell them apart the least.
    having = Counter(word for worths in found for word, worth in zip(words, worths, strict=True) if worth)
    weights = [math.log(1 + len(cards) / having[word]) if having[word] else 0.0 for word in words]
    scores = [
        sum(map(float.__mul__, worths, weights)) * (_CARED_FOR if card.parsed or card.root == GENTOOLS else 1)
        for card, worths in zip(cards, found, strict=True)
    ]
    order = sorted(range(len(cards)), key=lambda index: -scores[index])
    return [cards[index] for index in order if scores[index] > 0]


class _Fields:
    """The words of a card, by what they are worth."""

    def __init__(self, card: Card):
        described = " ".join(each.description for each in card.parameters)
        texts = {
            _IN_NAME: str(card.name),
            _IN_PARAMETER: " ".join(each.name for each in card.parameters),
            _IN_TEXT: f"{card.doc} {described}",
        }
        self._words = {worth: _words(text) for worth, text in texts.items()}
        self._stems = {worth: set(map(_stem, words)) for worth, words in self._words.items()}

    def worth(self, word: str) -> float:
        stem = _stem(word)
        for worth, words in self._words.items():
            if word in words:
                return worth
            if stem in self._stems[worth]:
                return worth * _IN_OTHER_FORM
            if len(stem) >= _SHORTEST_PART and any(stem in each for each in words):
                return worth * _AS_PART
        return 0.0


def _words(text: str) -> dict[str, None]:
    """The words of a text; `perPage` is two."""
    return dict.fromkeys(re.findall(r"[^\W_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).casefold()))


def _stem(word: str) -> str:
    """The word without what its plural changes."""
    for ending in ("ies", "es", "s", "y", "e") if len(word) > 3 else ():
        if word.endswith(ending):
            return word.removesuffix(ending)
    return word
