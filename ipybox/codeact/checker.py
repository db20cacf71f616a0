"""`check()`: reports whether saved code actions and output parsers work, and if not, what to fix where."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from ipybox.codeact.imported import BrokenError, importing
from ipybox.codeact.library import GENTOOLS, MCPPARSE, Library
from ipybox.codeact.problem import Problem, Report, unreadable
from ipybox.codeact.rules import gentool_problems, orphan_problems, parser_problems, stray_problems
from ipybox.support.printable import printable

#: Limit of the problems that one call shows.
SHOWN = 50


def check(*, workspace: Path | str = ".") -> str:
    """Checks all saved code actions and output parsers. Returns `ok: 2 gentools, 3 parsers`, or one line per problem.

    It imports them again, so that later imports in this session also see the current files.

    Args:
        workspace: The directory that holds `gentools`, `mcptools` and `mcpparse`.

    Raises:
        NotADirectoryError: If the workspace does not exist.
    """
    library = Library(workspace)
    found = _problems(library)
    if not found:
        gentools, parsers = len(list(library.gentools())), len(list(library.parsers()))
        return f"ok: {_number(gentools, 'gentool')}, {_number(parsers, 'parser')}"
    more = [f"… and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    return printable("\n".join([*map(str, found[:SHOWN]), *more]), lines=True)


def report(workspace: Path | str = ".") -> str:
    """Returns what was checked and all problems in one line of JSON, for `ipybox check`."""
    library = Library(workspace)
    gentools, parsers = len(list(library.gentools())), len(list(library.parsers()))
    found = Report({"saved code action": gentools, "output parser": parsers}, _problems(library))
    return json.dumps(asdict(found))


def problems(workspace: Path | str = ".") -> list[Problem]:
    """Returns the findings of `check`, by file and line; empty without problems.

    Raises:
        NotADirectoryError: If the workspace does not exist.
    """
    return _problems(Library(workspace))


def _problems(library: Library) -> list[Problem]:
    with importing(library.workspace.root):
        found = list(stray_problems(library))
        for name in library.gentools():
            found += _of(name.path(GENTOOLS) + "/api.py", gentool_problems(library, name))
        parsed = list(library.parsers())
        for name in parsed:
            found += _of(name.path(MCPPARSE) + ".py", parser_problems(library, name))
        for tool in library.mcp_tools():
            if tool.name not in parsed:
                found += orphan_problems(tool)
    return sorted({*found, *map(unreadable, library.unreadable)})


def _of(path: str, rules: Iterator[Problem]) -> Iterator[Problem]:
    """Yields the problems that rules find, up to code that fails."""
    try:
        yield from rules
    except BrokenError as exc:
        yield exc.problem
    except RecursionError:
        yield Problem(path, 1, "the code is nested too deeply", "simplify it")


def _number(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
