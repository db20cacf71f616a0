"""What figures are measured on, without names of the machine, its users and its files."""

import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import psutil

from benchmarks.results import Machine

#: The packages below ipybox whose versions matter most.
PACKAGES = ("ipykernel", "jupyter_client", "jupyter_kernel_gateway", "mcp", "pydantic")


def machine() -> Machine:
    """Returns what the figures are measured on."""
    return Machine(
        processor=_processor(),
        cores=os.cpu_count() or 1,
        memory=f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        system=_system(),
        python=platform.python_version(),
    )


def describe_machine(on: Machine) -> str:
    """Returns a machine in one line."""
    return f"{on.processor}, {on.cores} cores, {on.memory}, {on.system}, Python {on.python}"


def package_versions() -> dict[str, str]:
    """Returns the versions of the packages below ipybox, in the environment of the benchmark."""
    return {name: version(name) for name in PACKAGES}


def commit() -> str:
    """Returns the commit of this checkout, with a + if files were changed since; empty outside of one."""
    root = Path(__file__).parent.parent
    try:
        head, changes = (
            subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=True).stdout.strip()
            for arguments in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f"{head}+" if changes else head


def _processor() -> str:
    if sys.platform == "darwin":
        answer = subprocess.run(
            ["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True, check=True
        )
        return answer.stdout.strip()
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _system() -> str:
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    if sys.platform == "linux":
        try:
            return f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {system}"
        except OSError:
            pass
    return system
