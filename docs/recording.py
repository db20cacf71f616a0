"""Record a Claude Code session as an animated SVG for the README: `make recording`.

    python -m docs.recording docs/session.svg

Claude Code, ipybox, the sandbox and the kernel are real. A script plays the model, as in `tests/claude`, and the MCP
server is the stand-in for GitHub's. The session answers the question that `docs/benchmarks.md` measures as "loop over
30 repositories", so the recording ends with the tokens counted there.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path

from pyte.screens import Char

from benchmarks.economics.results import Economics
from benchmarks.economics.tasks import LOOP, Way
from tests.claude.api import Block, Request, serve, tool
from tests.claude.api import text as said
from tests.claude.cli import SESSION_TIMEOUT, Client, Home, publish
from tests.claude.terminal import DOWN, ENTER, RIGHT, Terminal, terminal
from tests.servers import ROOT

PROMPT = (
    "Who made the most of the latest 5 commits in each of octocat's 30 top repositories? Save that to ~/authors.txt"
)

CODE = """
import json
from collections import Counter
from pathlib import Path
from mcptools.github import list_commits as log
from mcptools.github import search_repositories as find

top = find.run(find.Params(query="user:octocat", sort="stars"))
authors = Counter()
for name in [repo["name"] for repo in json.loads(top)["items"]]:
    args = log.Params(owner="octocat", repo=name, perPage=5)
    for each in json.loads(log.run(args)):
        authors[each["commit"]["author"]["name"]] += 1
print(authors.most_common())
Path("~/authors.txt").expanduser().write_text(str(authors))
""".strip()

RULES = """
rules:
  - {effect: allow, server: github, tool: search_*}
default: ask
"""

GENERATE = """
import asyncio, json, sys
from pathlib import Path
from ipybox import generate_mcp_sources

