"""Ranks tools by a query.

The score sums the rarities of matching query words, weighted by where they occur in the tool. It grows with the share
of the tool's name that the query covers, and shrinks for a tool that changes something if the query only reads.
"""

import math
from collections.abc import Sequence

from ipybox.codeact.library import GENTOOLS
from ipybox.codeact.tool_info import ToolInfo
from ipybox.codeact.words import READING, VERBS, changes, name_words, query_words, stem, synonyms, words_of

#: Weights of a word by where it occurs in a tool. The highest weight counts.
_IN_NAME = 4.0
_IN_SUMMARY = 2.5
_IN_PARAMETER = 2.0
_IN_TEXT = 1.0
#: Factors for another form of the word, a synonym, and a longer word that begins with it.
_IN_OTHER_FORM = 0.9
_AS_SYNONYM = 0.7
_AS_BEGINNING = 0.7
#: Factor for verbs: nouns count more.
_AS_VERB = 0.8
#: Maximum penalty for query words that a tool lacks, in proportion to their rarity.
_MISSING_WORDS = 0.3
#: Factor for a tool that changes something if the query only reads.
_UNREQUESTED_CHANGE = 0.8
#: Factor for a tool that lists, if the query contains a plural.
_LISTS_SEVERAL = 1.04
#: Factor for a tool in use: a saved code action, or a tool with a parser.
_IN_USE = 1.2
#: Minimum characters of a word that matches longer words as a prefix.
_SHORTEST_BEGINNING = 3


def named(cards: Sequence[ToolInfo], query: str) -> list[ToolInfo]:
    """Returns the tools with this name; if there are none, those in this category or root."""
    path = query.strip().replace("/", ".").removesuffix(".py")
    found = [card for card in cards if path.removeprefix(f"{card.root}.") in (str(card.name), card.name.tool)]
    return found or [card for card in cards if path.removeprefix(f"{card.root}.") in (card.name.category, card.root)]


def search(cards: Sequence[ToolInfo], query: str) -> list[ToolInfo]:
    """Returns the tools that match at least one query word, best first."""
    words = query_words(query)
    indexed = [_Index(card) for card in cards]
    found = [[index.worth(word) for word in words] for index in indexed]
    rarities = map(_rarity, zip(*found, strict=True))
    weights = [rarity * (_AS_VERB if word in VERBS else 1.0) for word, rarity in zip(words, rarities, strict=False)]
    scores = [_relevance(worths, weights) * index.emphasis(words) for index, worths in zip(indexed, found, strict=True)]
    order = sorted(range(len(cards)), key=lambda index: -scores[index])
    return [cards[index] for index in order if scores[index] > 0]


def _rarity(worths: Sequence[float]) -> float:
    """Returns the rarity of a word, which is low for words that occur in most tools, such as "get"."""
    return math.log(1 + len(worths) * _IN_NAME / (sum(worths) or math.inf))


def _relevance(worths: Sequence[float], weights: Sequence[float]) -> float:
    """Returns the weighted sum for a tool, reduced by the penalty for missing words."""
    missed = sum(weight for worth, weight in zip(worths, weights, strict=True) if not worth)
    share = missed / (sum(weights) or 1.0)
    return sum(worth * weight for worth, weight in zip(worths, weights, strict=True)) * (1 - _MISSING_WORDS * share)


class _Index:
    """The words of a tool and their weights."""

    def __init__(self, card: ToolInfo):
        described = " ".join(each.description for each in card.parameters)
        texts = {
            _IN_TEXT: f"{card.doc} {described}",
            _IN_PARAMETER: " ".join(each.name for each in card.parameters),
            _IN_SUMMARY: card.summary,
            _IN_NAME: str(card.name),
        }
        # Higher weights come last and overwrite lower ones.
        self._words = {word: worth for worth, text in texts.items() for word in words_of(text)}
        self._stems = {stem(word): worth for word, worth in sorted(self._words.items(), key=lambda item: item[1])}
        self._category = words_of(card.name.category)
        name = name_words(card.name.tool)
        # Some servers repeat their own name in all tool names.
        self._name = [word for word in name if word not in self._category] or name
        self._in_use = card.parsed is not None or card.root == GENTOOLS

    def worth(self, word: str) -> float:
        """Returns the weight of a query word, or 0 if the tool lacks it."""
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
        """Returns the score's factor, based on the tool's name, the kind of query, and whether the tool is in use."""
        meant = {stem(word) for word in words}.union(*map(synonyms, words))
        asked = changes([word for word in words if word not in self._category])
        covered = sum(stem(each) in meant or (each in READING and not asked) for each in self._name)
        emphasis = 1 + covered / max(1, len(self._name))
        if changes(self._name) and not asked:
            emphasis *= _UNREQUESTED_CHANGE
        elif "list" in self._name and not asked and any(word.endswith("s") for word in words):
            emphasis *= _LISTS_SEVERAL
        return emphasis * (_IN_USE if self._in_use else 1.0)
