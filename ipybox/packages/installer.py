"""From a request to packages that the kernels of a workspace can import.

pip says what is missing, installs that into a directory of its own, and what is there then is taken over as files:
whatever fails before leaves the packages as they are. In sandbox mode, pip on the host takes wheels only, of which
nothing is executed; what it can't get that way is built in a sandbox that reaches the package index and nothing of
the workspace.
"""

import asyncio
import ipaddress
import shutil
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from packaging.utils import canonicalize_name

from ipybox.audit.action import recorded
from ipybox.packages.distributions import unmet
from ipybox.packages.pip import Pip, PipError, PipSettings, Planned, read_settings
from ipybox.packages.request import Request, parse_request
from ipybox.packages.store import InstallError, PackageStore

if TYPE_CHECKING:
    from ipybox.audit.audit import Audit
    from ipybox.sandbox.settings import SandboxSettings


class PackageInstaller:
    """Installs packages for the kernels of a workspace, never into ipybox's own environment.

    Args:
        workspace: The working directory of the kernels.
        sandbox: What kernels may do if they are in a sandbox; then no code of a package runs outside of one.
        audit: Where installs are recorded.
    """

    def __init__(self, workspace: Path, sandbox: "SandboxSettings | None" = None, *, audit: "Audit | None" = None):
        self._workspace = workspace.resolve()
        self._audit = audit
        self._sandbox = sandbox

    async def install(self, specifier: str) -> str:
        """Installs a package with what it needs, and returns a line about what was installed.

        Running kernels can import it at once. Installs into one workspace take turns.

        Args:
            specifier: A name or specifier (PEP 508), a URL or a path that pip understands; no option.

        Raises:
            ValueError: If it is something else.
            InstallError: If it can't be installed; the message has pip's reason. Nothing is changed.
            SandboxError: If it has to be built, and there is no sandbox to do that in.
            AuditError: If it can't be recorded.
        """
        with recorded(self._audit, "package_install", package_name=specifier) as record:
            installed = record["message"] = await self._install(specifier)
            return installed

    async def _install(self, specifier: str) -> str:
        request = parse_request(specifier, self._workspace)
        async with PackageStore.turn(self._workspace) as store, _scratch() as scratch:
            metadata = scratch / "installed"
            await asyncio.to_thread(store.describe, metadata)
            settings = await read_settings(scratch)
            try:
                planned, pip = await self._fetch(request, scratch, metadata, settings, store)
            except PipError as exc:
                raise InstallError(f"can't install {specifier!r}:\n{exc}") from exc
            if not planned:
                return _installed_already(request, store)
            # A thread can't be stopped, and must not outlive its turn.
            work = asyncio.create_task(asyncio.to_thread(store.take_over, pip.staged))
            try:
                added = await asyncio.shield(work)
            except asyncio.CancelledError:
                await asyncio.wait([work])
                raise
            return f"Installed {', '.join(sorted(added, key=_requested_first(planned)))}"

    async def _fetch(
        self, request: Request, scratch: Path, metadata: Path, settings: PipSettings, store: PackageStore
    ) -> tuple[list[Planned], Pip]:
        """Returns what was missing, and the pip that has installed it in its own directory."""
        if self._sandbox is None:
            return await _fetch_with(Pip(_made(scratch / "pip"), metadata, settings, "host"), request, store)
        refused = None
        if request.kind != "source":
            try:
                return await _fetch_with(Pip(_made(scratch / "wheels"), metadata, settings, "wheels"), request, store)
            except PipError as exc:
                if exc.offline:
                    raise
                refused = exc
        try:
            return await _fetch_with(self._sandboxed(request, scratch, metadata, settings), request, store)
        except PipError as exc:
            if refused is None or not exc.offline:
                raise
            raise PipError(f"{refused}\nIt can't be built in the sandbox either:\n{exc}", offline=True) from exc

    def _sandboxed(self, request: Request, scratch: Path, metadata: Path, settings: PipSettings) -> Pip:
        """Returns a pip that can build: it writes its own directory only, and reaches the index and the request's host.

        It may read what a kernel may, of the workspace only if the request is there.
        """
        from ipybox.sandbox.launch import python_directories, srt_command, write_settings

        assert self._sandbox is not None
        directory = _made(scratch / "build")
        file = scratch / "srt.json"
        write_settings(
            file,
            _build_settings(self._sandbox, self._workspace, request, settings),
            directory,
            allow_read=[*python_directories(), str(scratch)],
            allow_write=[str(directory)],
        )
        return Pip(directory, metadata, settings, "sandbox", srt_command([], file))


async def _fetch_with(pip: Pip, request: Request, store: PackageStore) -> tuple[list[Planned], Pip]:
    planned = await pip.resolve(request.text)
    reasons = unmet(store.installed(), {one.name: one.version for one in planned})
    if reasons:
        raise PipError("\n".join(reasons), offline=False)
    if planned:
        await pip.fetch(planned)
    return planned, pip


def _build_settings(
    sandbox: "SandboxSettings", workspace: Path, request: Request, settings: PipSettings
) -> "SandboxSettings":
    def absolute(entries: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(entry if entry.startswith(("/", "~")) else str(workspace / entry) for entry in entries)

    deny_read, allow_read = absolute(sandbox.deny_read), absolute(sandbox.allow_read)
    if request.path is None or not request.path.is_relative_to(workspace):
        deny_read = (*deny_read, str(workspace))
        allow_read = tuple(entry for entry in allow_read if not Path(entry).is_relative_to(workspace))
    return replace(
        sandbox,
        deny_read=deny_read,
        allow_read=allow_read,
        allow_write=(),
        deny_write=absolute(sandbox.deny_write),
        allowed_domains=tuple(dict.fromkeys([*sandbox.allowed_domains, *settings.hosts, *_hosts_of(request)])),
    )


def _hosts_of(request: Request) -> list[str]:
    """Returns the host that the request itself names, unless that is this machine or its cloud's metadata."""
    parts = urlsplit(request.url or "")
    if parts.hostname is None:
        return []
    with suppress(ValueError):  # a name, of which srt looks at what it stands for
        if not ipaddress.ip_address(parts.hostname).is_global:
            return []
    return [parts.netloc.rpartition("@")[2]]


@asynccontextmanager
async def _scratch() -> AsyncGenerator[Path]:
    """Makes a private directory outside the workspace, for the time of the context."""
    directory = Path(tempfile.mkdtemp(prefix="ipybox-packages-")).resolve()
    try:
        yield directory
    finally:
        await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def _installed_already(request: Request, store: PackageStore) -> str:
    if request.name is None:
        return f"{request.text} is installed already"
    versions: dict[str, str] = {canonicalize_name(found.name): found.version for found in store.installed()}
    try:
        return f"{request.name} {versions.get(request.name) or version(request.name)} is installed already"
    except PackageNotFoundError:
        return f"{request.text} needs nothing here: its environment marker does not hold"


def _requested_first(planned: list[Planned]) -> Callable[[str], tuple[bool, str]]:
    requested = {one.name for one in planned if one.requested}
    return lambda added: (canonicalize_name(added.rpartition("-")[0]) not in requested, added)
