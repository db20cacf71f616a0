"""The latest commits of a user's most starred repositories."""

from .api import Commit, Repo, run

__all__ = ["Commit", "Repo", "run"]
