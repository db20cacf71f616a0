"""Record Claude Code sessions as animated SVGs for the README and `docs/approvals.md`: `make recording`.

    python -m docs.recording docs

Claude Code, ipybox, the sandbox and the kernel are real. A script plays the model, as in `tests/claude`, and the MCP
server is the stand-in for GitHub's. The README's session answers the question that `docs/benchmarks.md` measures as
"loop over 30 repositories", so its recording ends with the tokens counted there.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from html import escape
from itertools import groupby
from pathlib import Path

import mcp_types as types
from pyte.screens import Char

from benchmarks.economics.results import Economics
from benchmarks.economics.tasks import LOOP, Way
from tests.claude.api import Block, Request, serve, tool
from tests.claude.api import text as said
from tests.claude.cli import SESSION_TIMEOUT, Client, Home, publish
from tests.claude.terminal import DOWN, ENTER, RIGHT, Terminal, terminal
from tests.github_server import CREATE_ISSUE, LIST_COMMITS, SEARCH_REPOSITORIES
from tests.servers import ROOT

#: What a screen must show, the key to press then, and the seconds in between.
Step = tuple[tuple[str, ...], str, float]


@dataclass(frozen=True)
class Session:
    """What happens in a recording.

    Args:
        title: The recording's title.
        prompt: What the user types.
        code: The cell that the model runs.
        steps: What the user answers, up to the choice of what to allow.
        allowed: What the user allows.
        results: Texts in the cell's result.
        answer: What the model says in the end.
        rules: The approval rules. Without them, calls that may write ask, and the user has agreed to tools that only
            read.
        measured: Whether the recording ends with the measured tokens.
    """

    title: str
    prompt: str
    code: str
    steps: tuple[Step, ...]
    allowed: str
    results: tuple[str, ...]
    answer: str
    rules: str | None = None
    measured: bool = False


LOOP_CODE = """
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

