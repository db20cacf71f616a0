"""Installs packages for the kernels of a workspace, and removes them.

uv installs what is missing into a new directory, whose files are then moved into place as a whole: a failure leaves the
packages unchanged. In sandbox mode, uv accepts only wheels and executes none of their code; other packages are built in
sandboxes (`builds`).
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from ipybox.audit.records import recorded
from ipybox.kernel_mgr.limits.resource_limits import default_memory_limit
from ipybox.kernel_mgr.packages.distributions import Installed, discard_seeds, environment, pins, seed, unmet
from ipybox.kernel_mgr.packages.request import Request, parse_request
from ipybox.kernel_mgr.packages.store import InstallError, PackageStore
from ipybox.kernel_mgr.packages.uv import UvError, environment_in, install_command, run, user_settings
from ipybox.sandbox.launch import Sandbox, srt_temporary
from ipybox.support.scratch import ScratchDirectory
from ipybox.workspace.writable import WritablePlaces

if TYPE_CHECKING:
    from ipybox.audit.audit import AuditLog
    from ipybox.sandbox.settings import SandboxSettings

#: Bytes of memory that each of uv's processes may use in any case.
LEAST_MEMORY = 1 << 30

#: How often an install is tried that others overtake.
ATTEMPTS = 10

#: Maximum number of installed packages to name: a wheel can contain any number.
MAX_NAMES = 200

#: Explains uv's constraints.
CONSTRAINT = (
    "The constraints are the package versions in ipybox's own environment, which kernels share: request a compatible "
    "version"
)

#: Reports that packages were built.
BUILT = "Packages were built from source, in a sandbox without access to the workspace, your home or passwords."


class PackageInstaller:
    """Installs packages for the kernels of a workspace, never into ipybox's own environment.

    Args:
        sandbox: The sandbox settings of the kernels; with these, no package's code runs outside of a sandbox.
    """

    def __init__(self, workspace: Path, sandbox: "SandboxSettings | None" = None, *, audit: "AuditLog | None" = None):
        self._workspace = workspace.resolve()
        self._audit = audit
        self._settings = sandbox

    async def install(self, specifier: str, *, by_code: bool = False) -> str:
        """Installs a package with its dependencies and returns what was installed.

        Running kernels can import it immediately. Installs into one workspace don't wait for each other, because a
        package can make uv search for versions without an end. An install starts again if another one has changed the
        packages meanwhile.

        Args:
            specifier: A name or specifier (PEP 508), a URL or a path that uv understands; no option.
            by_code: Whether code in a kernel requests it. Sandboxed code gets only packages from the index, because a
                URL could send data anywhere, and a path could read hidden files.

        Raises:
            ValueError: If the specifier is not valid.
            InstallError: If it can't be installed; the message contains uv's reason. Nothing is changed.
            SandboxError: If it needs a build, and the sandbox for builds can't start.
            AuditError: If it can't be recorded.
        """
        async with recorded(self._audit, "package_install", package_name=specifier) as record:
            installed = record["message"] = await self._install(specifier, by_code)
            return installed

    async def uninstall(self, name: str) -> str:
        """Removes one package, and returns what was removed.

        Raises:
            InstallError: If it was not installed for the workspace.
            AuditError: If it can't be recorded.
        """
        async with recorded(self._audit, "package_uninstall", package_name=name) as record:
            async with PackageStore.turn(self._workspace) as store:
                found = (await asyncio.to_thread(store.installed)).get(canonicalize_name(name))
                if found is None:
                    raise InstallError(f"can't remove {name!r}: it was not installed for this workspace")
                await _finished(store.replace, [found.name])
            record["message"] = f"Removed {found.name}-{found.version}\n{_reset([found.name])}"
            return record["message"]

    async def _install(self, specifier: str, by_code: bool) -> str:
        request = parse_request(specifier, self._workspace)
        if by_code and self._settings is not None and request.kind != "index":
            raise ValueError(
                f"sandboxed code can only install packages from the index, not {specifier!r}: install it with the "
                "install_package tool instead"
            )
        if self._settings is not None and request.kind == "local":
            raise ValueError(f"with a sandbox, {specifier!r} can't be built because it is local: build a wheel")
        sandbox = None if self._settings is None else Sandbox(self._settings, self._workspace)
        try:
            for _ in range(ATTEMPTS):
                async with _scratch(sandbox) as scratch:
                    if (installed := await self._installed(request, scratch, sandbox)) is not None:
                        return installed
            raise InstallError("other installs keep changing the packages: try again later")
        except InstallError as exc:
            raise InstallError(f"can't install {specifier!r}:\n{exc}") from exc

    async def _installed(self, request: Request, scratch: Path, sandbox: Sandbox | None) -> str | None:
        """Installs a package and returns what was installed; None if the packages have changed meanwhile."""
        own = await asyncio.to_thread(environment)
        async with PackageStore.turn(self._workspace) as store:
            before = await asyncio.to_thread(store.installed)
        earlier, pinned = own | before, pins(own)
        try:
            staged, was_built = await self._staged(request, scratch, sandbox, earlier.values(), pinned)
        except UvError as exc:
            if not any(text in str(exc) for text in pinned):
                raise
            raise InstallError(f"{exc}\n{CONSTRAINT}") from exc
        added = await asyncio.to_thread(discard_seeds, staged)
        if not added:
            return _installed_already(request, earlier)
        reasons = await asyncio.to_thread(unmet, earlier.values(), {name: it.version for name, it in added.items()})
        if reasons:
            raise InstallError("\n".join(reasons))
        async with PackageStore.turn(self._workspace) as store:
            if await asyncio.to_thread(store.installed) != before:
                return None
            await _finished(store.replace, added.keys(), staged)
        requested_first = sorted(added.values(), key=lambda it: (it.name != request.name, it.name))
        names = [f"{it.name}-{it.version}" for it in requested_first]
        replaced = added.keys() & earlier.keys()
        if len(names) > MAX_NAMES:
            names[MAX_NAMES:] = [f"and {len(names) - MAX_NAMES} more"]
        lines = [f"Installed {', '.join(names)}", *([_reset(replaced)] if replaced else [])]
        return "\n".join([*([BUILT] if was_built else []), *lines])

    async def _staged(
        self,
        request: Request,
        scratch: Path,
        sandbox: Sandbox | None,
        earlier: Collection[Installed],
        pinned: Iterable[str],
    ) -> tuple[Path, bool]:
        """Returns a directory with the missing packages, and whether any of them was built."""
        places = WritablePlaces(self._workspace, self._settings)
        settings = user_settings(places)
        readable = srt_temporary(scratch)  # also in the sandbox for builds
        constraints, staged = readable / "constraints.txt", scratch / "staged"
        constraints.write_text("\n".join(pinned))
        if sandbox is None or request.kind != "source":
            await asyncio.to_thread(seed, earlier, staged)
            only = [] if sandbox is None else ["--no-build"]
            command = install_command(places, settings, request.text, staged, constraints, *only)
            memory = default_memory_limit()
            if sandbox is not None:  # uv compiles a package's modules in many processes, 400 times as large as these
                memory = max(LEAST_MEMORY, memory // (os.cpu_count() or 1))
            code, output = await run(command, environment_in(scratch, settings.environment), scratch, memory)
            if code == 0:
                return staged, False
            failure = UvError(output, code)
            if sandbox is None or not failure.needs_build:
                raise failure
        from ipybox.kernel_mgr.packages.builds import build

        return await build(request, settings, sandbox, scratch, earlier, constraints), True


async def _finished(work: Callable[..., None], *arguments: object) -> None:
    """Runs work in a thread to its end, even if cancelled, because it must not outlive its install's turn."""
    running = asyncio.create_task(asyncio.to_thread(work, *arguments))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


@asynccontextmanager
async def _scratch(sandbox: Sandbox | None) -> AsyncGenerator[Path]:
    writable = () if sandbox is None else sandbox.writable()
    scratch = await asyncio.to_thread(ScratchDirectory, sockets=sandbox is not None, writable=writable)
    try:
        yield scratch.path
    finally:
        await asyncio.to_thread(scratch.remove)


def _installed_already(request: Request, earlier: Mapping[str, Installed]) -> str:
    if request.name is None:
        return f"{request.text} is already installed"
    if request.name not in earlier:
        return f"{request.text} is not needed here: its environment marker evaluates to false"
    return f"{request.name} {earlier[request.name].version} is already installed"


def _reset(names: Collection[str]) -> str:
    """Returns what to do with kernels that imported packages before they changed."""
    named = sorted(names)[:MAX_NAMES]
    return f"A kernel that has imported {', '.join(named)} keeps the old modules until a reset."
