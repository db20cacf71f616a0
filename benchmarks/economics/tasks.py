"""The five tasks, and how a model does each by four ways: scripts for `tests.claude.api`."""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from PIL import Image

from benchmarks import example
from benchmarks.example import SERVER, Printed, Script, answers, cell, succeeded, then
from tests.claude.api import Block, Request, text, tool
from tests.github_server import pick, repositories

#: Name of the filesystem server, which two tasks use in addition to GitHub's.
FILES = "files"

#: How a model gets to tools: the ways by which all tasks are done, and variants of code, which some are.
Way = Literal[
    "JSON tools", "tool search", "code", "saved action", "code, a look first", "code, skill loaded", "code, captured"
]
WAYS: tuple[Way, ...] = ("JSON tools", "tool search", "code", "saved action")
VARIANTS: dict[str, tuple[Way, ...]] = {
    "documented": ("code, a look first", "code, skill loaded"),
    "images": ("code, captured",),
}


@dataclass(frozen=True)
class Task:
    """What a user asks for.

    Attributes:
        name: In commands and data.
        title: In words.
        prompt: What the user says.
        scripts: Returns how the model does it in a workspace, by ways.
        make_files: Puts the files of the task into a workspace; None for tasks that use GitHub's server alone.
    """

    name: str
    title: str
    prompt: str
    scripts: Callable[[Path], Mapping[Way, Script]]
    make_files: Callable[[Path], None] | None = None


def _github(name: str, title: str, task: example.Task, query: str, use: str) -> Task:
    """Returns a task of `benchmarks.example` with its saved code action."""

    def scripts(_: Path) -> Mapping[Way, Script]:
        return {
            "JSON tools": example.json_tools(task),
            "tool search": example.tool_search(task),
            "code": example.code(task),
            "code, a look first": example.code_with_look(task),
            "code, skill loaded": example.code_with_skill(task),
            "saved action": _saved(query, use, task.printed),
        }

    return Task(name, title, task.prompt, scripts)


def _saved(query: str, use: str, expected: Printed) -> Script:
    """Returns the script of a later session: finds the saved code action, and uses it."""
    module = re.findall(r"from (gentools[\w.]+) import run", use)[0]
    return {
        "search": [cell(f'from ipybox.codeact import tools\nprint(tools("{query}"))')],
        "action": then(cell(use), found=[re.escape(module)]),
        "answer": answers(expected),
    }


def _code(queries: Sequence[str], found: Sequence[str], act: str, expected: Printed) -> Script:
    listed = ", ".join(f'"{query}"' for query in queries)
    return {
        "search": [cell(f"from ipybox.codeact import tools\nprint(tools({listed}))")],
        "action": then(cell(act), found=found),
        "answer": answers(expected),
    }


def _search_first(names: Sequence[str], script: Script) -> Script:
    """Returns the script for a client that defers definitions: the model loads those that it needs by name."""
    first, *_ = script
    uses = script[first]
    assert not callable(uses)
    loads = tool("ToolSearch", query=f"select:{','.join(f'mcp__{name}' for name in names)}")
    return {"tool search": [loads], **script, first: then(*uses)}


# --- the documented task, one call, and the loop

DOCUMENTED = _github(
    "documented",
    "latest 5 commits of 3 repositories",
    example.DOCUMENTED,
    "latest commits of top repositories",
    example.USE_SAVED,
)

ONE_CALL = _github(
    "one-call",
    "one call, short result",
    example.ONE_CALL,
    "repository with most stars",
    """
from gentools.github.top_repository import run
print(*run("torvalds").model_dump().values())
""",
)

LOOP = _github(
    "loop",
    "loop over 30 repositories",
    example.LOOP,
    "authors of latest commits of top repositories",
    """
from gentools.github.authors_of_top_repos import run
print([*run("octocat").items()])
""",
)

# --- a join of two servers

GOALS = "goals.csv"
TEAMS = ("core", "docs", "infra", "web")
MISSING_MOST = Printed(re.compile(r"^[a-z]+-[a-z]+ \d+ \d+ (?:core|docs|infra|web)$", re.MULTILINE), 5)


def _make_goals(workspace: Path) -> None:
    """Writes the goals for the stars of octocat's 41 repositories."""
    lines = ["repository,goal,team,contact,since"]
    for repository in repositories("octocat"):
        name = repository.name
        goal = repository.stars + pick(f"{name} goal", 40_000) - 20_000
        team = TEAMS[pick(f"{name} team", len(TEAMS))]
        lines.append(f"{name},{goal},{team},{team}@example.org,2026-{pick(name, 9) + 1:02}-01")
    (workspace / GOALS).write_text("\n".join(lines) + "\n")


