"""What commands print: tables and colors on a terminal, plain text in a pipe, JSON for programs."""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ipybox.support.printable import printable

if TYPE_CHECKING:
    from rich.console import Console


def say(text: object, *, style: str = "") -> None:
    """Prints a line, or several, in a color if that can be seen; the text may be hostile."""
    shown = printable(str(text), lines=True)
    if not style or not sys.stdout.isatty():
        print(shown, flush=True)
        return
    from rich.text import Text

    _terminal().print(Text(shown, style), soft_wrap=True)


def say_code(code: str) -> None:
    """Prints Python, highlighted on a terminal."""
    if not sys.stdout.isatty():
        say(code)
        return
    from rich.syntax import Syntax

    _terminal().print(Syntax(printable(code, lines=True), "python", background_color="default", word_wrap=True))


def _terminal() -> "Console":
    from rich.console import Console

    return Console(highlight=False, color_system=None if "NO_COLOR" in os.environ else "auto")


def say_json(data: Any) -> None:
    """Prints JSON, in ASCII, so that nothing in it can control a terminal."""
    print(json.dumps(data, indent=2), flush=True)


def say_table(headings: Sequence[str], rows: Iterable[Sequence[str]], styles: Iterable[str] = ()) -> None:
    """Prints a table; in a pipe, without headings, in columns that are two spaces apart.

    Args:
        headings: The headings of the columns.
        rows: The texts of each row, which may be hostile.
        styles: The style of the first column of each row on a terminal.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for row in cells:
            say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    shades = [*styles] or [""] * len(cells)
    for row, style in zip(cells, shades, strict=True):
        table.add_row(Text(row[0], style), *map(Text, row[1:]))
    _terminal().print(table)


def agreed(question: str, otherwise: str) -> bool:
    """Asks a person who sits at a terminal, and returns whether the answer is yes.

    Args:
        question: What to ask.
        otherwise: What is said if there is nobody to ask.
    """
    if not sys.stdin.isatty():
        say(f"{otherwise}: run this in a terminal to be asked, or add --yes")
        return False
    try:
        yes = input(f"{printable(question)} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        yes = False
    if not yes:
        say(otherwise)
    return yes
