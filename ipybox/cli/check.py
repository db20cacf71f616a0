"""`ipybox check`: checks saved code in a kernel, because the host must not run the code of a workspace."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from ipybox import ApprovalRequest, CodeExecutor
from ipybox.cli.command import as_json, command
from ipybox.cli.option_table import options_of
from ipybox.cli.output import say, say_json, say_table
from ipybox.cli.parsing import Failure
from ipybox.cli.running import executor_options, run
from ipybox.codeact.problem import Problem
from ipybox.support.errors import IpyboxError
from ipybox.workspace.trust import TrustStore

#: Prints what was checked, and what is wrong, as the last line.
CELL = "from ipybox.codeact.checker import report\nprint(); print(report())"

#: Seconds that all imports together may take.
TIMEOUT = 120


@command("check", options=options_of("check"))
@as_json
def check(workspace: Path, given: dict[str, Any], as_json: bool) -> int:
    """Prints the problems of saved code actions and output parsers; returns the exit status, 1 if there are any."""
    options = executor_options(given, TrustStore(workspace))
    return run(_check(workspace, options, as_json=as_json))


async def _check(workspace: Path, options: dict[str, Any], *, as_json: bool) -> int:
    try:
        # A module must not call tools when it is imported.
        async with CodeExecutor(working_dir=workspace, approver=ApprovalRequest.reject, **options) as executor:
            result = await executor.execute(CELL, timeout=TIMEOUT)
        for notice in result.notices:
            print(f"ipybox: {notice}", file=sys.stderr)
        checked, problems = read_report(result.text or "")
    except (IpyboxError, OSError, ValueError) as exc:
        raise Failure(f"the check did not finish: {exc}") from exc
    if as_json:
        say_json({"checked": checked, "problems": [asdict(problem) for problem in problems]})
    elif problems and sys.stdout.isatty():
        rows = [(f"{problem.path}:{problem.line}", problem.message, problem.remedy) for problem in problems]
        say_table(["Where", "Problem", "What to do"], rows, styles=["yellow"] * len(rows))
    elif problems:  # a line each, which editors can open
        say("\n".join(map(str, problems)))
    else:
        counts = [f"{number} {name}{'' if number == 1 else 's'}" for name, number in checked.items()]
        say(f"ok: {' and '.join(counts)} checked", style="green")
    return 1 if problems else 0


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
