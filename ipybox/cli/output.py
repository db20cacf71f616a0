"""What commands print: tables and colors on a terminal, plain text in a pipe, JSON for programs."""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from ipybox.support.printable import printable


def say(text: object, *, style: str = "") -> None:
    """Prints a line, or several, in a color if that can be seen; the text may be hostile."""
    shown = printable(str(text), lines=True)
    if not style or not sys.stdout.isatty():
        print(shown, flush=True)
        return
    from rich.text import Text

    _render(Text(shown, style), soft_wrap=True)


def say_code(code: str) -> None:
    """Prints Python, highlighted on a terminal."""
    if not sys.stdout.isatty():
        say(code)
        return
    from rich.syntax import Syntax

    _render(Syntax(printable(code, lines=True), "python", background_color="default", word_wrap=True))


def say_json(data: Any) -> None:
    """Prints JSON, in ASCII, so that nothing in it can control a terminal."""
    print(json.dumps(data, indent=2), flush=True)


def say_table(headings: Sequence[str], rows: Iterable[Sequence[str]], styles: Sequence[str] = ()) -> None:
    """Prints a table of texts, which may be hostile; in a pipe, without headings, in columns two spaces apart.

    On a terminal, the first column of each row can have a style.
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
    for (first, *others), style in zip(cells, styles or [""] * len(cells), strict=True):
        table.add_row(Text(first, style), *map(Text, others))
    _render(table)


def _render(renderable: Any, *, soft_wrap: bool = False) -> None:
    from rich.console import Console

    color = None if "NO_COLOR" in os.environ else "auto"
    Console(highlight=False, color_system=color).print(renderable, soft_wrap=soft_wrap)


def agreed(question: str, otherwise: str) -> bool:
    """Asks a person at a terminal, and returns whether the answer is yes; if not, prints what that means."""
    hint = ""
    if not sys.stdin.isatty():
        hint = ": run this in a terminal to be asked, or add --yes"
    else:
        try:
            if input(f"{printable(question)} [y/N] ").strip().lower() in ("y", "yes"):
                return True
        except EOFError:
            pass
    say(f"{otherwise}{hint}")
    return False
