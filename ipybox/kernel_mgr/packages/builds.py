"""Builds packages from source and installs them, in a separate sandbox.

There, a package's code can see no home directory, workspace or password, and can write only to a scratch directory with
its own cache. It can reach the package indexes, the host in the request, and the hosts that the user's sandbox settings
allow: uv fetches build requirements from them.
"""

import ipaddress
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from urllib.parse import urlsplit

from ipybox.kernel_mgr.limits.resource_limits import default_memory_limit
from ipybox.kernel_mgr.packages.distributions import Installed, seed
from ipybox.kernel_mgr.packages.request import Request
from ipybox.kernel_mgr.packages.store import InstallError
from ipybox.kernel_mgr.packages.uv import UvError, UvSettings, environment_in, install_command, run
from ipybox.sandbox.launch import Sandbox, python_directories, srt_command, srt_temporary, write_settings
from ipybox.sandbox.preflight import SANDBOX_STARTS, transient_cause
from ipybox.support.way_in import setting
from ipybox.workspace.writable import WritablePlaces

# srt's proxy is the only way out, even to the host's loopback ports.
_SCRIPT = 'unset NO_PROXY no_proxy; exec "$@"'

_REFUSED = ("Tunnel connection failed: 403", "CONNECT tunnel failed, response 403", "unsuccessful tunnel")


async def build(
    request: Request,
    settings: UvSettings,
    sandbox: Sandbox,
    scratch: Path,
    earlier: Iterable[Installed],
    constraints: Path,
) -> Path:
    """Installs a package with its dependencies and returns the directory, to which their code may have written.

    Args:
        sandbox: The sandbox of the kernels.
        earlier: The distributions that are already installed.
        constraints: A file of constraints that the sandbox can read.
    """
    directory, temporary = Path(mkdtemp(prefix="build-", dir=scratch)), srt_temporary(scratch)
    target, own = directory / "staged", directory / "tmp"
    own.mkdir()
    seed(earlier, target)
    settings = settings.without_passwords(temporary)
    places = WritablePlaces(sandbox.workspace, sandbox.settings)
    install = install_command(places, settings, request.text, target, constraints)
    environment = {
        **environment_in(directory, settings.environment),
        **{"PATH": sandbox.path, "UV_CACHE_DIR": str(directory / "cache")},
        # srt sets TMPDIR to CLAUDE_CODE_TMPDIR in the sandbox.
        **{"TMPDIR": str(temporary), "CLAUDE_CODE_TMPDIR": str(own)},
    }
    file = scratch / f"{directory.name}.json"
    _write_settings(file, sandbox, request, directory, settings, [temporary, *settings.paths])
    words = srt_command(["bash", "-c", _SCRIPT, "bash", *install], file, sandbox.path)
    memory = default_memory_limit()
    code, output = await run(words, environment, directory, memory)
    for _ in range(1, SANDBOX_STARTS):
        if code and transient_cause(output):
            code, output = await run(words, environment, directory, memory)
    if code:
        raise UvError(output + _reason(output), code)
    return own_directory(target)


def own_directory(target: Path) -> Path:
    """Returns the directory with the results of a build.

    Raises:
        InstallError: If a package's code replaced it, for example with a link to files of the host.
    """
    if target.is_symlink() or not target.is_dir():
        raise InstallError("the build replaced the directory for its results")
    return target


def _write_settings(
    file: Path, sandbox: Sandbox, request: Request, directory: Path, settings: UvSettings, readable: Iterable[Path]
) -> None:
    user, workspace = sandbox.settings, sandbox.workspace
    deny_read = ["~", str(workspace), *(entry for entry in user.deny_read if entry.startswith(("/", "~", "$")))]
    places = {entry: workspace / Path(entry).expanduser() for entry in user.allow_read}
    allow_read = [entry for entry, place in places.items() if not place.is_relative_to(workspace)]
    hosts = dict.fromkeys([*user.allowed_domains, *settings.hosts, *_host_of(request)])
    write_settings(
        file,
        replace(
            user,
            deny_read=tuple(deny_read),
            allow_read=tuple(allow_read),
            allow_write=(),
            allowed_domains=tuple(hosts),
        ),
        workspace,
        allow_read=[*python_directories(), *map(str, readable)],
        allow_write=[str(directory)],
    )


def _host_of(request: Request) -> list[str]:
    """Returns the host in the request's URL, unless it is this machine or a cloud metadata service."""
    parts = urlsplit(request.url or "")
    if parts.hostname is None:
        return []
    with suppress(ValueError):  # a name, whose addresses srt checks
        if not ipaddress.ip_address(parts.hostname).is_global:
            return []
    return [parts.netloc.rpartition("@")[2]]


def _reason(output: str) -> str:
    """Returns how to allow a host that the sandbox blocked; empty if it blocked none."""
    if not any(text in output for text in _REFUSED):
        return ""
    return (
        "\nThe sandbox blocked a host. Builds can reach the package indexes, the requested URL, and hosts in "
        f"'network.allowedDomains' of the sandbox settings. To allow a host, list it in {setting('allowed_domains')}"
    )
