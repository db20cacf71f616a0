"""Ranks tools by a query.

The score sums the rarities of matching query words, weighted by where they occur in the tool. It grows with the share
of the tool's name that the query covers, and shrinks for a tool that changes something if the query only reads.
"""

import math
import operator
import re
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache

from ipybox.codeact.library import GENTOOLS
from ipybox.codeact.tool_info import ToolInfo

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


#: Stop words in queries, and in names such as `commits_of_top_repos`.
_FILLERS = frozenset(
    str.split(
        "a about all am an and another any are as at be been by can certain did different do does for from given has "
        "have how i if in into is it its just me mine my of on or our please some somebody someone specific that the "
        "their them there these this those to us was we were what when where which who whose why will with you your"
    )
)

#: Synonymous verbs.
_CREATE = "create add make raise generate insert append compose attach initialize"
_UPDATE = "update edit change modify set replace alter adjust amend patch revise substitute rewrite correct"
_DELETE = "delete remove erase drop discard destroy purge detach trash"
_READ = "get read fetch show view retrieve display inspect see check load download describe print"
_LIST = "list enumerate browse"
_SEARCH = "search find query locate grep seek discover lookup filter"

#: Groups of synonyms, each followed by a comma.
_GROUPS = (
    f"{_CREATE} new register link, {_UPDATE}, {_DELETE} unlink, {_READ}, {_LIST}, {_SEARCH}, "
    # Actions.
    "write save store put overwrite persist dump, add stage, add post leave put publish, "
    "create write upload publish share post submit, push upload send, move rename relocate, "
    "reorder rearrange prioritize reprioritize order sort, rename retitle title name, switch checkout, "
    "copy clone fork, trigger run rerun start restart retry launch dispatch execute invoke, "
    "cancel stop abort kill terminate halt, cancel discard delete, submit publish finish complete send, "
    "state status close reopen, reopen unresolve, resolve close fix, dismiss clear acknowledge archive, "
    "subscription subscribe unsubscribe watch unwatch follow unfollow mute ignore, "
    "merge land integrate squash combine, reset clear undo unstage revert restore, request ask invite, "
    "review reviewer, review approve approval reject decline, reply answer respond response, comment respond, "
    "reaction react emoji thumb upvote like, convert conversion translate transform, "
    # Changes, files and jobs.
    "diff compare comparison difference delta, log history timeline, log output, commit revision changeset, "
    "staged cached, stage staging index, blame author authorship annotate, directory folder, "
    "tree structure hierarchy nested recursive, organization organisation company, workflow action ci pipeline job, "
    "run build pipeline, failed fail failure failing error broken, "
    # Properties.
    "body description text content, detail information metadata property attribute, issue ticket bug task defect, "
    "subissue subtask child, dependency depend block blocker, duplicate similar same identical, "
    "image picture photo media audio video screenshot, timezone zone, time date hour clock day, "
    "current authenticated own, "
    # People and permissions.
    "star favorite bookmark like, user people person developer account profile username me, "
    "member people person user belong membership, "
    "collaborator contributor maintainer member people access permission, "
    "allowed permitted accessible access permission, team group, notification inbox, "
    "alert warning vulnerability finding, finding problem, security advisory vulnerability vulnerable cve, "
    "secret credential token password key leaked exposed, "
    # Messages, tables and pages.
    "discussion forum topic thread conversation, comment remark note message, "
    "release version, tag version, label tag, type kind category, latest newest recent last, "
    "pending draft unfinished, multiple several many batch bulk, modified changed, size big biggest large largest, "
    "gist snippet, message mail email, channel room chat, event meeting appointment calendar, row record entry, "
    "column field, page document article, url link address, web internet online website, "
    "setting option preference configuration, count number total, "
)

