"""`tools()`, which helps an agent choose a tool. Its output is terse, because each character costs context."""

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from itertools import groupby
from pathlib import Path

from ipybox.codeact.interface import interface, short_interface
from ipybox.codeact.library import GENTOOLS, MCPTOOLS, Library
from ipybox.codeact.search import search
from ipybox.codeact.source import UnreadableError
from ipybox.codeact.tool_info import ToolInfo, cut, gentool_cards, mcp_cards
from ipybox.support.printable import printable

#: Maximum characters of an overview, and of its gentools section.
BUDGET = 2000
GENTOOLS_BUDGET = 1200
#: Maximum characters of a tool's line, and of a line with many parameters.
LINE = 160
LONGEST_LINE = 300
#: Number of tools in a category above which lines are short, and maximum characters of a short line.
MANY = 40
SHORT_LINE = 90
#: Maximum characters of the best hit's interface, and number of other hits to name.
SHOWN_INTERFACE = 3000
OTHERS = 4
#: Number of tools to suggest for a missing tool, and minimum similarity of their names.
NEAREST = 3
LIKENESS = 0.75
#: Number of unreadable files to name.
NAMED = 3

HOW = 'tools("some words") searches, tools("category") lists, tools("category.tool") shows its interface.'


def tools(*queries: str, workspace: Path | str = ".") -> str:
    """Returns the tools of a workspace, in a few lines to read before choosing one.

    Imports and runs nothing. Parameters with a question mark are optional.

    Args:
        queries: What to show, one answer for each; by default all tools, in as much detail as fits. The name of a
            category or server lists its tools. The name of a tool, such as `github.list_commits`, shows its interface.
            Anything else searches names, parameters and descriptions, and shows the best hit's interface, with
            truncated descriptions, and the names of other hits.
        workspace: The directory that contains `gentools` and `mcptools`.

    Raises:
        NotADirectoryError: If the workspace does not exist.
    """
    library = Library(workspace)
    cards = [*gentool_cards(library), *mcp_cards(library)]
    asked = dict.fromkeys(query.strip() for query in queries if query.strip())
    answers = dict.fromkeys(_answer(cards, query) for query in asked) if asked else [_overview(cards)]
    return printable("\n".join(["\n\n".join(answers), *_unreadable([*library.unreadable.values()])]), lines=True)


def _answer(cards: list[ToolInfo], query: str) -> str:
    path = query.replace("/", ".").removesuffix(".py")
    if found := named(cards, path):
        if path.rpartition(".")[2] == found[0].name.tool:
            return _named(found)
        return "\n".join(_lines(found, short=len(found) > MANY))
    root, _, rest = path.partition(".")
    among, name = (
        ([card for card in cards if card.root == root], rest) if root in (GENTOOLS, MCPTOOLS) else (cards, path)
    )
    if not cards:
        return _overview(cards)
    if "." in name and all(map(str.isidentifier, name.split("."))):
        return _missing(among, name)
    if hits := search(among, name):
        return _found(hits)
    return f"No tool for {query!r} among: {_counts(cards)}\n{HOW}"


def named(cards: Sequence[ToolInfo], query: str) -> list[ToolInfo]:
    """Returns the tools with this name; if there are none, those in this category or root."""
    path = query.strip().replace("/", ".").removesuffix(".py")
    found = [card for card in cards if path.removeprefix(f"{card.root}.") in (str(card.name), card.name.tool)]
    return found or [card for card in cards if path.removeprefix(f"{card.root}.") in (card.name.category, card.root)]


def _missing(cards: list[ToolInfo], name: str) -> str:
    """Suggests tools with the same name in other categories, with similar names, or found by a search."""
    category, _, tool = name.rpartition(".")
    inside = [card for card in cards if card.name.category == category]
    alike = [str(card.name) for card in cards if card.name.tool == tool]
    alike += get_close_matches(name, [str(card.name) for card in cards], NEAREST, LIKENESS)
    alike += [str(hit.name) for hit in search(inside or cards, tool)]
    nearest = ", ".join(list(dict.fromkeys(alike))[:NEAREST])
    return f"No tool {name}; nearest: {nearest}" if nearest else f"No tool {name} among: {_counts(cards)}\n{HOW}"


def _found(hits: list[ToolInfo]) -> str:
    """Returns the best hit's interface, which often saves a second query, and the names of other hits."""
    best, *others = hits
    shown = short_interface(best)
    if len(shown) > SHOWN_INTERFACE:
        shown = f'# {_line(best)}\n# tools("{best.name.module(best.root)}") shows its interface'
    named = ", ".join(map(_named_in_short, others[:OTHERS]))
    return f"{shown}\n# also: {named}" if others else shown


def _named(cards: list[ToolInfo]) -> str:
    """Returns a tool's interface, or a list if several tools have the name."""
    first, *others = cards
    if others and any(card.name != first.name for card in others):
        return "\n".join([f"Several tools are called {first.name.tool}:", *_lines(cards)])
    also = [f'Also: tools("{card.name.module(card.root)}")' for card in others]
    return "\n".join([interface(first), *also])


def _overview(cards: list[ToolInfo]) -> str:
    gentools = [card for card in cards if card.root == GENTOOLS]
    mcptools = [card for card in cards if card.root == MCPTOOLS]
    if not cards:
        return "No tools yet: register an MCP server, or save a code action in gentools/<category>/<tool>/."
    parts: list[str] = []
    if gentools:
        parts.append(_section(f"gentools ({len(gentools)}), prefer these:", gentools, GENTOOLS_BUDGET))
    if mcptools:
        parsed = ", run_parsed before run" if any(card.parsed for card in mcptools) else ""
        room = BUDGET - sum(map(len, parts))
        parts.append(_section(f"mcptools ({len(mcptools)}){parsed}:", mcptools, room))
    return "\n".join([*parts, HOW])


def _section(title: str, cards: list[ToolInfo], room: int) -> str:
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


def _lines(cards: Sequence[ToolInfo], *, short: bool = False) -> list[str]:
    return [_line(card, short=short) for card in cards]


def _line(card: ToolInfo, *, short: bool = False) -> str:
    head = f"{card.name if short else card.signature}{_mark(card)}"
    room = SHORT_LINE if short else min(max(LINE, len(head)), LONGEST_LINE)
    return cut(f"{head}: {card.summary}" if card.summary else head, room)


def _names(cards: list[ToolInfo]) -> list[str]:
    return [
        f"{category}: {', '.join(f'{card.name.tool}{_mark(card)}' for card in group)}"
        for category, group in groupby(cards, lambda card: card.name.category)
    ]


def _counts(cards: list[ToolInfo], room: int = BUDGET) -> str:
    groups = {key: list(group) for key, group in groupby(cards, lambda card: (card.root, card.name.category))}
    counts = [f"{root}.{category} {len(group)}" for (root, category), group in groups.items()]
    parsed = [str(card.name) for card in cards if card.parsed]
    text = cut(", ".join(counts), room // 2)
    return f"{text}\n[run_parsed]: {cut(', '.join(parsed), room // 2)}" if parsed else text


def _named_in_short(card: ToolInfo) -> str:
    return card.name.module(GENTOOLS) if card.root == GENTOOLS else f"{card.name}{_mark(card)}"


def _mark(card: ToolInfo) -> str:
    return " [run_parsed]" if card.parsed else ""


def _unreadable(errors: Sequence[UnreadableError]) -> list[str]:
    lines = [f"! {cut(str(error), LINE)}" for error in errors[:NAMED]]
    return [*lines, f"! and {len(errors) - NAMED} more: check() lists them"] if len(errors) > NAMED else lines
