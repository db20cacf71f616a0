"""`check()`: reports whether saved code actions and output parsers work, and if not, where and how to fix them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ipybox.codeact.imported import BrokenError, Problem, importing
from ipybox.codeact.library import GENTOOLS, MCPPARSE, Library
from ipybox.codeact.rules import gentool_problems, parser_problems
from ipybox.support.printable import printable

#: Maximum number of problems shown by one call.
SHOWN = 50


@dataclass(frozen=True)
class Report:
    """The result of checking a workspace: the number of items of each kind, and the sorted problems."""

    checked: dict[Literal["saved code action", "output parser"], int]
    problems: list[Problem]


def check(*, workspace: Path | str = ".") -> str:
    """Checks all saved code actions and output parsers. Returns `ok: 2 gentools, 3 parsers`, or one line per problem.

    Imports them again, so later imports in this session also see the current files.

    Args:
        workspace: The directory that contains `gentools`, `mcptools` and `mcpparse`.

    Raises:
        NotADirectoryError: If the workspace does not exist.
    """
    found = inspect(workspace)
    if not found.problems:
        counted = zip(found.checked.values(), ("gentool", "parser"), strict=True)
        return "ok: " + ", ".join(f"{count} {what}" if count == 1 else f"{count} {what}s" for count, what in counted)
    hidden = len(found.problems) - SHOWN
    more = [f"… and {hidden} more"] if hidden > 0 else []
    return printable("\n".join([*map(str, found.problems[:SHOWN]), *more]), lines=True)


def inspect(workspace: Path | str = ".") -> Report:
    """Returns the numbers of saved code actions and output parsers, and all problems, sorted by file and line."""
    library = Library(workspace)
    with importing(library.workspace.root):
        found: list[Problem] = []
        gentools, parsers = list(library.gentools()), list(library.parsers())
        for name in gentools:
            found += _until_broken(name.path(GENTOOLS) + "/api.py", gentool_problems(library, name))
        for name in parsers:
            found += _until_broken(name.path(MCPPARSE) + ".py", parser_problems(library, name))
    list(library.mcp_tools())  # records those that can't be read, which `tools` refers to
    unreadable = (
        Problem(each.path, each.line, each.reason, "fix or remove it") for each in library.unreadable.values()
    )
    problems = sorted({*found, *unreadable})
    return Report({"saved code action": len(gentools), "output parser": len(parsers)}, problems)


def _until_broken(path: str, rules: Iterator[Problem]) -> Iterator[Problem]:
    """Yields the problems found by rules. Stops with a problem if the checked code fails."""
    try:
        yield from rules
    except BrokenError as exc:
        yield exc.problem
    except RecursionError:
        yield Problem(path, 1, "the code is nested too deeply", "simplify it")
