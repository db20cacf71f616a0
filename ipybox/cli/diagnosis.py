"""What keeps ipybox from working on this machine, and what to do about it.

Checks run at the same time, each with a bound of its own. What can be tried is not inferred: a sandbox is started, and
must hold.

Standard library only, with all that it imports: a plugin's hook runs it before anything is installed.
"""

import platform
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from shutil import which
from typing import Literal

from ipybox.docker.engine import DOCKER, engine_findings
from ipybox.docker.options import default_image
from ipybox.sandbox.findings import INSTALLERS, Finding, Install, Program, examine
from ipybox.sandbox.preflight import diagnose, try_sandbox

#: The modes that can be checked; "other" has programs that people often use in addition.
Mode = Literal["plain", "sandbox", "docker", "other"]

MINIMUM_PYTHON = (3, 11)

#: Modules of Python with which an environment can be made, and a plugin be started without uv.
ENVIRONMENT_MODULES = ("venv", "ensurepip")

INSTALL_UV = Install("uv", ("pip install",), "install it with {}; it starts the Claude Code plugins")
UV = Program("uv", "uv", None, remedy=INSTALL_UV)
CLAUDE = Program(
    "claude",
    "claude",
    None,
    remedy=Install("@anthropic-ai/claude-code", ("npm install -g",), "install it with {} to use the plugins"),
)


def examine_modes() -> dict[Mode, list[Finding]]:
    """Returns what the checks of each mode find, in the order of the checks."""
    checks: list[tuple[Mode, Callable[[], list[Finding]]]] = [
        ("plain", python_findings),
        ("sandbox", diagnose),
        ("sandbox", try_sandbox),
        ("docker", _docker),
        ("other", lambda: [examine(UV)]),
        ("other", environment_findings),
        ("other", lambda: [examine(CLAUDE)]),
    ]
    found: dict[Mode, list[Finding]] = {}
    with ThreadPoolExecutor(len(checks)) as pool:
        running = [pool.submit(run) for _, run in checks]
        for (mode, _), findings in zip(checks, running, strict=True):
            found.setdefault(mode, []).extend(findings.result())
    return found


def python_findings() -> list[Finding]:
    """Returns whether this Python is new enough."""
    found = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info >= MINIMUM_PYTHON:
        return [Finding("python", found)]
    minimum = ".".join(str(number) for number in MINIMUM_PYTHON)
    return [Finding("python", found, f"Python is older than {minimum}", f"install Python {minimum} or later")]


def environment_findings() -> list[Finding]:
    """Returns whether the plugins can make their environment where there is no uv."""
    absent = [name for name in ENVIRONMENT_MODULES if find_spec(name) is None]
    if which("uv") is not None or not absent:
        return []
    # Debian has them in a package of its own, and a pip that refuses to install into its Python.
    debian = which("apt-get") is not None
    remedy = Install("python3-venv", (INSTALLERS["apt-get"],), as_root=True) if debian else INSTALL_UV
    problem = f"uv not found, and this Python can't create environments without {' and '.join(absent)}"
    return [Finding("environments", sys.executable, problem, remedy)]


def _docker() -> list[Finding]:
    client = examine(DOCKER)
    if client.problem is not None:
        return [client]
    return [client, *engine_findings(default_image())]