BATCH_CODE = """
import json
from mcptools.github import create_issue as issue
from mcptools.github import list_commits as log
from mcptools.github import search_repositories as find

top = find.run(find.Params(query="user:octocat", sort="stars"))
names = [repo["name"] for repo in json.loads(top)["items"]]
asks = []
for name in names:
    repo = {"owner": "octocat", "repo": name}
    if log.run(log.Params(**repo, since="2026-08-15")) == "[]":
        asks.append(issue.Params(**repo, title="Active?"))
done = issue.run_many(asks)
print(len(names), "read,", len(done), "opened:", done[-1])
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

PROCEEDS: Step = (("Do you want to proceed?", "❯ 1. Yes"), ENTER, 4.5)

#: The recordings, by the names of their files.
SESSIONS = {
    "session": Session(
        title="Claude Code answers a question with one cell: one approval covers a loop, and the sandbox denies a "
        "write",
        prompt="Who made the most of the latest 5 commits in each of octocat's 30 top repositories? Save that to "
        "~/authors.txt",
        code=LOOP_CODE,
        steps=(
            PROCEEDS,
            (("Code calls github.list_commits", "▸ not set"), RIGHT, 2.0),
            (("❯ ◯ only this call",), DOWN, 0.8),
            (("❯ ◯ the rest of this cell",), ENTER, 1.2),
        ),
        allowed="the rest of this cell",
        results=(
            "[('Ada Example', 61), ('Octocat', 54), ('Bo Sample', 35)]",
            "The sandbox refused to write",
        ),
        answer="Of the 150 commits, Ada Example made 61, Octocat 54 and Bo Sample 35.\n\n"
        "I couldn't save `~/authors.txt`: the sandbox only lets code write to this project. "
        "Shall I save `authors.txt` here?",
        rules=RULES,
        measured=True,
    ),
    "approvals": Session(
        title="Claude Code reads 30 repositories and opens 12 issues with one cell and one approval",
        prompt="Which of octocat's 30 top repositories had no commits since August 15? Open an issue in each, and ask "
        "if it's active",
        code=BATCH_CODE,
        steps=(
            PROCEEDS,
            (("Code calls github.create_issue 12 times", "▸ not set"), RIGHT, 4.0),
            (("❯ ◯ only these calls",), ENTER, 1.5),
        ),
        allowed="only these calls",
        results=("30 read, 12 opened: ", "https://github.com/octocat/"),
        answer="12 of the 30 repositories had no commits since August 15. I opened an issue in each.",
    ),
}

CLOSED_READ = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)

#: The server's tools; those that only read say that they don't reach the internet.
TOOLS = [
    *(each.model_copy(update={"annotations": CLOSED_READ}) for each in (SEARCH_REPOSITORIES, LIST_COMMITS)),
    CREATE_ISSUE,
]

#: Columns and rows of the terminal, pixels of a character, and pixels around the terminal.
COLUMNS, ROWS = 80, 34
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
TOOL_COUNT = 117


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


def record(session: Session, directory: Path) -> list[Frame]:
    """Return the frames of a session.

    Args:
        session: What happens in it.
        directory: An empty directory.
    """
    home = Home(directory, publish(directory), client=Client.NEWEST)
    workspace = home.path / "my-project"
    workspace.mkdir()
    tools = home.path / "tools.json"
    tools.write_text(json.dumps([each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in TOOLS]))
    github = {"command": sys.executable, "args": [str(ROOT / "tests" / "github_server.py"), "--tools", str(tools)]}
    for command in ["-c", GENERATE, json.dumps(github)], ["-m", "ipybox", "trust", "github", "--yes"]:
        subprocess.run([sys.executable, *command], cwd=workspace, env=home.env, check=True)
    approve = "writes"
    if session.rules is not None:
        (home.path / "rules.yaml").write_text(session.rules)
        approve = str(home.path / "rules.yaml")
    arguments = ["-m", "ipybox", "--sandbox", "--workspace", str(workspace), "--approve", approve]
    server = {"type": "stdio", "command": sys.executable, "args": arguments, "alwaysLoad": True}
    options = ["--mcp-config", json.dumps({"mcpServers": {"ipybox": server}}), "--strict-mcp-config"]
    options += ["--permission-mode", "default"]
    with (
        serve([[tool("execute_ipython_cell", code=session.code)], partial(_answer, session)]) as api,
        terminal(home, workspace, *options, columns=COLUMNS, lines=ROWS, ANTHROPIC_BASE_URL=api.url) as shown,
    ):
        return list(_frames(session, shown))


def _answer(session: Session, request: Request) -> list[Block]:
    (result,) = request.results
    assert all(each in result.text for each in session.results), result.text
    return [said(session.answer)]


def _frames(session: Session, shown: Terminal) -> Iterator[Frame]:
    """Type the prompt, press the keys of a user, and yield what the screen shows in between."""
    shown.until("for shortcuts", timeout=SESSION_TIMEOUT)
    yield _frame(shown, 0.6)
    for start in range(0, len(session.prompt), CHUNK):
        shown.type(session.prompt[start : start + CHUNK])
        shown.until(session.prompt[start : start + CHUNK].split()[-1])
        yield _frame(shown, 0.2)
    shown.type(ENTER)
    for texts, key, seconds in session.steps:
        shown.until(*texts, timeout=SESSION_TIMEOUT)
        yield _frame(shown, seconds)
        if key == ENTER:
            # What is typed as soon as a form is shown may be lost.
            shown.type_until_gone(key, texts[-1])
        else:
            shown.type(key)
    shown.until(f"✔ Allow: {session.allowed}", "❯ Accept")
    yield _frame(shown, 1.0)
    shown.type_until_gone(ENTER, "❯ Accept")
    shown.until(session.answer.split()[-1], "for shortcuts", timeout=SESSION_TIMEOUT)
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


def svg(frames: list[Frame], tokens: Economics | None, title: str) -> str:
    """Return the frames as an SVG that loops; the last one stays, with the tokens of each way to use tools if given.

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
        if frame is last and tokens is not None:
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

    yield write(20, 1.7, f"Tokens to answer this question with {TOOL_COUNT} tools", FOREGROUND, "bold")
    counts = {way: tokens.find(LOOP.name, way, TOOL_COUNT).total().tokens for way, _, _ in BARS}
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
    economics = Economics.read(ROOT / "benchmarks" / "economics.json")
    for name, each in SESSIONS.items():
        with tempfile.TemporaryDirectory(prefix="ipybox-") as temporary:
            recorded = record(each, Path(temporary))
        tokens = economics if each.measured else None
        (Path(sys.argv[1]) / f"{name}.svg").write_text(svg(recorded, tokens, each.title))
