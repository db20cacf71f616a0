"""`ipybox doctor`: what of ipybox works on this machine, and what to install for the rest.

A mode works if code has just run in it; only for Docker, an answering daemon and the image suffice.
"""

import asyncio
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from ipybox import CodeExecutor
from ipybox.cli.command import as_json, command
from ipybox.cli.diagnosis import Mode, examine_modes
from ipybox.cli.output import say, say_json, say_table
from ipybox.sandbox.findings import Finding
from ipybox.sandbox.preflight import INSTALL_SRT
from ipybox.support.errors import IpyboxError

#: Seconds in which a kernel must start, run a cell and end.
KERNEL_TIMEOUT = 60.0

#: What a mode does that works.
_WORKS = {
    "plain": "works (a kernel ran a cell)",
    "sandbox": "works (a kernel ran a cell, confined by the sandbox)",
    "docker": "the daemon responds, and the image exists",
}
_STYLES = {"ok": "green", "missing": "yellow", "broken": "red"}


@command("doctor")
@as_json
@click.option("--sandbox", is_flag=True, help="fail if the sandbox doesn't work")
@click.option("--docker", is_flag=True, help="fail if Docker mode doesn't work")
def doctor(_: Path, *, sandbox: bool, docker: bool, as_json: bool) -> int:
    """Prints what works and what is missing; returns the exit status, 0 if Python and the asked-for modes work."""
    found = examine_modes()
    asyncio.run(_try_kernels(found))
    asked = {"plain": True, "sandbox": sandbox, "docker": docker, "other": False}
    works = {mode: _works(findings) for mode, findings in found.items()}
    if as_json:
        data = {
            mode: [{**asdict(each), "remedy": each.remedy and str(each.remedy)} for each in findings]
            for mode, findings in found.items()
        }
        say_json({mode: {"works": works[mode], "findings": findings} for mode, findings in data.items()})
    else:
        _show(found, asked)
    return 0 if all(works[mode] for mode in works if asked[mode]) else 1


async def _try_kernels(found: dict[Mode, list[Finding]]) -> None:
    """Adds whether a kernel runs in each mode in which nothing else is wrong."""
    modes: list[Mode] = [mode for mode in ("plain", "sandbox") if _works(found[mode])]
    outcomes = await asyncio.gather(*(_kernel(sandbox=mode == "sandbox") for mode in modes))
    for mode, outcome in zip(modes, outcomes, strict=True):
        found[mode].append(outcome)


async def _kernel(*, sandbox: bool) -> Finding:
    try:
        with TemporaryDirectory(prefix="ipybox-doctor-") as directory:
            workspace, outside = Path(directory, "workspace"), Path(directory, "outside")
            workspace.mkdir()
            async with (
                asyncio.timeout(KERNEL_TIMEOUT),
                CodeExecutor(working_dir=workspace, sandbox=sandbox) as executor,
            ):
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


def _show(found: dict[Mode, list[Finding]], asked: dict[str, bool]) -> None:
    rows = [(_state(each), mode, each.what, each.found or "") for mode, findings in found.items() for each in findings]
    say_table(["State", "Mode", "What", "Found"], rows, [_STYLES[row[0]] for row in rows])
    say("")
    for mode, findings in found.items():
        problems = [str(finding) for finding in findings if finding.problem is not None]
        if mode == "other":
            verdict = "also missing:" if problems else ""
        else:
            verdict = f"{mode} mode: " + ("can't work" if problems else _WORKS[mode])
        for line in filter(None, [verdict, *(f"  {problem}" for problem in problems)]):
            say(line, style="red" if problems and asked[mode] else "")


def _state(finding: Finding) -> str:
    if finding.problem is None:
        return "ok"
    return "missing" if finding.found is None else "broken"
