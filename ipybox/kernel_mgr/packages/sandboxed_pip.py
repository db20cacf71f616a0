"""pip in sandboxes: code of a package never runs where there is a network, a home or a workspace.

Two sandboxes take turns. One reaches the package index, and executes nothing of what it fetches: at a source that must
be built, pip ends there (`pip_process`). The other one builds that source. It writes one directory, and has no network
unless the user's settings of the sandbox allow hosts. Build requirements that are missing there, the first one fetches
before the next try. In the end the first one installs wheels.
"""

import ipaddress
import json
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from ipybox.kernel_mgr.packages.pip import VARIABLES, Mode, Pip, PipSettings, Source, SourceNeeded
from ipybox.kernel_mgr.packages.pip_failure import PipError
from ipybox.kernel_mgr.packages.pip_process import BUILT_FILE
from ipybox.kernel_mgr.packages.pip_report import Planned, pinned_url
from ipybox.kernel_mgr.packages.request import Request
from ipybox.sandbox.launch import Sandbox, python_directories, srt_command, srt_temporary, write_settings
from ipybox.support.inherited import SAFE_VARIABLES

#: The user's settings of pip that a build gets. Others may hold passwords, as URLs of indexes do.
BUILD_SETTINGS = (
    *("PIP_BUILD_OPTION", "PIP_CHECK_BUILD_DEPENDENCIES", "PIP_CONFIG_SETTINGS", "PIP_GLOBAL_OPTION"),
    *("PIP_NO_BUILD_ISOLATION", "PIP_NO_USE_PEP517", "PIP_USE_PEP517"),
)
#: Variables that name certificates for pip and git.
CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO")

#: Sources that one install may build.
MAX_BUILDS = 30
#: Times that a build is tried: first `pyproject.toml` names requirements, then the build backend does.
MAX_TRIES = 4

Result = TypeVar("Result")


