"""Finds the tools that a query is about.

A tool's score is the sum, over the words of the query, of how rare the word is and of where the tool has it. It is
multiplied by how much of the tool's name the query covers, and is lower if the tool changes what the query only reads.
"""

import math
from collections.abc import Sequence

from ipybox.codeact.library import GENTOOLS
from ipybox.codeact.tool_info import ToolInfo
from ipybox.codeact.words import READING, VERBS, asked_words, changes, stem, synonyms, told_words, words_of

#: What a word is worth, by where a tool has it: the best of these counts.
_IN_NAME = 4.0
_IN_SUMMARY = 2.5
_IN_PARAMETER = 2.0
_IN_TEXT = 1.0
#: The same for another form of the word, another word for the same, and a longer word that begins with it.
_IN_OTHER_FORM = 0.9
_AS_SYNONYM = 0.7
_AS_BEGINNING = 0.7
#: How much of what is acted on a verb is worth.
_AS_VERB = 0.8
#: How much less a tool is worth that has no word of the query; in between, the rarer words count more.
_NOTHING_OF_QUERY = 0.3
#: What a tool is worth that changes something if the query doesn't.
_UNASKED_CHANGE = 0.8
#: How much more a tool is worth that lists, if the query asks for more than one thing.
_LISTS_SEVERAL = 1.04
#: How much more a tool is worth that was saved or has a parser, because it is in use here.
_CARED_FOR = 1.2
#: Characters of a word that longer words are compared with.
_SHORTEST_BEGINNING = 3


def named(cards: Sequence[ToolInfo], query: str) -> list[ToolInfo]:
    """Returns the cards of the tools with this name, or else of this category or root, all maybe below a root."""
    path = query.strip().replace("/", ".").removesuffix(".py")
    found = [card for card in cards if path.removeprefix(f"{card.root}.") in (str(card.name), card.name.tool)]
    return found or [card for card in cards if path.removeprefix(f"{card.root}.") in (card.name.category, card.root)]


def search(cards: Sequence[ToolInfo], query: str) -> list[ToolInfo]:
    """Returns the cards that have at least one word of the query, best first; equally good ones in the given order."""
    words = asked_words(query)
    indexed = [_Index(card) for card in cards]
    found = [[index.worth(word) for word in words] for index in indexed]
    rarities = map(_rarity, zip(*found, strict=True))
    weights = [rarity * (_AS_VERB if word in VERBS else 1.0) for word, rarity in zip(words, rarities, strict=False)]
    scores = [_relevance(worths, weights) * index.emphasis(words) for index, worths in zip(indexed, found, strict=True)]
    order = sorted(range(len(cards)), key=lambda index: -scores[index])
    return [cards[index] for index in order if scores[index] > 0]


def _rarity(worths: Sequence[float]) -> float:
    """Returns the weight of a word: those that most tools have, as "get", tell tools apart the least."""
    return math.log(1 + len(worths) * _IN_NAME / (sum(worths) or math.inf))


def _relevance(worths: Sequence[float], weights: Sequence[float]) -> float:
    """Returns what a tool has of a query."""
    missed = sum(weight for worth, weight in zip(worths, weights, strict=True) if not worth)
    share = missed / (sum(weights) or 1.0)
    return sum(worth * weight for worth, weight in zip(worths, weights, strict=True)) * (1 - _NOTHING_OF_QUERY * share)


class _Index:
    """The words of a card, with what each is worth."""

    def __init__(self, card: ToolInfo):
        described = " ".join(each.description for each in card.parameters)
        texts = {
            _IN_TEXT: f"{card.doc} {described}",
            _IN_PARAMETER: " ".join(each.name for each in card.parameters),
            _IN_SUMMARY: card.summary,
            _IN_NAME: str(card.name),
        }
        # The least worth comes first, so that a word is worth what the best of its places is.
        self._words = {word: worth for worth, text in texts.items() for word in words_of(text)}
        self._stems = {stem(word): worth for word, worth in sorted(self._words.items(), key=lambda item: item[1])}
        self._category = words_of(card.name.category)
        name = told_words(card.name.tool)
        # The names of some servers are part of the names of all of their tools.
        self._name = [word for word in name if word not in self._category] or name
        self._cared_for = card.parsed is not None or card.root == GENTOOLS

    def worth(self, word: str) -> float:
        """Returns what the card has of a word, 0 for nothing."""
        stemmed = stem(word)
        worth = max(
            self._words.get(word, 0.0),
            self._stems.get(stemmed, 0.0) * _IN_OTHER_FORM,
            *(self._stems.get(other, 0.0) * _AS_SYNONYM for other in synonyms(word)),
        )
        if not worth and len(stemmed) >= _SHORTEST_BEGINNING:
            longer = (worth for other, worth in self._words.items() if other.startswith(stemmed))
            worth = max(longer, default=0.0) * _AS_BEGINNING
        return worth

    def emphasis(self, words: Sequence[str]) -> float:
        """Returns what the score is multiplied by: how much of the tool's name is asked for, and its use here."""
        meant = {stem(word) for word in words}.union(*map(synonyms, words))
        asked = changes([word for word in words if word not in self._category])
        covered = sum(stem(each) in meant or (each in READING and not asked) for each in self._name)
        emphasis = 1 + covered / max(1, len(self._name))
        if changes(self._name) and not asked:
            emphasis *= _UNASKED_CHANGE
        elif "list" in self._name and not asked and any(word.endswith("s") for word in words):
            emphasis *= _LISTS_SEVERAL
        return emphasis * (_CARED_FOR if self._cared_for else 1.0)
