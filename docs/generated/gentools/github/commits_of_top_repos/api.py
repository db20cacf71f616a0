"""The latest commits of a user's most starred repositories: interface."""

from pydantic import BaseModel


class Commit(BaseModel):
    message: str
    """The first line of it."""
    sha: str
    url: str
    author: str
    """The name that the commit has, not the login."""
    date: str
    """In ISO 8601."""


class Repo(BaseModel):
    name: str
    stars: int
    url: str
    commits: list[Commit]
    """Newest first."""


def run(username: str, top_n_repos: int = 3, last_n_commits: int = 5) -> list[Repo]:
    """Returns a user's most starred repositories, each with its latest commits.

    Args:
        username: Login of a user or an organization on GitHub.
        top_n_repos: How many repositories, 1 to 100.
        last_n_commits: How many commits of each, 1 to 100.
    """
    from . import impl

    return impl.run(username, top_n_repos, last_n_commits)
