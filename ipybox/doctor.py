"""`ipybox doctor`: what of ipybox works on this machine, and what to install for the rest.

Checks run at the same time, each with a bound of its own. What is asked for is tried and not inferred: `--sandbox`
starts a sandbox and looks whether it holds.
"""

import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Literal

from rich.console import Console
from rich.text import Text

from ipybox.probe import probe
from ipybox.sandbox.preflight import Finding, Program, diagnose, examine, require_sandbox, requirements

#: What can be asked for; "other" is what people often want beside it.
Mode = Literal["plain", "sandbox", "docker", "other"]
MODES: tuple[Mode, ...] = ("plain", "sandbox", "docker", "other")

MINIMUM_PYTHON = (3, 11)

#: Seconds that the Docker daemon has to answer.
DAEMON_TIMEOUT = 2.0

#: Seconds that a sandbox has to start and end.
SANDBOX_TIMEOUT = 10.0

UV = Program("uv", "uv", None, remedy="install it with `pip install uv`, it starts the Claude Code plugins")
CLAUDE = Program(
    "claude", "claude", None, remedy="install it with `npm install -g @anthropic-ai/claude-code`, for the plugins"
)
DOCKER = Program("docker", "docker", None, remedy="install Docker Engine or Docker Desktop")

#: Runs in the sandbox: it may write here, but not beside.
TRIAL = "echo ran > inside; echo escaped > ../outside; true"


@dataclass(frozen=True)
class Check:
    """Something to find out: the mode that needs it, and what finds it out."""

    mode: Mode
    run: Callable[[], list[Finding]]


def doctor(*, sandbox: bool = False, docker: bool = False) -> int:
    """Prints what works and what is missing to stdout, and returns the exit status: 0 if the asked-for modes work.

    Args:
        sandbox: Whether the sandbox is asked for.
        docker: Whether Docker mode is asked for. Without either it is the plain mode, which needs Python only.
    """
    found = _run(MODES, try_sandbox=sandbox)
    console = Console(highlight=False, soft_wrap=True)
    for findings in found.values():
        for finding in findings:
            console.print(_row(finding, console.encoding))
    console.print()
    asked = _asked(sandbox, docker)
    works = True
    for mode, findings in found.items():
        problems = _lines(findings)
        if mode in asked:
            works = works and not problems
        if mode == "other":
            verdict = "also missing:" if problems else ""
        elif problems:
            verdict = f"{mode} mode: can't work"
        else:
            verdict = f"{mode} mode: " + ("nothing is missing; --sandbox tries it" if _untried(findings) else "works")
        style = "red" if problems and mode in asked else ""
        for line in filter(None, [verdict, *(f"  {problem}" for problem in problems)]):
            console.print(Text(_printable(line, console.encoding), style=style))
    return 0 if works else 1


def problems(*, sandbox: bool = False, docker: bool = False) -> list[str]:
    """Returns what keeps the asked-for modes from working, one line each with what to do; empty if all is well."""
    asked = _asked(sandbox, docker)
    return [line for findings in _run(asked, try_sandbox=sandbox).values() for line in _lines(findings)]


def _asked(sandbox: bool, docker: bool) -> list[Mode]:
    modes: list[Mode] = ["plain"]
    if sandbox:
        modes.append("sandbox")
    if docker:
        modes.append("docker")
    return modes


def _run(modes: Collection[Mode], *, try_sandbox: bool) -> dict[Mode, list[Finding]]:
    """Returns what the checks of these modes find, in the order of the checks."""
    checks = [
        Check("plain", _python),
        Check("sandbox", diagnose),
        *([Check("sandbox", _sandbox)] if try_sandbox else []),
        Check("docker", _docker),
        Check("other", lambda: [examine(UV)]),
        Check("other", lambda: [examine(CLAUDE)]),
    ]
    wanted = [check for check in checks if check.mode in modes]
    found: dict[Mode, list[Finding]] = {}
    with ThreadPoolExecutor(len(wanted)) as pool:
        running = [pool.submit(check.run) for check in wanted]
        for check, findings in zip(wanted, running, strict=True):
            found.setdefault(check.mode, []).extend(findings.result())
    return found


