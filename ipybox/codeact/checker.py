"""`check()`: reports whether saved code actions and output parsers work, and if not, what to fix where."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple
from pathlib import Path

from ipybox.codeact.gentool_rules import gentool_problems, stray_problems
from ipybox.codeact.imported import import_problems, importing, parser_import_problems
from ipybox.codeact.library import GENTOOLS, MCPPARSE, MCPTOOLS, Library, McpTool, Name
from ipybox.codeact.parser_rules import orphan_problems, parser_problems, stray_parsers
from ipybox.codeact.problem import Problem, unreadable
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
    found = [astuple(problem) for problem in _problems(library)]
    checked = {
        "saved code action": len(list(library.gentools())),
        "output parser": len(list(library.parsers())),
    }
    return json.dumps({"checked": checked, "problems": found})


def problems(workspace: Path | str = ".") -> list[Problem]:
    """Returns the findings of `check`, by file and line; empty without problems.

    Raises:
        NotADirectoryError: If the workspace does not exist.
    """
    return _problems(Library(workspace))


def _problems(library: Library) -> list[Problem]:
    with importing(library.workspace.root):
        found = [
            *stray_problems(library),
            *stray_parsers(library),
            *(problem for name in library.gentools() for problem in _of_gentool(library, name)),
            *(problem for name in library.parsers() for problem in _of_parser(library, name)),
            *_of_others(library),
        ]
    return sorted({*found, *map(unreadable, library.unreadable)})


def _of_gentool(library: Library, name: Name) -> list[Problem]:
    path = f"{name.path(GENTOOLS)}/api.py"

    def imported() -> Iterator[Problem]:
        if api := library.module(path):
            yield from import_problems(library.workspace.root, name, api)

    return _in_turn(library, path, lambda: gentool_problems(library, name), imported)


def _of_parser(library: Library, name: Name) -> list[Problem]:
    path = f"{name.path(MCPPARSE)}.py"

    def imported() -> Iterator[Problem]:
        module, parser = library.module(f"{name.path(MCPTOOLS)}.py"), library.module(path)
        if module and parser:
            yield from parser_import_problems(library.workspace.root, McpTool(name, module), parser)

    return _in_turn(library, path, lambda: parser_problems(library, name), imported)


def _of_others(library: Library) -> Iterator[Problem]:
    parsed = set(library.parsers())
    for tool in library.mcp_tools():
        if tool.name not in parsed:
            yield from orphan_problems(library, tool)


def _in_turn(library: Library, path: str, *rules: Callable[[], Iterable[Problem]]) -> list[Problem]:
    """Returns the problems of the first rule with any: later rules would import faulty code."""
    before = len(library.unreadable)
    for each in rules:
        try:
            if (found := list(each())) or len(library.unreadable) > before:
                return found
        except RecursionError:
            return [Problem(path, 1, "the code is nested too deeply", "simplify it")]
    return []


def _number(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
