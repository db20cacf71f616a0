"""Installs Python packages for the kernel."""

import asyncio
import sys
from importlib.util import find_spec
from shutil import which

from ipybox.errors import IpyboxError

#: What pip says last is what matters, above all when it fails.
REPORTED_LINES = 15


class InstallError(IpyboxError):
    """A package can't be installed; the message is the installer's."""


async def install(specifier: str) -> str:
    """Installs a package into the environment of the kernel and returns the installer's summary.

    Args:
        specifier: A requirement specifier (PEP 508) or an URL that pip understands; no option.

    Raises:
        ValueError: If the specifier is empty or an option.
        InstallError: If the installer fails.
    """
    specifier = specifier.strip()
    if not specifier or specifier.startswith("-"):
        raise ValueError(f"{specifier!r} is not a package: give a name, a specifier such as 'numpy>=2', or an URL")
    process = await asyncio.create_subprocess_exec(
        *_installer(),
        specifier,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    lines = output.decode(errors="replace").strip().splitlines()
    if process.returncode != 0:
        raise InstallError(f"can't install {specifier!r}:\n" + "\n".join(lines[-REPORTED_LINES:]))
    return lines[-1] if lines else f"Installed {specifier}"


def _installer() -> list[str]:
    """Returns the command that installs into this environment, which may lack pip if uv made it."""
    if find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--"]
    uv = which("uv")
    if uv is not None:
        return [uv, "pip", "install", "--python", sys.executable, "--"]
    raise InstallError("this environment has no pip, and there is no uv: install one of them")
