"""What changed in a git repository since a time: interface."""

from pydantic import BaseModel


class Change(BaseModel):
    author: str
    subject: str
    """The first line of the message."""


def run(repository: str, since: str, max_count: int = 100) -> list[Change]:
    """Returns the commits of a repository since a time, newest first.

    Args:
        repository: Path of the repository.
        since: In ISO 8601, such as 2026-11-23T02:15:00.
        max_count: How many commits at most.
    """
    from . import impl

    return impl.run(repository, since, max_count)
