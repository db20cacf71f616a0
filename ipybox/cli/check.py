"""`ipybox check`: checks saved code in a kernel, because the host must not run the code of a workspace."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from ipybox import ApprovalRequest, CodeExecutionResult, CodeExecutor
from ipybox.cli.output import say, say_json, say_table
from ipybox.cli.parsing import Failure
from ipybox.codeact.problem import Problem
from ipybox.support.errors import IpyboxError

#: Prints what was checked, and what is wrong, as the last line.
CELL = "from ipybox.codeact.checker import report\nprint(); print(report())"

#: Seconds that all imports together may take.
TIMEOUT = 120


async def check(workspace: Path, options: dict[str, Any], *, as_json: bool) -> int:
    """Prints the problems of saved code actions and output parsers; returns the exit status, 1 if there are any.

    Args:
        workspace: The directory that holds `gentools`, `mcptools` and `mcpparse`.
        options: Options of `CodeExecutor`.
        as_json: Whether to print JSON.

    Raises:
        Failure: If the check did not finish.
    """
    try:
        result = await _run(workspace, options)
        checked, problems = read_report(result.text or "")
    except (IpyboxError, OSError, ValueError) as exc:
        raise Failure(f"the check did not finish: {exc}") from exc
    if as_json:
        say_json({"checked": checked, "problems": [asdict(problem) for problem in problems]})
    elif problems:
        _show(problems)
    else:
        counts = [f"{number} {name}{'' if number == 1 else 's'}" for name, number in checked.items()]
        say(f"ok: {' and '.join(counts)} checked", style="green")
    return 1 if problems else 0


def _show(problems: list[Problem]) -> None:
    if not sys.stdout.isatty():  # a line each, which editors can open
        say("\n".join(map(str, problems)))
        return
    rows = [(f"{problem.path}:{problem.line}", problem.message, problem.remedy) for problem in problems]
    say_table(["Where", "Problem", "What to do"], rows, styles=["yellow"] * len(rows))


async def _run(workspace: Path, options: dict[str, Any]) -> CodeExecutionResult:
    """Returns what the kernel prints. Notices go to stderr."""
    async with CodeExecutor(working_dir=workspace, **options) as executor:
        async for item in executor.stream(CELL, timeout=TIMEOUT):
            match item:
                case ApprovalRequest():
                    await item.reject()  # a module must not call tools when it is imported
                case CodeExecutionResult():
                    for notice in item.notices:
                        print(f"ipybox: {notice}", file=sys.stderr)
                    return item
                case _:
                    pass
    raise AssertionError("unreachable: a stream ends with its result")


def read_report(text: str) -> tuple[dict[str, int], list[Problem]]:
    """Returns the report in the last line of what the kernel printed, which is input: any code could have printed it.

    Raises:
        ValueError: If that is no report.
    """
    try:
        found: Any = json.loads(text.rpartition("\n")[2])
        checked = {name: int(found["checked"][name]) for name in ("saved code action", "output parser")}
        rows = cast("list[list[Any]]", found["problems"])
        problems = [Problem(str(path), int(line), str(message), str(remedy)) for path, line, message, remedy in rows]
    except (KeyError, OverflowError, RecursionError, TypeError, ValueError) as exc:
        raise ValueError("can't read its report") from exc
    return checked, problems
