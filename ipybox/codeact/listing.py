"""`tools()`: what an agent reads in order to choose a tool. Each character costs it, so that answers are terse."""

from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

from ipybox.codeact.card import Card, gentool_cards, mcp_cards
from ipybox.codeact.interface import interface
from ipybox.codeact.library import GENTOOLS, MCPTOOLS, Library
from ipybox.codeact.search import search
from ipybox.codeact.source import UnreadableError
from ipybox.printable import printable

#: Characters of an overview, and of these those of its gentools.
BUDGET = 2000
GENTOOLS_BUDGET = 1200
#: Characters of a line that describes a tool.
LINE = 160
#: The same, where the parameters need it.
LONGEST_LINE = 300
#: Tools of a category from which on their lines are short, and the length of these.
MANY = 40
SHORT_LINE = 90
#: Hits of a search, and characters up to which the interface of the best one is shown with them.
HITS = 6
SHOWN_INTERFACE = 3000
#: Unreadable files that are named.
NAMED = 3

HOW = 'tools("some words") searches, tools("category") lists, tools("category.tool") shows its interface.'


def tools(query: str = "", *, workspace: Path | str = ".") -> str:
    """The tools of a workspace, in a few lines to read before choosing one.

    Nothing is imported or run for it. Parameters with a question mark are optional.

    Args:
        query: What to show. By default all tools, as far as they are few. The name of a category or server lists its
            tools. The name of a tool, as `github.list_commits`, shows its interface. All else is searched for in
            names, parameters and descriptions; the interface of the best hit is shown, too.
        workspace: The directory that holds `gentools` and `mcptools`.

    Raises:
        NotADirectoryError: There is no such workspace.
    """
    library = Library(workspace)
    cards = [*gentool_cards(library), *mcp_cards(library)]
    query = query.strip()
    answer = _overview(cards) if not query else _answer(cards, query)
    return printable("\n".join([answer, *_unreadable(library.unreadable)]), lines=True)


def _answer(cards: list[Card], query: str) -> str:
    path = query.replace("/", ".").removesuffix(".py")
    root, _, rest = path.partition(".")
    among = [card for card in cards if card.root == root] if root in (GENTOOLS, MCPTOOLS) else cards
    name = rest if among is not cards else path
    if named := [card for card in among if name in (str(card.name), card.name.tool)]:
        return _named(named)
    if listed := [card for card in among if name in (card.name.category, "")]:
        return "\n".join(_lines(listed, short=len(listed) > MANY))
    if hits := search(cards, query):
        return _found(hits)
    return f"No tool for {query!r} among: {_counts(cards)}\n{HOW}" if cards else _overview(cards)


def _found(hits: list[Card]) -> str:
    """The best hits, and the interface of the very best, which saves a question as it mostly is what was meant."""
    lines = [_line(card) if card.root == GENTOOLS else _short_line(card) for card in hits[:HITS]]
    if len(hits) > HITS:
        lines.append(f"… and {len(hits) - HITS} more: use other words")
    best = interface(hits[0])
    return "\n".join([*lines, "", best] if len(best) <= SHOWN_INTERFACE else lines)


def _named(cards: list[Card]) -> str:
    """The interface of a tool, unless several have the name."""
    first, *others = cards
    if others and any(card.name != first.name for card in others):
        return "\n".join([f"Several tools are called {first.name.tool}:", *_lines(cards)])
    also = [f'Also: tools("{card.name.module(card.root)}")' for card in others]
    return "\n".join([interface(first), *also])


def _overview(cards: list[Card]) -> str:
    """The gentools, then the tools of servers, each as detailed as there is room."""
    gentools = [card for card in cards if card.root == GENTOOLS]
    mcptools = [card for card in cards if card.root == MCPTOOLS]
    if not cards:
        return "No tools yet: register an MCP server, or save a code action in gentools/<category>/<tool>/."
    parts: list[str] = []
    if gentools:
        parts.append(_section(f"gentools ({len(gentools)}), to be preferred:", gentools, GENTOOLS_BUDGET))
    if mcptools:
        parsed = ", run_parsed before run" if any(card.parsed for card in mcptools) else ""
        room = BUDGET - sum(map(len, parts))
        parts.append(_section(f"mcptools ({len(mcptools)}){parsed}:", mcptools, room))
    return "\n".join([*parts, HOW])


def _section(title: str, cards: list[Card], room: int) -> str:
    details: tuple[Callable[[], Sequence[str]], ...] = (
        lambda: _lines(cards),
        lambda: _lines(cards, short=True),
        lambda: _names(cards),
    )
    for detail in details:
        text = "\n".join([title, *detail()])
        if len(text) <= room:
            return text
    return f"{title} {_counts(cards, room)}"


def _lines(cards: Sequence[Card], *, short: bool = False) -> list[str]:
    """A line for each tool."""
    return [_short_line(card) if short else _line(card) for card in cards]


def _line(card: Card) -> str:
    head = f"{card.signature}{_mark(card)}"
    room = min(max(LINE, len(head)), LONGEST_LINE)
    return _cut(f"{head}: {card.summary}" if card.summary else head, room)


def _short_line(card: Card) -> str:
    head = f"{card.name}{_mark(card)}"
    return _cut(f"{head}: {card.summary}" if card.summary else head, SHORT_LINE)


def _names(cards: list[Card]) -> list[str]:
    """A line for each category."""
    return [
        f"{category}: {', '.join(f'{card.name.tool}{_mark(card)}' for card in group)}"
        for category, group in groupby(cards, lambda card: card.name.category)
    ]


def _counts(cards: list[Card], room: int = BUDGET) -> str:
    """The number of tools in each category, and the parsed ones."""
    groups = {key: list(group) for key, group in groupby(cards, lambda card: (card.root, card.name.category))}
    counts = [f"{root}.{category} {len(group)}" for (root, category), group in groups.items()]
    parsed = [str(card.name) for card in cards if card.parsed]
    text = _cut(", ".join(counts), room // 2)
    return f"{text}\n[run_parsed]: {_cut(', '.join(parsed), room // 2)}" if parsed else text


def _mark(card: Card) -> str:
    return " [run_parsed]" if card.parsed else ""


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1].rstrip()}…"


def _unreadable(errors: Sequence[UnreadableError]) -> list[str]:
    """A line for each of the first files that are left out."""
    lines = [f"! {_cut(str(error), LINE)}" for error in errors[:NAMED]]
    return [*lines, f"! and {len(errors) - NAMED} more: check() names them"] if len(errors) > NAMED else lines
