"""Runs pip in its own process, on the host or in a sandbox, for `PackageInstaller` and `sandboxed_pip`.

pip considers the packages of ipybox's environment installed, and those installed for the workspace before, of which it
gets only metadata. Its directory and its environment contain nothing of the workspace. The packages that the kernel
itself needs are pinned, so that no other package can replace them.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from packaging.requirements import Requirement

from ipybox.kernel_mgr.packages import pip_process
from ipybox.kernel_mgr.packages.distributions import closure
from ipybox.kernel_mgr.packages.pip_failure import PipError, pip_failure
from ipybox.kernel_mgr.packages.pip_report import Planned, parse_report, read_untrusted
from ipybox.sandbox.preflight import SANDBOX_STARTS, transient_cause
from ipybox.support.inherited import ALL_PROXIES, CERTIFICATES, SAFE_VARIABLES, inherited
from ipybox.support.process_group import signal_group

#: Seconds that pip and its children have to end.
TERMINATE_GRACE = 2.0

#: The permitted use of sources by pip: none, build on the host, fetch in a sandbox, build in another sandbox.
Mode = Literal["wheels", "host", "fetch", "build"]

#: Variables of this process for pip and builds, including those that kernels get; pip's own are separate.
VARIABLES = (
    *SAFE_VARIABLES,
    *ALL_PROXIES,
    *CERTIFICATES,
)
#: Additional variables for pip on the host, which may authenticate as the user.
HOST_VARIABLES = ("SSH_AUTH_SOCK", "NETRC", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")

#: Defaults unless the user's pip settings differ: without a network, pip must not take minutes to fail.
DEFAULTS = {"PIP_RETRIES": "2"}

IGNORED = (
    "this process ignores SIGCHLD, so the operating system would not report whether pip succeeds: "
    "call signal.signal(signal.SIGCHLD, signal.SIG_DFL)"
)

#: Maximum number of requirements of one build.
MAX_REQUIREMENTS = 200


@dataclass(frozen=True)
class Source:
    """A source that pip has fetched, and that must be built before pip can go on.

    Attributes:
        name: Its name for pip: a name, a requirement or a URL.
        url: The URL from which pip fetched it.
        directory: The unpacked source.
        subdirectory: The directory of the project in it; empty if it is the directory itself.
        origin: Its origin, as exactly as known (PEP 610).
    """

    name: str
    url: str
    directory: str
    subdirectory: str
    origin: dict[str, Any]


class SourceNeeded(Exception):
    """A source must be built before pip can go on."""

    def __init__(self, source: Source):
        super().__init__(source.name)
        self.source = source


@dataclass(frozen=True)
class PipSettings:
    """The user's settings of pip.

    Attributes:
        environment: The settings as environment variables for pip.
        hosts: The hosts (`name[:port]`) of the indexes.
        paths: The files and directories that the settings name.
    """

    environment: Mapping[str, str]
    hosts: Sequence[str]
    paths: Sequence[str]


@dataclass(frozen=True)
class Pip:
    """Runs pip with its own directory.

    Attributes:
        directory: The directory for all files that pip creates.
        metadata: The directory with the metadata of packages that were installed before.
        settings: The user's settings.
        mode: The permitted use of sources.
        variables: The variables of this process that pip gets.
        wrapper: The start of the command line in a sandbox.
        srt_temporary: The directory for temporary files of the sandbox itself, in a sandbox.
    """

    directory: Path
    metadata: Path
    settings: PipSettings
    mode: Mode
    variables: Sequence[str] = (*VARIABLES, *HOST_VARIABLES)
    wrapper: Sequence[str] = ()
    srt_temporary: Path | None = None

    @property
    def staged(self) -> Path:
        """The directory into which `fetch` installs."""
        return self.directory / "staged"

    async def resolve(self, requirement: str) -> list[Planned]:
        """Returns the packages to install for a requirement; empty if it is met.

        Raises:
            PipError: If the requirement can't be resolved.
            SourceNeeded: If a source must be built first (mode `fetch`).
        """
        constraints = self.directory / "constraints.txt"
        constraints.write_text("".join(f"{name}=={version}\n" for name, version in closure("ipybox").items()))
        report = self.directory / "report.json"
        arguments = ("--dry-run", f"--report={report}", f"--constraint={constraints}", "--", requirement)
        await self._run("install", *arguments)
        return parse_report(read_untrusted(report))

    async def fetch(self, planned: Sequence[Planned]) -> None:
        """Installs exactly the planned packages into the directory `staged`.

        Raises:
            PipError: If a package can't be installed.
            SourceNeeded: If a source must be built first (mode `fetch`).
        """
        arguments = ("--no-warn-script-location", "--no-deps", f"--target={self.staged}", "--")
        await self._run("install", *arguments, *(one.text for one in planned))

    async def collect(self, requirements: Sequence[str], wheels: Path) -> None:
        """Puts wheels for requirements and their dependencies into a directory.

        Raises:
            PipError: If a wheel can't be fetched.
            SourceNeeded: If a source must be built first (mode `fetch`).
        """
        await self._run("wheel", f"--wheel-dir={wheels}", "--", *requirements)

    async def build(self, source: Source, wheels: Path) -> Path:
        """Builds a source with the requirements in the directory `wheels`, and returns the path of its wheel.

        Only code in a sandbox may open the wheel.

        Raises:
            PipError: If the build fails; `build_requirements` returns the requirements, one of which may be missing.
        """
        built = self.directory / "built"
        shutil.rmtree(built, ignore_errors=True)
        project = Path(pip_process.SOURCE_COPY, source.subdirectory)
        options = ("--no-deps", "--no-index", f"--find-links={wheels}", f"--wheel-dir={built}")
        await self._run("wheel", *options, "--", f"./{project}", before=[source.directory])
        left = os.listdir(built) if built.is_dir() and not built.is_symlink() else []
        found = [name for name in left if name.endswith(".whl")]
        if len(found) != 1:
            raise PipError(f"the build of {source.name} produced {len(found)} wheels instead of one", offline=False)
        return built / found[0]

    def build_requirements(self) -> set[str]:
        """Returns the requirements of the last `build`, including missing ones.

        Raises:
            PipError: If they are not valid requirements, because code of the package may have written them.
        """
        try:
            found: object = json.loads(read_untrusted(self.directory / pip_process.REQUIREMENTS_FILE))
            requirements = {str(Requirement(text)) for text in cast(list[str], found)}
        except FileNotFoundError:
            return set()
        except (OSError, ValueError, TypeError, RecursionError) as exc:
            raise PipError(f"the build has invalid requirements: {exc}", offline=False) from exc
        if len(requirements) > MAX_REQUIREMENTS:
            message = f"the build has too many requirements: {len(requirements)}; the limit is {MAX_REQUIREMENTS}"
            raise PipError(message, offline=False)
        return requirements

    async def _run(self, action: str, *arguments: str, before: Sequence[str] = ()) -> None:
        # Nothing that was built in the sandbox may reach a cache that pip on the host uses.
        cache = (f"--cache-dir={self.directory / 'cache'}",) if self.wrapper else ()
        only = ("--only-binary=:all:",) if self.mode == "wheels" else ()
        options = ("--no-input", "--no-color", "--progress-bar=off", "--disable-pip-version-check")
        words = _command("run", str(self.metadata), self.mode, *before, action, *options, *cache, *only, *arguments)
        needed = self.directory / pip_process.SOURCE_FILE
        needed.unlink(missing_ok=True)
        output = self.directory.with_name(f"{self.directory.name}.log")
        code = await self._run_once(words, output)
        starts = 1
        while code and self.wrapper and starts < SANDBOX_STARTS and transient_cause(_text(output)):
            code = await self._run_once(words, output)
            starts += 1
        if code == 0:
            return
        if self.mode == "fetch" and needed.exists():
            raise SourceNeeded(Source(**json.loads(read_untrusted(needed))))
        raise pip_failure(_text(output), code)

    async def _run_once(self, words: Sequence[str], output: Path) -> int:
        with output.open("wb") as log:
            return await run([*self.wrapper, *words], self._environment(), self.directory, log.fileno())

    def _environment(self) -> dict[str, str]:
        temporary = self.directory / "tmp"
        temporary.mkdir(exist_ok=True)
        return {
            **inherited(self.variables),
            **DEFAULTS,
            **self.settings.environment,
            "PIP_CONFIG_FILE": os.devnull,  # the settings were read before
            "PIP_ROOT_USER_ACTION": "ignore",
            "TMPDIR": str(self.srt_temporary or temporary),
            "CLAUDE_CODE_TMPDIR": str(temporary),  # srt sets TMPDIR to it in the sandbox
        }


def _text(output: Path) -> str:
    return output.read_text(errors="replace")


async def read_settings(directory: Path) -> PipSettings:
    """Returns the user's settings of pip.

    Raises:
        PipError: If pip can't be run, or its settings are wrong.
    """
    output = directory / "settings.json"
    errors = directory / "settings.log"
    pip_variables = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    environment = {**inherited((*VARIABLES, *HOST_VARIABLES, "XDG_CONFIG_DIRS")), **pip_variables}
    with output.open("wb") as out, errors.open("wb") as err:
        code = await run(_command("settings"), environment, directory, out.fileno(), err.fileno())
    if code != 0:
        raise pip_failure(errors.read_text(errors="replace"), code)
    found: dict[str, Any] = json.loads(output.read_text())
    return PipSettings(**found)


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-E", "-P", pip_process.__file__, *arguments]


async def run(command: Sequence[str], env: Mapping[str, str], cwd: Path, out: int, err: int | None = None) -> int:
    """Runs a command in a session of its own, and ends all of it if the caller is cancelled."""
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        raise PipError(IGNORED, offline=False)
    process = await asyncio.create_subprocess_exec(
        *command,
        env=env,
        cwd=cwd,
        stdin=asyncio.subprocess.PIPE,  # whose end is the order to end
        stdout=out,
        stderr=subprocess.STDOUT if err is None else err,
        start_new_session=True,
    )
    try:
        return await process.wait()
    finally:
        await asyncio.shield(_end(process))


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    if process.returncode is None:
        signal_group(process.pid, signal.SIGTERM)  # srt takes down what it has set up
        with suppress(TimeoutError):
            async with asyncio.timeout(TERMINATE_GRACE):
                await process.wait()
    signal_group(process.pid, signal.SIGKILL)
    await process.wait()