class SandboxedPip:
    """Resolves and fetches as `Pip` does, and builds what must be built.

    Args:
        request: The package to install. If it has a path, the sandboxes can read that.
        scratch: A scratch directory for all files.
        metadata: Contains the metadata of what was installed before.
        settings: The user's settings of pip.
        sandbox: What kernels may do.
    """

    def __init__(self, request: Request, scratch: Path, metadata: Path, settings: PipSettings, sandbox: Sandbox):
        self._request = request
        self._scratch = scratch
        self._metadata = metadata
        self._settings = settings
        self._sandbox = sandbox
        #: The wheel and the origin of each source that was built, by its URLs.
        self._built: dict[str, tuple[str, dict[str, Any]]] = {}
        #: The URLs of sources whose builds have started.
        self._begun: set[str] = set()
        self._builds = scratch / "builds"
        self._builds.mkdir()
        self._note_built()
        certificates = [os.environ[name] for name in CERTIFICATES if name in os.environ]
        self._fetcher = self._pip(
            "fetch",
            scratch / "fetch",
            settings,
            readable=[scratch / BUILT_FILE, self._builds, *settings.paths, *certificates],
            hosts=[*settings.hosts, *_hosts_of(request)],
        )

    @property
    def staged(self) -> Path:
        """What `fetch` has installed."""
        return self._fetcher.staged

    async def resolve(self, requirement: str) -> list[Planned]:
        """Returns what must be installed for a requirement; nothing, if it is met.

        Raises:
            PipError: If that is not possible.
        """
        return await self._with_builds(lambda: self._fetcher.resolve(requirement))

    async def fetch(self, planned: Sequence[Planned]) -> None:
        """Installs exactly what is planned into the directory `staged`.

        Raises:
            PipError: If that is not possible.
        """
        await self._with_builds(lambda: self._fetcher.fetch(planned))

    async def _with_builds(self, action: Callable[[], Awaitable[Result]]) -> Result:
        while True:
            try:
                return await action()
            except SourceNeeded as needed:
                source = needed.source
            await self._build(source)

    async def _build(self, source: Source) -> None:
        if source.url in self._begun:
            raise PipError(f"{source.name} can't be built: building it requires {source.name} itself", offline=False)
        if len(self._begun) == MAX_BUILDS:
            raise PipError(f"too many packages need building: the limit is {MAX_BUILDS}", offline=False)
        self._begun.add(source.url)
        number = len(self._begun)
        wheels = self._fetcher.directory / f"wheels-{number}"
        wheels.mkdir()
        wheel = await self._build_with(self._builder(source, wheels, self._builds / str(number)), source, wheels)
        for url in (source.url, pinned_url(source.origin)):
            self._built[url] = (str(wheel), source.origin)
        self._note_built()

    async def _build_with(self, builder: Pip, source: Source, wheels: Path) -> Path:
        collected: set[str] = set()
        for _ in range(MAX_TRIES - 1):
            try:
                return await builder.build(source, wheels)
            except PipError:
                missing = sorted(builder.build_requirements() - collected)
                if not missing:
                    raise
            try:
                await self._with_builds(lambda words=missing: self._fetcher.collect(words, wheels))
            except PipError as exc:
                raise PipError(f"{exc}\n{source.name} requires it to build.", offline=exc.offline) from exc
            collected.update(missing)
        return await builder.build(source, wheels)

    def _note_built(self) -> None:
        (self._scratch / BUILT_FILE).write_text(json.dumps(self._built))

    def _builder(self, source: Source, wheels: Path, directory: Path) -> Pip:
        allowed = {name: value for name, value in self._settings.environment.items() if name in BUILD_SETTINGS}
        # Other sources are readable anyway, or for no one here.
        fetched = Path(source.directory).is_relative_to(self._fetcher.directory)
        return self._pip(
            "build",
            directory,
            replace(self._settings, environment=allowed),
            readable=[wheels, *([source.directory] if fetched else [])],
            allowed=self._sandbox.settings.allow_read,
        )

    def _pip(
        self,
        mode: Mode,
        directory: Path,
        settings: PipSettings,
        *,
        readable: Iterable[str | Path],
        allowed: Iterable[str] = (),
        hosts: Iterable[str] = (),
    ) -> Pip:
        """Returns a pip in a sandbox with a new directory, the only one that it can write.

        It can't read the home, the workspace and what kernels can't read, apart from `readable`, the request's path,
        and what of `allowed` is not in the workspace.
        """
        directory.mkdir()
        temporary = srt_temporary(self._scratch)
        user, workspace, path = self._sandbox.settings, self._sandbox.workspace, self._request.path
        local = path is not None and path.is_relative_to(workspace)
        deny_read = ["~", *(entry for entry in user.deny_read if local or entry.startswith(("/", "~", "$")))]
        if path != workspace:
            deny_read.append(str(workspace))
        places = {entry: workspace / Path(entry).expanduser() for entry in allowed}
        allow_read = [entry for entry, place in places.items() if not place.is_relative_to(workspace)]
        file = self._scratch / f"{mode}-{directory.name}.json"
        write_settings(
            file,
            replace(
                user,
                deny_read=tuple(deny_read),
                allow_read=(*allow_read, *([] if path is None else [str(path)])),
                allow_write=(),
                allowed_domains=tuple(dict.fromkeys([*user.allowed_domains, *hosts])),
            ),
            workspace,
            allow_read=[*python_directories(), *map(str, (self._metadata, temporary, *readable))],
            allow_write=[str(directory)],
        )
        variables = VARIABLES if mode == "fetch" or user.has_network else SAFE_VARIABLES
        wrapper = srt_command([], file, self._sandbox.path)
        return Pip(directory, self._metadata, settings, mode, variables, wrapper, temporary)


def _hosts_of(request: Request) -> list[str]:
    """Returns the host that the request itself names, unless that is this machine or its cloud's metadata."""
    parts = urlsplit(request.url or "")
    if parts.hostname is None:
        return []
    with suppress(ValueError):  # a name, of which srt looks at what it stands for
        if not ipaddress.ip_address(parts.hostname).is_global:
            return []
    return [parts.netloc.rpartition("@")[2]]
