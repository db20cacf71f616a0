"""`ipybox check`: checks saved code in a kernel, because the host must not run workspace code."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from ipybox import ApprovalRequest, CodeExecutor
from ipybox.cli.command import as_json, command
from ipybox.cli.option_table import command_options
from ipybox.cli.output import counted, say, say_json, say_table, tell
from ipybox.cli.parsing import Failure
from ipybox.cli.running import executor_options, run
from ipybox.codeact.checker import Report
from ipybox.support.errors import IpyboxError
from ipybox.workspace.trust import TrustStore

CELL = """
from dataclasses import asdict
from ipybox.codeact.checker import inspect
report = asdict(inspect())
"""

#: Time limit for all imports together, in seconds.
TIMEOUT = 120


@command("check", options=command_options("check"))
@as_json
def check(workspace: Path, given: dict[str, Any], as_json: bool) -> int:
    """Prints the problems of saved code actions and output parsers; returns the exit status, 1 if there are any."""
    return run(_check(workspace, executor_options(given, TrustStore(workspace)), as_json=as_json))


async def _check(workspace: Path, options: dict[str, Any], *, as_json: bool) -> int:
    try:
        # A module must not call tools when it is imported.
        async with CodeExecutor(working_dir=workspace, approver=ApprovalRequest.reject, **options) as executor:
            result = await executor.execute(CELL, timeout=TIMEOUT)
            for notice in result.notices:
                tell(notice)
            # The kernel ran workspace code, which may have changed it.
            report = TypeAdapter(Report).validate_python(await executor.get("report", TIMEOUT))
    except (IpyboxError, OSError, ValueError) as exc:
        raise Failure(f"the check did not finish: {exc}") from exc
    problems = report.problems
    if as_json:
        say_json(asdict(report))
    elif problems and sys.stdout.isatty():
        rows = [(f"{problem.path}:{problem.line}", problem.message, problem.remedy) for problem in problems]
        say_table(["Where", "Problem", "What to do"], rows, ["yellow"] * len(rows))
    elif problems:  # one per line, so editors can open them
        say("\n".join(map(str, problems)))
    else:
        counts = [counted(number, name) for name, number in report.checked.items()]
        say(f"ok: {' and '.join(counts)} checked", fg="green")
    return 1 if problems else 0