#: Verbs for changing something, and words that are such verbs only in first position.
_CHANGING = frozenset(
    str.split(
        f"{_CREATE} {_UPDATE} {_DELETE} move rename close reopen assign reorder write manage trigger rerun retry "
        "restart submit approve cancel abort upload save resolve unresolve undo"
    )
)
_MAYBE_CHANGING = frozenset(
    str.split(
        "new comment reply react request answer ask post report file link share review leave mark label tag sync "
        "clear run start stop star unstar fork copy merge squash push dismiss stage unstage commit reset watch mute "
        "subscribe unsubscribe put store overwrite send publish"
    )
)
#: Verbs for reading something.
READING = frozenset(f"{_READ} {_LIST} {_SEARCH}".split()) - {"check"}

#: Abbreviations and their meanings.
_SHORT_FORMS = (
    "pr pull request, prs pull requests, repo repository, repos repositories, org organization, orgs organizations, "
    "dir directory, dirs directories, info information, tz timezone, db database, config configuration, "
    "env environment, msg message, mkdir create directory"
)
_WRITTEN_OUT = {short: words for short, _, words in (form.partition(" ") for form in _SHORT_FORMS.split(", "))}

#: Phrases in queries, and the words that tools use instead.
_PHRASES = tuple(
    (re.compile(rf"\b(?:{phrase})\b", re.IGNORECASE), words)
    for phrase, words in (
        (r"open(?= (?:an? |the )?(?:\w+ )?(?:file|folder|directory|page|link)\b)", "read"),
        (r"(?:open|file|raise|report|submit|log)(?= (?:an?|new)\b)", "create"),
        (r"(?:^(?:open|raise|file))(?= (?:\w+ )?\w*[^s\W](?: (?:about|against|for|from|in|on|to|with)\b|$))", "create"),
        (r"look(?:ing)? (?:up|for)", "find"),
        (r"get rid of|(?:take|throw) (?:off|away|out)", "remove"),
        (r"(?:bring|make|keep|get)(?= .{0,60}\bup[ -]to[ -]date)", "update"),
        (r"(?:show|get|view|see|display|fetch) (?:me )?all", "list"),
        (r"who am i|whoami|(?:i am |am i )?(?:logged|signed) in(?: as)?", "authenticated user"),
        (r"who (?:has|can|may)", "people access"),
        (r"(?:right )?now|today(?:'s)?|at the moment", "current time"),
        (r"merge(?= requests?\b)", "pull"),
        (r"(?:without|except|excluding|instead of) .*", ""),
    )
)

#: Word endings and their replacements, applied in order.
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


def words_of(text: str) -> list[str]:
    """Returns the words of a text in lower case, with abbreviations expanded; `perPage` is two words."""
    words: list[str] = re.findall(r"[^\W_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).casefold())
    return " ".join(_WRITTEN_OUT.get(word, word) for word in words).split()


def query_words(query: str) -> list[str]:
    """Returns the distinct words of a query, without stop words, and with phrases in the words that tools use."""
    for phrase, words in _PHRASES:
        query = phrase.sub(words, query)
    return list(dict.fromkeys(name_words(query)))


def name_words(name: str) -> list[str]:
    """Returns the words of a name, without stop words."""
    return [word for word in words_of(name) if word not in _FILLERS]


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """Returns the stem of a word: `commit` for `commits` and `committed`."""
    for ending, rest in _ENDINGS:
        word = ending.sub(rest, word)
    return word


#: The stems of synonyms, by word and by stem.
_MEANINGS: dict[str, set[str]] = defaultdict(set)
for _group in _GROUPS.split(","):
    for _word in [*_group.split(), *map(stem, _group.split())]:
        _MEANINGS[_word].update(map(stem, _group.split()))


@lru_cache(maxsize=8192)
def synonyms(word: str) -> frozenset[str]:
    """Returns the stems of a word's synonyms; `change` has the synonym `update`, but `changed` doesn't."""
    if word not in _MEANINGS and word.startswith("un"):
        return frozenset(f"un{other}" for other in synonyms(word.removeprefix("un")))
    return frozenset(_MEANINGS.get(word) or (() if word.endswith("ed") else _MEANINGS.get(stem(word), ())))


def changes(words: Sequence[str]) -> bool:
    """Returns whether a query or a name is about changing something, rather than reading it."""
    return not _CHANGING.isdisjoint(words) or not _MAYBE_CHANGING.isdisjoint(words[:1])
