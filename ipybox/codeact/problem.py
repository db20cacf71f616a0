"""Problems found in saved code, and how to fix them."""

import ast
from dataclasses import dataclass
from typing import Literal

from ipybox.codeact.source import SourceModule, UnreadableError


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """A problem in a file, and how to fix it. The path is relative to the workspace."""

    path: str
    line: int
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}; {self.remedy}"


@dataclass(frozen=True)
class Report:
    """The result of checking a workspace: the number of items of each kind, and the sorted problems."""

    checked: dict[Literal["saved code action", "output parser"], int]
    problems: list[Problem]

    @classmethod
    def read(cls, text: str) -> "Report":
        """Returns the report in the last line of a kernel's output; raises a ValueError if there is none."""
        from pydantic import TypeAdapter, ValidationError

        try:
            return TypeAdapter(cls).validate_json(text.rpartition("\n")[2])
        except ValidationError as exc:
            raise ValueError("can't read its report") from exc


def at(module: SourceModule, node: ast.stmt | ast.expr | ast.arg | None, message: str, remedy: str) -> Problem:
    """Returns a problem at a node of a module, or in the module as a whole."""
    return Problem(module.path, 1 if node is None else node.lineno, message, remedy)


def unreadable(error: UnreadableError) -> Problem:
    """Returns the problem for an unreadable file."""
    return Problem(error.path, error.line, error.reason, "fix or remove it")


def no_name(path: str, name: str) -> Problem:
    """Returns the problem for a name that can't be imported."""
    return Problem(path, 1, f"`{name}` can't be imported", "rename it to a Python identifier that is not a keyword")