def _python() -> list[Finding]:
    found = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info >= MINIMUM_PYTHON:
        return [Finding("python", found)]
    minimum = ".".join(str(number) for number in MINIMUM_PYTHON)
    return [Finding("python", found, f"Python is older than {minimum}", f"install Python {minimum} or later")]


def _sandbox() -> list[Finding]:
    """Starts a sandbox, and returns whether it lets code write where it may and nowhere else."""
    if any(finding.problem for finding in requirements()):
        return []
    srt = require_sandbox()
    with tempfile.TemporaryDirectory(prefix="ipybox-") as directory:
        inside, outside = Path(directory, "workspace", "inside"), Path(directory, "outside")
        inside.parent.mkdir()
        settings = Path(directory, "settings.json")
        settings.write_text(json.dumps(_settings(inside.parent)))
        command = [str(srt), "--settings", str(settings), "bash", "-c", TRIAL]
        # Sockets that srt names by its process id are no one else's there.
        outcome = probe(command, timeout=SANDBOX_TIMEOUT, cwd=inside.parent, env={"TMPDIR": directory})
        ran, escaped = inside.exists(), outside.exists()
    if outcome.failure:
        problem, remedy = f"srt can't start a sandbox, it {outcome.failure}", "see what else is wrong here"
    elif escaped or not ran:
        problem = "srt lets code write where it may not" if escaped else "srt does not run what it is given"
        remedy = f"have the srt of npm's @anthropic-ai/sandbox-runtime on PATH instead of {srt}"
    else:
        return [Finding("sandbox", "starts, and holds")]
    return [Finding("sandbox", str(srt), problem, remedy)]


def _settings(workspace: Path) -> dict[str, object]:
    """Returns settings like ipybox's default: only the workspace is writable, and there is no network."""
    return {
        "filesystem": {"denyRead": ["~/.ssh"], "allowWrite": [str(workspace)], "denyWrite": []},
        "network": {"allowedDomains": [], "deniedDomains": []},
    }


def _docker() -> list[Finding]:
    client = examine(DOCKER)
    executable = which("docker")
    if client.problem is not None or executable is None:
        return [client]
    command = [os.path.abspath(executable), "version", "--format", "{{.Server.Version}}"]
    outcome = probe(command, timeout=DAEMON_TIMEOUT)
    if outcome.failure is None:
        return [client, Finding("docker daemon", outcome.output.strip())]
    reason = outcome.failure.removeprefix("exits with 1: ")
    if "permission denied" in reason.lower():
        problem = "this user may not talk to the Docker daemon"
        remedy = "run `usermod -aG docker USER` as root and log in again (it gives USER the rights of root)"
    elif "does not end" in reason:
        problem = f"the Docker daemon does not answer within {DAEMON_TIMEOUT:g} s"
        remedy = "restart Docker"
    else:
        problem = f"the Docker daemon can't be reached ({reason})"
        remedy = "start Docker Desktop, or run `systemctl start docker` as root"
    return [client, Finding("docker daemon", reason, problem, remedy)]


def _lines(findings: list[Finding]) -> list[str]:
    return [str(finding) for finding in findings if finding.problem is not None]


def _untried(findings: list[Finding]) -> bool:
    """Whether these are findings of the sandbox that was not asked for."""
    what = {finding.what for finding in findings}
    return "srt" in what and "sandbox" not in what


def _row(finding: Finding, encoding: str) -> Text:
    if finding.problem is None:
        mark, style = "ok", "green"
    elif finding.found is None:
        mark, style = "missing", "yellow"
    else:
        mark, style = "broken", "red"
    return Text.assemble((f"{mark:9}", style), f"{finding.what:17}{_printable(finding.found or '', encoding)}".rstrip())


def _printable(text: str, encoding: str) -> str:
    """Returns the text without what a terminal would obey and what stdout can't encode: programs wrote parts of it."""
    plain = "".join(character if character.isprintable() else "?" for character in text)
    return plain.encode(encoding, "replace").decode(encoding)
