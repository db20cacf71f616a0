"""Records a command in a terminal as an animated SVG, with text as text.

    python docs/record_terminal.py docs/demo.svg ipybox demo

`make recording` makes the recording of the README. A browser plays it once; without animations it shows the end. The
window is dark on every page, as terminals are.
"""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from itertools import groupby
from pathlib import Path

import pexpect
import pyte
from pyte.screens import Char

#: Columns of the terminal, and rows of the window. Longer output scrolls.
COLUMNS, ROWS = 100, 28

#: Rows of the terminal that runs the command: no output is lost by scrolling.
SCREEN_ROWS = 400

#: Seconds without output after which a command counts as hanging, and the longest pause that the recording keeps.
TIMEOUT, LONGEST_PAUSE = 60, 1.0

#: Seconds that a row takes at least.
ROW_TIME = 0.12

#: Pixels of a character and of the border.
WIDTH, HEIGHT, BORDER = 8.4, 19, 16

BACKGROUND, FOREGROUND = "#161b22", "#e6edf3"

#: The colors that pyte names; it gives others as hexadecimal digits.
COLORS = {
    "default": FOREGROUND,
    "black": "#6e7681",
    "red": "#ff7b72",
    "green": "#7ee787",
    "brown": "#e3b341",
    "blue": "#79c0ff",
    "magenta": "#d2a8ff",
    "cyan": "#76e3ea",
    "white": "#e6edf3",
}


@dataclass(frozen=True)
class Run:
    """Characters of one style, from a column on."""

    column: int
    text: str
    color: str
    bold: bool


@dataclass
class Recording:
    """The rows of the terminal at the end, and the seconds after which each had its final content."""

    rows: list[list[Run]] = field(default_factory=list[list[Run]])
    times: list[float] = field(default_factory=list[float])


def record(command: list[str]) -> Recording:
    """Runs a command in a terminal, and returns what it shows.

    Raises:
        RuntimeError: If the command fails, or prints nothing for `TIMEOUT` seconds.
    """
    screen = pyte.Screen(COLUMNS, SCREEN_ROWS)
    stream = pyte.Stream(screen)
    stream.feed(f"\x1b[1;32m$\x1b[0m \x1b[1m{' '.join(command)}\x1b[0m\r\n")
    changed = [0.0] * SCREEN_ROWS
    elapsed, last = 0.0, time.monotonic()
    process: pexpect.spawn[str] = pexpect.spawn(
        command[0], command[1:], dimensions=(SCREEN_ROWS, COLUMNS), encoding="utf-8"
    )
    try:
        while True:
            screen.dirty.clear()
            stream.feed(process.read_nonblocking(65536, timeout=TIMEOUT))
            now = time.monotonic()
            elapsed, last = elapsed + min(now - last, LONGEST_PAUSE), now
            for row in screen.dirty:
                changed[row] = elapsed
    except pexpect.EOF:
        process.close()
    except pexpect.TIMEOUT:
        process.close(force=True)
        raise RuntimeError(f"{command[0]} printed nothing for {TIMEOUT} s") from None
    if process.exitstatus:
        raise RuntimeError(f"{command[0]} failed with status {process.exitstatus}")
    rows = [[*_runs([screen.buffer[row][column] for column in range(COLUMNS)])] for row in range(SCREEN_ROWS)]
    end = max(number for number, row in enumerate(rows) if row) + 1
    return Recording(rows[:end], changed[:end])


def _runs(characters: list[Char]) -> Iterator[Run]:
    column = 0
    for (color, bold), group in groupby(characters, key=lambda character: (character.fg, character.bold)):
        text = "".join(character.data for character in group)
        if text.strip():
            name = color.removeprefix("bright")
            yield Run(column, text.rstrip(), COLORS.get(name) or f"#{color}", bold)
        column += len(text)


def svg(recording: Recording, title: str) -> str:
    """Returns the recording as an SVG document."""
    shown = min(len(recording.rows), ROWS)
    width, height = round(COLUMNS * WIDTH + 2 * BORDER), shown * HEIGHT + 2 * BORDER
    times = list(_paced(recording.times))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_style(times)}</style>",
        f'<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND}"/>',
        f'<svg x="{BORDER}" y="{BORDER}" width="{COLUMNS * WIDTH:g}" height="{shown * HEIGHT}"><g class="all">',
    ]
    for number, (row, seconds) in enumerate(zip(recording.rows, times, strict=True)):
        if row:
            texts = "".join(_text(run) for run in row)
            lines.append(
                f'<g class="row" transform="translate(0 {number * HEIGHT})" style="--t:{seconds:.2f}s">{texts}</g>'
            )
    return "\n".join([*lines, "</g></svg>", "</svg>", ""])


def _paced(times: list[float]) -> Iterator[float]:
    """Yields when rows appear: in order, with the pauses of the command, but no faster than a person can follow."""
    shown = latest = 0.0
    for seconds in times:
        shown += max(seconds - latest, ROW_TIME)
        latest = max(latest, seconds)
        yield shown


def _text(run: Run) -> str:
    place = f'x="{run.column * WIDTH:g}" y="{HEIGHT - 5}" textLength="{len(run.text) * WIDTH:g}"'
    weight = ' font-weight="bold"' if run.bold else ""
    return f'<text {place} fill="{run.color}"{weight}>{escape(run.text)}</text>'


def _style(times: list[float]) -> str:
    """Returns the style: rows appear at their times, and the window follows the last one."""
    total = times[-1] or 1
    offsets = [max(0, number + 1 - ROWS) * HEIGHT for number in range(len(times))]
    # The last of the rows that appear together decides; offsets that stay need no step.
    last = dict(zip(times, offsets, strict=True))
    steps = [
        (time, offset)
        for (time, offset), before in zip(last.items(), [-1, *last.values()], strict=False)
        if offset != before
    ]
    steps += [(total, offsets[-1])]
    frames = "".join(f"{100 * time / total:.2f}%{{transform:translateY(-{offset}px)}}" for time, offset in steps)
    return (
        "text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre}"
        "@keyframes show{from{visibility:hidden}to{visibility:visible}}"
        f"@keyframes scroll{{{frames}}}"
        ".row{animation:show 1ms var(--t) both}"
        f".all{{animation:scroll {total:.2f}s step-end both}}"
        "@media(prefers-reduced-motion:reduce){.row,.all{animation-delay:0s;animation-duration:0s}}"
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(svg(record(sys.argv[2:]), f"A recording of `{' '.join(sys.argv[2:])}`"))