asyncio.run(generate_mcp_sources("github", json.loads(sys.argv[1]), Path("mcptools")))
"""

#: Columns and rows of the terminal, pixels of a character, and pixels around the terminal.
COLUMNS, ROWS = 76, 34
WIDTH, HEIGHT, BORDER = 8.4, 19, 16

#: Rows of the card with the tokens.
CARD_ROWS = 11

#: Characters of the prompt that appear together.
CHUNK = 14

BACKGROUND, FOREGROUND, FAINT, CARD = "#161b22", "#e6edf3", "#9198a1", "#0d1117"

#: Colors by pyte's names; pyte gives all others as hexadecimal digits.
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

#: The bars at the end: a way of using tools, its name and its color.
BARS: tuple[tuple[Way, str, str], ...] = (
    ("JSON tools", "JSON tools", "#8b949e"),
    ("tool search", "tool search", "#db6d28"),
    ("code", "ipybox", "#4493f8"),
)
TOOLS = 117


@dataclass(frozen=True)
class Run:
    """Characters of one style, starting at a column."""

    column: int
    text: str
    color: str
    bold: bool


@dataclass(frozen=True)
class Frame:
    """A screen, row by row, and the seconds that it is shown."""

    rows: list[list[Run]]
    seconds: float


def record(directory: Path) -> list[Frame]:
    """Return the frames of a session in which a user approves calls and the sandbox denies a write.

    Args:
        directory: An empty directory.
    """
    home = Home(directory, publish(directory), client=Client.NEWEST)
    workspace = home.path / "my-project"
    workspace.mkdir()
    github = {"command": sys.executable, "args": [str(ROOT / "tests" / "github_server.py")]}
    environment = {**os.environ, "HOME": str(home.path)}
    generate = [sys.executable, "-c", GENERATE, json.dumps(github)]
    subprocess.run(generate, cwd=workspace, env=environment, check=True)
    rules = home.path / "rules.yaml"
    rules.write_text(RULES)
    arguments = ["-m", "ipybox", "--sandbox", "--workspace", str(workspace), "--approve", str(rules)]
    server = {"type": "stdio", "command": sys.executable, "args": arguments, "alwaysLoad": True}
    options = ["--mcp-config", json.dumps({"mcpServers": {"ipybox": server}}), "--strict-mcp-config"]
    options += ["--permission-mode", "default"]
    with (
        serve([_acts, _answers]) as api,
        terminal(home, workspace, *options, columns=COLUMNS, lines=ROWS, ANTHROPIC_BASE_URL=api.url) as shown,
    ):
        return list(_frames(shown))


def _acts(_: Request) -> list[Block]:
    return [tool("execute_ipython_cell", code=CODE)]


def _answers(request: Request) -> list[Block]:
    (result,) = request.results
    assert "[('Ada Example', 61), ('Octocat', 54), ('Bo Sample', 35)]" in result.text, result.text
    assert "The sandbox refused to write" in result.text, result.text
    return [
        said(
            "Of the 150 commits, Ada Example made 61, Octocat 54 and Bo Sample 35.\n\n"
            "I couldn't save `~/authors.txt`: the sandbox only lets code write to this project. "
            "Shall I save `authors.txt` here?"
        )
    ]


def _frames(shown: Terminal) -> Iterator[Frame]:
    """Type the prompt, press the keys of a user, and yield what the screen shows in between."""
    shown.until("for shortcuts", timeout=SESSION_TIMEOUT)
    yield _frame(shown, 0.6)
    for start in range(0, len(PROMPT), CHUNK):
        shown.type(PROMPT[start : start + CHUNK])
        shown.until(PROMPT[start : start + CHUNK].split()[-1])
        yield _frame(shown, 0.2)
    shown.type(ENTER)
    for texts, key, seconds in (
        (("Do you want to proceed?", "❯ 1. Yes"), ENTER, 4.5),
        (("Code calls github.list_commits", "▸ not set"), RIGHT, 2.0),
        (("❯ ◯ only this call",), DOWN, 0.8),
        (("❯ ◯ the rest of this cell",), ENTER, 1.2),
    ):
        shown.until(*texts, timeout=SESSION_TIMEOUT)
        yield _frame(shown, seconds)
        shown.type(key)
    shown.until("✔ Allow: the rest of this cell", "❯ Accept")
    yield _frame(shown, 1.0)
    shown.type_until_gone(ENTER, "❯ Accept")
    shown.until("Shall I save", "for shortcuts", timeout=SESSION_TIMEOUT)
    yield _frame(shown, 3.0)


def _frame(shown: Terminal, seconds: float) -> Frame:
    """Return what the screen shows, without the gap between the conversation and the prompt."""
    rows = [[*runs([shown.screen.buffer[row][column] for column in range(COLUMNS)])] for row in range(ROWS)]
    return Frame([row for row, after in zip(rows, [*rows[1:], []], strict=True) if row or after], seconds)


def runs(characters: list[Char]) -> Iterator[Run]:
    """Yield the characters of a row by style."""
    column = 0
    for (color, bold), group in groupby(characters, key=lambda character: (character.fg, character.bold)):
        text = "".join(character.data for character in group)
        if text.strip():
            name = color.removeprefix("bright")
            yield Run(column, text.rstrip(), COLORS.get(name) or f"#{color}", bold)
        column += len(text)


def svg(frames: list[Frame], tokens: Economics, title: str) -> str:
    """Return the frames as an SVG that loops; the last one stays, with the tokens of each way to use tools.

    Without animations, the SVG shows the last frame.
    """
    last = Frame(frames[-1].rows, 5.0)
    width = round(COLUMNS * WIDTH + 2 * BORDER)
    height = max(len(frame.rows) for frame in frames) * HEIGHT + 2 * BORDER
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_style([*frames, last])}</style>",
        f'<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND}"/>',
    ]
    for number, frame in enumerate([*frames, last]):
        lines.append(f'<g class="f f{number}">')
        for row, line in enumerate(frame.rows):
            if line:
                place = f"translate({BORDER} {BORDER + row * HEIGHT})"
                lines.append(f'<g transform="{place}">{"".join(map(_text, line))}</g>')
        if frame is last:
            lines += _card(tokens, height - BORDER - CARD_ROWS * HEIGHT)
        lines.append("</g>")
    return "\n".join([*lines, "</svg>", ""])


def _style(frames: list[Frame]) -> str:
    """Return the style that shows one frame after the other."""
    total = sum(frame.seconds for frame in frames)
    rules: list[str] = []
    start = 0.0
    for number, frame in enumerate(frames):
        end = start + frame.seconds
        first = "" if number == 0 else "0%{visibility:hidden}"
        hidden = "" if number == len(frames) - 1 else f"{100 * end / total:.2f}%{{visibility:hidden}}"
        rules.append(f"@keyframes k{number}{{{first}{100 * start / total:.2f}%{{visibility:visible}}{hidden}}}")
        rules.append(f".f{number}{{animation-name:k{number}}}")
        start = end
    return (
        "text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre}"
        f".f{{visibility:hidden;animation:{total:.2f}s step-end infinite}}"
        f"{''.join(rules)}.f{len(frames) - 1}{{visibility:visible}}"
        "@media(prefers-reduced-motion:reduce){.f{animation:none}}"
    )


def _text(run: Run) -> str:
    """Return the SVG element of a run."""
    place = f'x="{run.column * WIDTH:g}" y="{HEIGHT - 5}" textLength="{len(run.text) * WIDTH:g}"'
    weight = ' font-weight="bold"' if run.bold else ""
    return f'<text {place} fill="{run.color}"{weight}>{escape(run.text)}</text>'


def _card(tokens: Economics, top: float) -> Iterator[str]:
    """Yield a card that compares the tokens of the ways to use tools."""
    left, width = BORDER + WIDTH, (COLUMNS - 2) * WIDTH
    place = f'x="{left:g}" y="{top}" width="{width:g}" height="{CARD_ROWS * HEIGHT}"'
    yield f'<rect {place} rx="6" fill="{CARD}" stroke="#3d444d"/>'

    def write(x: float, row: float, text: str, color: str, weight: str = "normal") -> str:
        place = f'x="{left + x:g}" y="{top + row * HEIGHT:g}" fill="{color}" font-weight="{weight}"'
        return f"<text {place}>{escape(text)}</text>"

    yield write(20, 1.7, f"Tokens to answer this question with {TOOLS} tools", FOREGROUND, "bold")
    counts = {way: tokens.find(LOOP.name, way, TOOLS).total().tokens for way, _, _ in BARS}
    longest = max(counts.values())
    for number, (way, name, color) in enumerate(BARS):
        row = 3.7 + 2 * number
        length = max(3, 330 * counts[way] / longest)
        yield write(20, row, name, FOREGROUND)
        place = f'x="{left + 125:g}" y="{top + (row - 0.9) * HEIGHT:g}" width="{length:.0f}" height="{1.2 * HEIGHT:g}"'
        yield f'<rect {place} rx="2" fill="{color}"/>'
        yield write(125 + length + 10, row, f"{counts[way]:,}", FOREGROUND, "bold")
    yield write(20, 9.9, "All requests of a session, scripted model: docs/benchmarks.md", FAINT)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="ipybox-") as name:
        recorded = record(Path(name))
    measured = Economics.read(ROOT / "benchmarks" / "economics.json")
    title = "Claude Code answers a question with one cell: one approval covers a loop, and the sandbox denies a write"
    Path(sys.argv[1]).write_text(svg(recorded, measured, title))