def _join(workspace: Path) -> Mapping[Way, Script]:
    path = str(workspace / GOALS)
    act = f"""
import csv
from mcptools.{FILES} import read_text_file
from mcptools.{SERVER} import search_repositories as search
rows = csv.DictReader(read_text_file.run(read_text_file.Params(path="{path}")).content.splitlines())
goals = {{row["repository"]: row for row in rows}}
found = search.run_parsed(search.Params(query="user:octocat", perPage=100)).repositories
found.sort(key=lambda repo: repo.stargazers_count - int(goals[repo.name]["goal"]))
for repo in found[:5]:
    print(repo.name, repo.stargazers_count, goals[repo.name]["goal"], goals[repo.name]["team"])
"""
    use = f"""
from gentools.github.repos_below_goal import run
for repo in run("octocat", "{path}"):
    print(*repo.model_dump().values())
"""
    seen = [f"from mcptools.{FILES} import read_text_file", "content: str", f"from mcptools.{SERVER} import search_rep"]
    json_tools: Script = {
        "reads": [tool("read_text_file", path=path), tool("search_repositories", query="user:octocat", perPage=100)],
        "answer": then(example.ANSWER, found=["repository,goal,team", "total_count"]),
    }
    return {
        "JSON tools": json_tools,
        "tool search": _search_first([f"{FILES}__read_text_file", f"{SERVER}__search_repositories"], json_tools),
        "code": _code(["read text file", "search repositories"], seen, act, MISSING_MOST),
        "saved action": _saved("repositories below goal for stars", use, MISSING_MOST),
    }


JOIN = Task(
    "join",
    "join of two servers",
    f"{GOALS} has a goal for the stars of each repository of octocat. Which five are furthest below it? Show name, "
    "stars, goal and team.",
    _join,
    _make_goals,
)

# --- a pipeline of images

PHOTOS = 12
DARKEST = Printed(re.compile(r"\b(?:05|09|11)\.jpg"), 3)


def _make_photos(workspace: Path) -> None:
    """Writes photos of which three are clearly the darkest."""
    (workspace / "photos").mkdir()
    for number in range(1, PHOTOS + 1):
        chance = random.Random(number)
        light = 30 if number in (5, 9, 11) else 120 + 8 * number
        pixels = bytes(max(0, min(255, light + chance.randrange(-40, 40))) for _ in range(16 * 12 * 3))
        photo = Image.frombytes("RGB", (16, 12), pixels).resize((640, 480), Image.Resampling.BICUBIC)
        photo.save(workspace / "photos" / f"{number:02}.jpg", quality=85)


def _images(workspace: Path) -> Mapping[Way, Script]:
    folder = workspace / "photos"
    act = f"""
import base64, io
from PIL import Image, ImageStat
from mcptools.{FILES} import read_media_file
def read(name):
    content = read_media_file.run(read_media_file.Params(path=f"{folder}/{{name}}")).content
    return Image.open(io.BytesIO(base64.b64decode(content[0].data)))
photos = {{name: read(name) for name in [f"{{n:02}}.jpg" for n in range(1, {PHOTOS + 1})]}}
darkest = sorted(photos, key=lambda name: ImageStat.Stat(photos[name].convert("L")).mean)[:3]
print(darkest)
sheet = Image.new("RGB", (3 * 267, 200))
for number, name in enumerate(darkest):
    sheet.paste(photos[name].resize((267, 200)), (number * 267, 0))
display(sheet)
"""
    captured = act.replace(
        "import base64, io\n", "import base64, io\nfrom IPython.utils.capture import capture_output\n"
    )
    captured = captured.replace("photos = {", "with capture_output():\n    photos = {")
    use = f"""
from gentools.files.darkest_photos import run
from IPython.display import Image
found = run("{folder}", "darkest.png")
print(found.names)
display(Image("darkest.png"))
"""
    seen = [f"from mcptools.{FILES} import read_media_file", "data: str"]
    json_tools: Script = {
        "photos": [tool("read_media_file", path=f"{folder}/{number:02}.jpg") for number in range(1, PHOTOS + 1)],
        "answer": _answer_from_photos,
    }
    return {
        "JSON tools": json_tools,
        "tool search": _search_first([f"{FILES}__read_media_file"], json_tools),
        "code": _code(["read media file"], seen, act, DARKEST),
        "code, captured": _code(["read media file"], seen, captured, DARKEST),
        "saved action": _saved("darkest photos of a folder", use, DARKEST),
    }


def _answer_from_photos(request: Request) -> list[Block]:
    """Answers, having made sure that the model sees all photos."""
    succeeded(request)
    assert sum(result.images for result in request.results) == PHOTOS, request.results
    return [text("These are the darkest. I can't make a picture of them.")]


IMAGES = Task(
    "images",
    "pipeline of 12 images",
    "photos/ has the photos 01.jpg to 12.jpg. Which three are the darkest? Show these side by side, each 200 pixels "
    "high.",
    _images,
    _make_photos,
)

TASKS = (DOCUMENTED, ONE_CALL, LOOP, JOIN, IMAGES)
