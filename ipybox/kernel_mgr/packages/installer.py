"""Installs requested packages so that the kernels of a workspace can import them.

pip reports which packages are missing, and installs them into a separate directory. Then their files are taken over: an
earlier failure leaves the packages unchanged. In sandbox mode, pip on the host accepts only wheels, and executes
nothing of them; other packages are fetched and built in sandboxes (`sandboxed_pip`).
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from ipybox.audit.records import recorded
from ipybox.kernel_mgr.packages.distributions import unmet
from ipybox.kernel_mgr.packages.pip import Pip, PipSettings, read_settings
from ipybox.kernel_mgr.packages.pip_failure import PipError
from ipybox.kernel_mgr.packages.pip_report import Planned
from ipybox.kernel_mgr.packages.request import Request, parse_request
from ipybox.kernel_mgr.packages.store import InstallError, PackageStore
from ipybox.support.scratch import ScratchDirectory

if TYPE_CHECKING:
    from ipybox.audit.audit import AuditLog
    from ipybox.kernel_mgr.packages.sandboxed_pip import SandboxedPip
    from ipybox.sandbox.launch import Sandbox
    from ipybox.sandbox.settings import SandboxSettings


class PackageInstaller:
    """Installs packages for the kernels of a workspace, never into ipybox's own environment.

    Args:
        workspace: The working directory of the kernels.
        sandbox: The settings if kernels are in a sandbox; then no code of a package runs outside of a sandbox.
        audit: The audit log for installs.
    """

    def __init__(self, workspace: Path, sandbox: "SandboxSettings | None" = None, *, audit: "AuditLog | None" = None):
        self._workspace = workspace.resolve()
        self._audit = audit
        self._settings = sandbox

    async def install(self, specifier: str, *, by_code: bool = False) -> str:
        """Installs a package with what it needs, and returns a line about what was installed.

        Running kernels can import it immediately. Installs into one workspace take turns.

        Args:
            specifier: A name or specifier (PEP 508), a URL or a path that pip understands; no option.
            by_code: Whether code in a kernel requests it. In a sandbox it then gets only packages of the index, because
                it could send data anywhere with a URL, and read hidden files with a path.

        Raises:
            ValueError: If the specifier is not valid.
            InstallError: If it can't be installed; the message contains pip's reason. Nothing is changed.
            SandboxError: If it needs a build, and the sandbox for that can't start.
            AuditError: If it can't be recorded.
        """
        with recorded(self._audit, "package_install", package_name=specifier) as record:
            installed = record["message"] = await self._install(specifier, by_code)
            return installed

    async def _install(self, specifier: str, by_code: bool) -> str:
        request = parse_request(specifier, self._workspace)
        if by_code and self._settings is not None and request.kind != "index":
            raise ValueError(
                f"sandboxed code can only install packages from the index, not {specifier!r}: install it with the "
                "install_package tool instead"
            )
        sandbox = self._sandbox()
        async with PackageStore.turn(self._workspace) as store, _scratch(sandbox) as scratch:
            metadata = scratch / "installed"
            await asyncio.to_thread(store.describe, metadata)
            settings = await read_settings(scratch)
            try:
                planned, staged = await _fetch(request, scratch, metadata, settings, sandbox, store)
            except PipError as exc:
                raise InstallError(f"can't install {specifier!r}:\n{exc}") from exc
            if not planned:
                return _installed_already(request, store)
            # A thread can't be stopped, but must not outlive its turn.
            work = asyncio.create_task(asyncio.to_thread(store.take_over, staged))
            try:
                added = await asyncio.shield(work)
            except asyncio.CancelledError:
                await asyncio.wait([work])
                raise
            return f"Installed {', '.join(sorted(added, key=_requested_first(planned)))}"

    def _sandbox(self) -> "Sandbox | None":
        if self._settings is None:
            return None
        from ipybox.sandbox.launch import Sandbox

        return Sandbox(self._settings, self._workspace)


async def _fetch(
    request: Request,
    scratch: Path,
    metadata: Path,
    settings: PipSettings,
    sandbox: "Sandbox | None",
    store: PackageStore,
) -> tuple[list[Planned], Path]:
    """Returns the missing packages, and the directory in which they are now installed."""
    if sandbox is None:
        return await _fetch_with(Pip(_made(scratch / "pip"), metadata, settings, "host"), request, store)
    refused = None
    if request.kind != "source":
        try:
            return await _fetch_with(Pip(_made(scratch / "wheels"), metadata, settings, "wheels"), request, store)
        except PipError as exc:
            if exc.offline:
                raise
            refused = exc
    from ipybox.kernel_mgr.packages.sandboxed_pip import SandboxedPip

    try:
        return await _fetch_with(SandboxedPip(request, scratch, metadata, settings, sandbox), request, store)
    except PipError as exc:
        if refused is None or not exc.offline:
            raise
        raise PipError(f"{refused}\nBuilding it in the sandbox failed as well:\n{exc}", offline=True) from exc


async def _fetch_with(pip: "Pip | SandboxedPip", request: Request, store: PackageStore) -> tuple[list[Planned], Path]:
    planned = await pip.resolve(request.text)
    reasons = unmet(store.installed(), {one.name: one.version for one in planned})
    if reasons:
        raise PipError("\n".join(reasons), offline=False)
    if planned:
        await pip.fetch(planned)
    return planned, pip.staged


@asynccontextmanager
async def _scratch(sandbox: "Sandbox | None") -> AsyncGenerator[Path]:
    """Creates a scratch directory for the duration of the context."""
    writable = () if sandbox is None else sandbox.writable()
    scratch = await asyncio.to_thread(ScratchDirectory, sockets=sandbox is not None, writable=writable)
    try:
        yield scratch.path
    finally:
        await asyncio.to_thread(scratch.remove)


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def _installed_already(request: Request, store: PackageStore) -> str:
    if request.name is None:
        return f"{request.text} is already installed"
    versions: dict[str, str] = {canonicalize_name(found.name): found.version for found in store.installed()}
    try:
        return f"{request.name} {versions.get(request.name) or version(request.name)} is already installed"
    except PackageNotFoundError:
        return f"{request.text} is not needed here: its environment marker evaluates to false"


def _requested_first(planned: list[Planned]) -> Callable[[str], tuple[bool, str]]:
    requested = {one.name for one in planned if one.requested}
    return lambda added: (canonicalize_name(added.rpartition("-")[0]) not in requested, added)
