"""What changed in a git repository since a time."""

from .api import Change, run

__all__ = ["Change", "run"]
