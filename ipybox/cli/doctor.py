"""`ipybox doctor`: what works on this machine, and what to install for the rest.

Checks run concurrently, each with its own time limit. A mode works if a cell just ran in it; for Docker, a responding
daemon and the image suffice.
"""

import asyncio
import platform
import sys
from asyncio import gather
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import click

from ipybox import CodeExecutor
from ipybox.cli.command import as_json, command
from ipybox.cli.output import say, say_json, say_table
from ipybox.cli.surroundings import client_findings, network_findings
from ipybox.docker.engine import DOCKER, default_image, examine_engine
from ipybox.sandbox.findings import INSTALL_UV, Finding, Program, examine
from ipybox.sandbox.preflight import INSTALL_SRT, diagnose
from ipybox.support.errors import IpyboxError

#: Time limit for a kernel to start, run a cell and stop, in seconds.
KERNEL_TIMEOUT = 60.0

#: What can be checked; "other" covers further programs that people often use.
Mode = Literal["plain", "sandbox", "docker", "other"]

UV = Program("uv", "uv", remedy=INSTALL_UV)

#: How a working mode is described.
_WORKS = {
    "plain": "works (a kernel ran a cell)",
    "sandbox": "works (a kernel ran a cell, confined by the sandbox)",
    "docker": "the daemon responds, and the image exists",
}
_COLORS = {"ok": "green", "missing": "yellow", "broken": "red"}


@command("doctor")
@as_json
@click.option("--sandbox", is_flag=True, help="fail if the sandbox doesn't work")
@click.option("--docker", is_flag=True, help="fail if Docker mode doesn't work")
def doctor(workspace: Path, *, sandbox: bool, docker: bool, as_json: bool) -> int:
    """Prints what works and what is missing; returns the exit status, 0 if Python and the requested modes work."""
    found = asyncio.run(examine_modes(workspace, kernels=True))
    works = {mode: _works(findings) for mode, findings in found.items()}
    asked: set[Mode] = {"plain", *(("sandbox",) if sandbox else ()), *(("docker",) if docker else ())}
    if as_json:
        described = {
            mode: [{**asdict(each), "remedy": each.remedy and str(each.remedy)} for each in findings]
            for mode, findings in found.items()
        }
        say_json({mode: {"works": works[mode], "findings": findings} for mode, findings in described.items()})
    else:
        _show(found, asked)
    return 0 if all(works[mode] for mode in asked) else 1


async def examine_modes(workspace: Path, *, kernels: bool = False) -> dict[Mode, list[Finding]]:
    """Returns the findings of each mode's checks, in order; with `kernels`, finally whether a kernel runs."""
    checks: dict[Mode, list[Callable[[], list[Finding]]]] = {
        "plain": [lambda: [Finding("python", f"{platform.python_version()} ({sys.executable})")]],
        "sandbox": [diagnose],
        "docker": [_docker],
        "other": [lambda: [examine(UV)], lambda: client_findings(workspace), network_findings],
    }

    async def examine_mode(mode: Mode) -> list[Finding]:
        found = [finding for each in await gather(*map(asyncio.to_thread, checks[mode])) for finding in each]
        if kernels and mode in ("plain", "sandbox") and _works(found):
            found.append(await _kernel(sandbox=mode == "sandbox"))
        return found

    return dict(zip(checks, await gather(*map(examine_mode, checks)), strict=True))


def _docker() -> list[Finding]:
    client = examine(DOCKER)
    return [client, *(examine_engine(default_image())[0] if client.problem is None else ())]


async def _kernel(*, sandbox: bool) -> Finding:
    try:
        with TemporaryDirectory(prefix="ipybox-doctor-") as directory:
            workspace, outside = Path(directory, "workspace"), Path(directory, "outside")
            workspace.mkdir()
            executor = CodeExecutor(working_dir=workspace, sandbox=sandbox)
            async with asyncio.timeout(KERNEL_TIMEOUT), executor:
                await executor.execute("try: open('../outside', 'w')\nexcept OSError: pass")
            if sandbox and outside.exists():
                problem = "srt lets code write outside the workspace"
                return Finding("kernel", "is not confined", problem, INSTALL_SRT)
    except TimeoutError:
        return Finding("kernel", "starts too slowly", f"no cell ran within {KERNEL_TIMEOUT:g} s", "try again")
    except (IpyboxError, OSError) as exc:
        return Finding("kernel", "does not run", str(exc), "fix the other problems listed here first")
    return Finding("kernel", "runs a cell")


def _works(findings: list[Finding]) -> bool:
    return all(finding.problem is None for finding in findings)


def _show(found: dict[Mode, list[Finding]], asked: set[Mode]) -> None:
    rows = [(_state(each), mode, each.what, _found(each)) for mode, findings in found.items() for each in findings]
    say_table(["State", "Mode", "What", "Found"], rows, [_COLORS[row[0]] for row in rows])
    say("")
    for mode, findings in found.items():
        problems = [f"  {finding}" for finding in findings if finding.problem is not None]
        if mode != "other":
            problems = [f"{mode} mode: " + ("can't work" if problems else _WORKS[mode]), *problems]
        elif problems:
            problems = ["other problems:", *problems]
        for line in problems:
            say(line, fg="red" if mode in asked and not _works(findings) else None)


def _found(finding: Finding) -> str:
    has_advice = finding.problem is None and finding.remedy is not None
    return f"{finding.found}: {finding.remedy}" if has_advice else finding.found or ""


def _state(finding: Finding) -> str:
    if finding.problem is None:
        return "ok"
    return "missing" if finding.found is None else "broken"
