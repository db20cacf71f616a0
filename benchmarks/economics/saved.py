"""Saved code actions for the tasks, as an agent saves them by the skill: small interfaces, typed results."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from benchmarks.economics.clients import SAVED


@dataclass(frozen=True)
class SavedAction:
    """The files of a saved code action.

    Attributes:
        category: Folder in `gentools/`.
        name: Of the action.
        api: The interface.
        impl: The implementation.
    """

    category: str
    name: str
    api: str
    impl: str


def save_all(workspace: Path) -> None:
    """Puts all saved code actions into a workspace."""
    shutil.copytree(SAVED / "gentools", workspace / "gentools", ignore=shutil.ignore_patterns("__pycache__"))
    for action in ACTIONS:
        folder = workspace / "gentools" / action.category / action.name
        folder.mkdir(parents=True)
        (folder / "api.py").write_text(action.api)
        (folder / "impl.py").write_text(action.impl)
        first = action.api.splitlines()[0].replace(": interface", "")
        (folder / "__init__.py").write_text(f'{first}\n\nfrom .api import run\n\n__all__ = ["run"]\n')


TOP_REPOSITORY = SavedAction(
    "github",
    "top_repository",
    api='''"""A user's repository with the most stars: interface."""

from pydantic import BaseModel


class Repo(BaseModel):
    name: str
    stars: int


def run(username: str) -> Repo:
    """Returns a user's repository with the most stars.

    Args:
        username: Login of a user or an organization on GitHub.
    """
    from . import impl

    return impl.run(username)
''',
    impl="""from mcptools.github import search_repositories as search

from .api import Repo


def run(username: str) -> Repo:
    found = search.run_parsed(search.Params(query=f"user:{username}", sort="stars", perPage=1))
    return Repo(name=found.repositories[0].name, stars=found.repositories[0].stargazers_count)
""",
)

AUTHORS = SavedAction(
    "github",
    "authors_of_top_repos",
    api='''"""Who made the latest commits of a user's most starred repositories: interface."""


def run(username: str, top_n_repos: int = 30, last_n_commits: int = 5) -> dict[str, int]:
    """Returns how many of these commits each author made, most first.

    Args:
        username: Login of a user or an organization on GitHub.
        top_n_repos: How many repositories, 1 to 100.
        last_n_commits: How many commits of each, 1 to 100.
    """
    from . import impl

    return impl.run(username, top_n_repos, last_n_commits)
''',
    impl="""import json
from collections import Counter

from mcptools.github import list_commits, search_repositories as search


def run(username: str, top_n_repos: int, last_n_commits: int) -> dict[str, int]:
    found = search.run_parsed(search.Params(query=f"user:{username}", sort="stars", perPage=top_n_repos))
    authors: Counter[str] = Counter()
    for repo in found.repositories:
        params = list_commits.Params(owner=username, repo=repo.name, perPage=last_n_commits)
        authors.update(commit["commit"]["author"]["name"] for commit in json.loads(list_commits.run(params)))
    return dict(authors.most_common())
""",
)

GOALS = SavedAction(
    "github",
    "repos_below_goal",
    api='''"""Which repositories of a user are furthest below the goals for their stars: interface."""

from pydantic import BaseModel


class Repo(BaseModel):
    name: str
    stars: int
    goal: int
    team: str


def run(username: str, goals: str, top_n: int = 5) -> list[Repo]:
    """Returns the repositories that miss most stars, the furthest first.

    Args:
        username: Login of a user or an organization on GitHub.
        goals: Path of a CSV file with the columns repository, goal and team.
        top_n: How many repositories at most.
    """
    from . import impl

    return impl.run(username, goals, top_n)
''',
    impl="""import csv

from mcptools.files import read_text_file
from mcptools.github import search_repositories as search

from .api import Repo


def run(username: str, goals: str, top_n: int) -> list[Repo]:
    rows = csv.DictReader(read_text_file.run(read_text_file.Params(path=goals)).content.splitlines())
    by_name = {row["repository"]: row for row in rows}
    found = search.run_parsed(search.Params(query=f"user:{username}", perPage=100)).repositories
    repos = [
        Repo(name=repo.name, stars=repo.stargazers_count, goal=row["goal"], team=row["team"])
        for repo in found
        if (row := by_name.get(repo.name))
    ]
    return sorted(repos, key=lambda repo: repo.stars - repo.goal)[:top_n]
""",
)

DARKEST = SavedAction(
    "files",
    "darkest_photos",
    api='''"""The darkest photos of a folder, side by side: interface."""

from pydantic import BaseModel


class Darkest(BaseModel):
    names: list[str]
    """Darkest first."""
    sheet: str
    """Path of the picture that has them side by side."""


def run(folder: str, sheet: str, top_n: int = 3, height: int = 200) -> Darkest:
    """Returns the darkest photos of a folder, and writes a picture that has them side by side.

    Args:
        folder: Path of a folder with JPEG files.
        sheet: Path of the PNG file to write.
        top_n: How many photos.
        height: Of each photo in the picture, in pixels.
    """
    from . import impl

    return impl.run(folder, sheet, top_n, height)
''',
    impl="""import base64
import io
import re

from IPython.utils.capture import capture_output
from mcptools.files import list_directory, read_media_file
from PIL import Image, ImageStat

from .api import Darkest


def run(folder: str, sheet: str, top_n: int, height: int) -> Darkest:
    names = re.findall(r"\\S+\\.jpg", list_directory.run(list_directory.Params(path=folder)).content)
    photos = {name: _read(f"{folder}/{name}") for name in names}
    darkest = sorted(photos, key=lambda name: ImageStat.Stat(photos[name].convert("L")).mean)[:top_n]
    width = round(height * 4 / 3)
    picture = Image.new("RGB", (top_n * width, height))
    for number, name in enumerate(darkest):
        picture.paste(photos[name].resize((width, height)), (number * width, 0))
    picture.save(sheet)
    return Darkest(names=darkest, sheet=sheet)


def _read(path: str) -> Image.Image:
    with capture_output():  # ipybox shows the images that tools return
        read = read_media_file.run(read_media_file.Params(path=path))
    return Image.open(io.BytesIO(base64.b64decode(read.content[0].data)))
""",
)

ACTIONS = (TOP_REPOSITORY, AUTHORS, GOALS, DARKEST)
