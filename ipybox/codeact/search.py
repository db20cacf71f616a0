"""Ranks tools by a query.

The score sums the rarities of matching query words, weighted by where they occur in the tool. It grows with the share
of the tool's name that the query covers, and shrinks for a tool that changes something if the query only reads.
"""

import math
import operator
from collections.abc import Sequence

from ipybox.codeact.library import GENTOOLS
from ipybox.codeact.tool_info import ToolInfo
from ipybox.codeact.words import READING, changes, name_words, query_words, stem, synonyms, words_of

#: Weights of a word by where it occurs in a tool. The highest weight counts.
_IN_NAME = 4.0
_IN_SUMMARY = 2.5
_IN_PARAMETER = 2.0
_IN_TEXT = 1.0
#: Factor for another form of the word, a synonym, and a longer word that begins with it.
_IN_OTHER_FORM = 0.7
#: Factor for a tool that changes something if the query only reads.
_UNREQUESTED_CHANGE = 0.8
#: Factor for a tool that lists, if the query contains a plural.
_LISTS_SEVERAL = 1.04
#: Factor for a tool in use: a saved code action, or a tool with a parser.
_IN_USE = 1.2
#: Minimum characters of a word that matches longer words as a prefix.
_SHORTEST_BEGINNING = 3


def search(cards: Sequence[ToolInfo], query: str) -> list[ToolInfo]:
    """Returns the tools that match at least one query word, best first."""
    words = query_words(query)
    indexed = [_Index(card) for card in cards]
    found = [[index.worth(word) for word in words] for index in indexed]
    # A word that occurs in most tools, such as "get", is not rare.
    rarities = [math.log(1 + len(cards) * _IN_NAME / (sum(worths) or math.inf)) for worths in zip(*found, strict=True)]
    relevance = [sum(map(operator.mul, worths, rarities)) for worths in found]
    scored = [(each * index.emphasis(words), card) for each, index, card in zip(relevance, indexed, cards, strict=True)]
    return [card for score, card in sorted(scored, key=lambda each: -each[0]) if score > 0]


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
        forms = [self._stems.get(other, 0.0) for other in (stemmed, *synonyms(word))]
        if word not in self._words and not any(forms) and len(stemmed) >= _SHORTEST_BEGINNING:
            forms = [worth for other, worth in self._words.items() if other.startswith(stemmed)]
        return max(self._words.get(word, 0.0), max(forms, default=0.0) * _IN_OTHER_FORM)

    def emphasis(self, words: Sequence[str]) -> float:
        """Returns the score's factor, based on the tool's name, what the query asks, and whether the tool is in use."""
        meant = {stem(word) for word in words}.union(*map(synonyms, words))
        asked = changes([word for word in words if word not in self._category])
        covered = sum(stem(each) in meant or (each in READING and not asked) for each in self._name)
        emphasis = 1 + covered / max(1, len(self._name))
        if changes(self._name) and not asked:
            emphasis *= _UNREQUESTED_CHANGE
        elif "list" in self._name and not asked and any(word.endswith("s") for word in words):
            emphasis *= _LISTS_SEVERAL
        return emphasis * (_IN_USE if self._in_use else 1.0)
