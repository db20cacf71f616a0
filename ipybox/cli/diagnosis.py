"""What keeps ipybox from working on this machine, and what to do about it.

Checks run at the same time, each with a bound of its own.

Standard library only, with all that it imports: a plugin's hook runs it before anything is installed.
"""

import platform
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from shutil import which
from typing import Literal

from ipybox.docker.engine import DOCKER, engine_findings
from ipybox.docker.options import default_image
from ipybox.sandbox.findings import INSTALLERS, Finding, Install, Program, examine
from ipybox.sandbox.preflight import diagnose

#: The modes that can be checked; "other" has programs that people often use in addition.
Mode = Literal["plain", "sandbox", "docker", "other"]

#: Modules of Python with which an environment can be made, and a plugin be started without uv.
ENVIRONMENT_MODULES = ("venv", "ensurepip")

INSTALL_UV = Install("uv", ("pip install",), "install it with {}; it starts the Claude Code plugins")
UV = Program("uv", "uv", "", remedy=INSTALL_UV)
INSTALL_CLAUDE = Install("@anthropic-ai/claude-code", ("npm install -g",), "install it with {} to use the plugins")
CLAUDE = Program("claude", "claude", "", remedy=INSTALL_CLAUDE)


def examine_modes() -> dict[Mode, list[Finding]]:
    """Returns what the checks of each mode find, in the order of the checks."""
    checks: dict[Mode, list[Callable[[], list[Finding]]]] = {
        "plain": [lambda: [Finding("python", f"{platform.python_version()} ({sys.executable})")]],
        "sandbox": [diagnose],
        "docker": [_docker],
        "other": [lambda: [examine(UV)], environment_findings, lambda: [examine(CLAUDE)]],
    }
    running: dict[Mode, list[Future[list[Finding]]]] = {}
    with ThreadPoolExecutor(sum(map(len, checks.values()))) as pool:
        for mode, each in checks.items():
            running[mode] = [pool.submit(check) for check in each]
    return {mode: [finding for check in each for finding in check.result()] for mode, each in running.items()}


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
