"""What commands print: tables and colors on a terminal, plain text in a pipe, JSON for programs."""

import json
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import click

from ipybox.support.printable import printable

#: Columns of a terminal that are used at least.
MIN_COLUMNS = 20


def say(text: object, **style: Any) -> None:
    """Prints text, which may be hostile; on a terminal, in a style of `click.style`."""
    click.secho(printable(str(text), lines=True), file=sys.stdout, **style)


def say_lines(text: str, *, words: bool = False) -> None:
    """Prints lines of hostile text. Long ones continue behind a bar: a terminal would do so where other lines begin.

    With `words`, they end between words where possible.
    """
    from ipybox.mcp_server.shown_call import wrapped  # imports the rules, which few commands need

    columns = max(MIN_COLUMNS, shutil.get_terminal_size().columns)
    for line in printable(text, lines=True).split("\n"):
        say("\n".join(wrapped(line.expandtabs(), len(line), words=words, columns=columns)))


def tell(text: object) -> None:
    """Prints a message from ipybox on stderr; the text may be hostile."""
    print(printable(f"ipybox: {text}", lines=True), file=sys.stderr, flush=True)


def counted(number: int, noun: str) -> str:
    """Returns a number with a noun, as in `2 tools`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def say_code(code: str) -> None:
    """Prints Python, highlighted on a terminal."""
    if not sys.stdout.isatty():
        say(code)
        return
    from rich.syntax import Syntax

    _render(Syntax(printable(code, lines=True), "python", background_color="default", word_wrap=True))


def say_json(data: Any) -> None:
    """Prints JSON in ASCII, which can't control a terminal."""
    print(json.dumps(data, indent=2), flush=True)


def say_table(headings: Sequence[str], rows: Sequence[Sequence[str]], colors: Sequence[str] = ()) -> None:
    """Prints a table of texts, which may be hostile; in a pipe, without headings and with columns two spaces apart.

    On a terminal, the first column of each row can have a color.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for row in cells:
            say("  ".join(map(str.ljust, row, widths)).rstrip())
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for (first, *others), color in zip(cells, colors or [""] * len(cells), strict=True):
        table.add_row(Text(first, color), *map(Text, others))
    _render(table)


def _render(renderable: Any) -> None:
    from rich.console import Console

    Console(highlight=False, color_system=None if "NO_COLOR" in os.environ else "auto").print(renderable)


def agreed(question: str, otherwise: str, option: str = ", or add --yes") -> bool:
    """Asks a person at a terminal; returns whether the answer is yes, and prints `otherwise` if it is not."""
    hint = "" if sys.stdin.isatty() else f": run this in a terminal to be asked{option}"
    with suppress(EOFError):
        if not hint and input(f"{printable(question)} [y/N] ").strip().lower() in ("y", "yes"):
            return True
    say(f"{otherwise}{hint}")
    return False
