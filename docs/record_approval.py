"""Records an approval in Claude Code as an SVG that shows its screens one after the other: `make recording`.

    python -m docs.record_approval docs/approval.svg

The client is the real one, in a terminal. It runs offline: a script is the model, as in `tests/claude`, and the server
is the stand-in of GitHub's. The keys are those that a person presses.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from html import escape
from pathlib import Path

from docs.record_terminal import BACKGROUND, BORDER, HEIGHT, STYLE, WIDTH, Run, runs, text
from ipybox import generate_mcp_sources
from tests.claude.api import Block, Request, serve, tool
from tests.claude.api import text as said
from tests.claude.cli import SESSION_TIMEOUT, Home, publish
from tests.claude.terminal import COLUMNS, ENTER, LINES, RIGHT, Terminal, terminal
from tests.servers import ROOT

PROMPT = "How many stars has the most starred repository of torvalds?"

CODE = """
import json
from mcptools.github import search_repositories as search

found = search.run(search.Params(query="user:torvalds", sort="stars", perPage=1))
print(*[(repo["name"], repo["stargazers_count"]) for repo in json.loads(found)["items"]])
""".strip()

#: Seconds between screens.
PAUSE = 2.5

#: A screen, row by row.
Screen = list[list[Run]]


def record(directory: Path) -> list[Screen]:
    """Returns the screens of a session in which a person accepts a tool call.

    Args:
        directory: An empty one.
    """
    home = Home(directory, publish(directory)).newest()
    workspace = home.path / "my-project"
    workspace.mkdir()
    github = {"command": sys.executable, "args": [str(ROOT / "tests" / "github_server.py")]}
    asyncio.run(generate_mcp_sources("github", github, workspace / "mcptools"))
    arguments = ["-m", "ipybox", "--workspace", str(workspace), "--approve", "ask"]
    server = {"type": "stdio", "command": sys.executable, "args": arguments, "alwaysLoad": True}
    config = ["--mcp-config", json.dumps({"mcpServers": {"ipybox": server}}), "--strict-mcp-config"]
    screens: list[Screen] = []
    with (
        serve([_acts, _answers]) as api,
        terminal(
            home,
            workspace,
            *config,
            "--allowedTools=mcp__ipybox",
            PROMPT,
            ANTHROPIC_BASE_URL=api.url,
        ) as shown,
    ):
        for texts, key in (
            (("Expires at ", "▸ not set"), RIGHT),
            (("❯ ◯ only this call",), ENTER),
            (("✔ Allow: only this call", "❯ Accept"), ENTER),
            (("It has 1",), ""),
        ):
            shown.until(*texts, timeout=SESSION_TIMEOUT)
            screens.append(_screen(shown))
            if key == ENTER and "❯ Accept" in texts:
                shown.type_until_gone(key, "❯ Accept")
            else:
                shown.type(key)
    return screens


def _acts(_: Request) -> list[Block]:
    return [tool("execute_ipython_cell", code=CODE)]


def _answers(request: Request) -> list[Block]:
    name, stars = request.result.strip("()\n").split(", ")
    return [said(f"It is {name.strip(chr(39))}. It has {int(stars):,} stars.")]


def _screen(shown: Terminal) -> Screen:
    rows = [[*runs([shown.screen.buffer[row][column] for column in range(COLUMNS)])] for row in range(LINES)]
    while not rows[-1]:
        rows.pop()
    return rows


def svg(screens: Sequence[Screen], title: str) -> str:
    """Returns the screens as an SVG document; without animations it shows the last one."""
    height = max(map(len, screens)) * HEIGHT + 2 * BORDER
    width = round(COLUMNS * WIDTH + 2 * BORDER)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}.screen{{animation:show 1ms var(--t) both}}"
        "@media(prefers-reduced-motion:reduce){.screen{animation-delay:0s;animation-duration:0s}}</style>",
    ]
    for number, screen in enumerate(screens):
        lines.append(f'<g class="screen" style="--t:{number * PAUSE:g}s">')
        lines.append(f'<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND}"/>')
        for row, line in enumerate(screen):
            if line:
                place = f"translate({BORDER} {BORDER + row * HEIGHT})"
                lines.append(f'<g transform="{place}">{"".join(map(text, line))}</g>')
        lines.append("</g>")
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="ipybox-") as name:
        Path(sys.argv[1]).write_text(svg(record(Path(name)), "A recording of an approval in Claude Code"))
