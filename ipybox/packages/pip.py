"""pip as a process of its own, on the host or in a sandbox.

It sees what ipybox's environment has as installed, and what was installed for the workspace before, of which it gets
nothing but metadata. Its directory and its environment hold nothing of the workspace, and what the kernel itself
needs is pinned, so that no package can take its place.
"""

import asyncio
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ipybox.inherited import ALL_PROXIES, CERTIFICATES, inherited
from ipybox.kernel_mgr.server import SAFE_VARIABLES
from ipybox.packages import pip_process
from ipybox.packages.distributions import closure
from ipybox.packages.store import InstallError

#: What pip may do with sources: nothing, build them on the host, fetch them in a sandbox, build them in another one.
Mode = Literal["wheels", "host", "fetch", "build"]

#: Variables of this process for pip and builds, besides those that a kernel may know, and besides pip's own.
VARIABLES = (
    *SAFE_VARIABLES,
    *ALL_PROXIES,
    *CERTIFICATES,
)
#: The same for pip on the host, which can use what authenticates the user.
HOST_VARIABLES = ("SSH_AUTH_SOCK", "NETRC", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")

#: What holds unless the user's settings of pip say otherwise: without a network it must not take minutes to fail.
DEFAULTS = {"PIP_RETRIES": "2"}

REPORTED_LINES = 25
MAX_REPORT_BYTES = 64 << 20
#: Requirements that one build may have.
MAX_REQUIREMENTS = 200
TERMINATE_GRACE = 2.0

# What pip says besides the reason.
_NOISE = re.compile(
    r"\[notice\]|ERROR: ResolutionImpossible|To fix this you could try|\d\. (loosen|remove)|WARNING:|hint:"
    r"|note: This error originates|╰─> See above"
)
_CAUSE = re.compile(r"connection broken by ['\"](.+)['\"]: /")


_REFUSED = re.compile(r"Tunnel connection failed: 403|CONNECT tunnel failed, response 403")
REFUSED = (
    "The sandbox has refused a host: packages come from the hosts of the package index, of the requested URL, and "
    "those in 'network.allowedDomains' of the sandbox's settings; builds reach only the latter"
)


class PipError(InstallError):
    """pip has failed; the message is what it said."""

    def __init__(self, reason: str, *, offline: bool):
        super().__init__(reason)
        #: Whether the reason may be that pip could not reach its index.
        self.offline = offline


@dataclass(frozen=True)
class Source:
    """A source that pip has fetched, and without which, built, it can't go on.

    Attributes:
        name: What pip knows it by: a name, a requirement or a URL.
        url: The URL that pip has it from.
        directory: The unpacked source.
        subdirectory: Where the project is in that directory; empty if it is the directory itself.
        origin: Where it is from, as exactly as it is known (PEP 610).
    """

    name: str
    url: str
    directory: str
    subdirectory: str
    origin: dict[str, Any]


class SourceNeeded(Exception):
    """pip can't go on before a source is built."""

    def __init__(self, source: Source):
        super().__init__(source.name)
        self.source = source


@dataclass(frozen=True)
class PipSettings:
    """The user's settings of pip.

    Attributes:
        environment: The settings as variables of pip's environment.
        hosts: The hosts (`name[:port]`) of its indexes.
        paths: The files and directories that they name.
    """

    environment: Mapping[str, str]
    hosts: Sequence[str]
    paths: Sequence[str]


@dataclass(frozen=True)
class Planned:
    """A distribution that pip is going to install, and how to ask for exactly that."""

    name: str
    version: str
    text: str
    requested: bool


@dataclass(frozen=True)
class Pip:
    """Runs pip with a directory of its own.

    Attributes:
        directory: The directory; what pip makes is below it.
        metadata: Holds the metadata of what was installed before.
        settings: The user's settings.
        mode: What it may do with sources.
        variables: The variables of this process that pip gets.
        wrapper: Begins the command line if it is run in a sandbox.
        srt_temporary: The directory for temporary files of the sandbox itself, if it is run in one.
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
        """What `fetch` has installed."""
        return self.directory / "staged"

    async def resolve(self, requirement: str) -> list[Planned]:
        """Returns what has to be installed for a requirement; nothing, if it is met.

        Raises:
            PipError: If that is not possible.
            SourceNeeded: If a source must be built first (mode `fetch`).
        """
        constraints = self.directory / "constraints.txt"
        constraints.write_text("".join(f"{name}=={version}\n" for name, version in closure("ipybox").items()))
        report = self.directory / "report.json"
        arguments = ("--dry-run", f"--report={report}", f"--constraint={constraints}", "--", requirement)
        await self._run("install", *arguments)
        return _parse_report(_read_file(report))

    async def fetch(self, planned: Sequence[Planned]) -> None:
        """Installs exactly what is planned into the directory `staged`.

        Raises:
            PipError: If that is not possible.
            SourceNeeded: If a source must be built first (mode `fetch`).
        """
        arguments = ("--no-warn-script-location", "--no-deps", f"--target={self.staged}", "--")
        await self._run("install", *arguments, *(one.text for one in planned))

    async def collect(self, requirements: Sequence[str], wheels: Path) -> None:
        """Puts wheels for requirements, and for what these require, into a directory.

        Raises:
            PipError: If that is not possible.
            SourceNeeded: If a source must be built first (mode `fetch`).
        """
        await self._run("wheel", f"--wheel-dir={wheels}", "--", *requirements)

    async def build(self, source: Source, wheels: Path) -> Path:
        """Builds a source with the requirements that are in the directory `wheels`, and returns the path of its wheel.

        Only code in a sandbox may open it.

        Raises:
            PipError: If that is not possible; `build_requirements` tells whether one of them may be missing.
        """
        built = self.directory / "built"
        shutil.rmtree(built, ignore_errors=True)
        project = Path(pip_process.SOURCE_COPY, source.subdirectory)
        options = ("--no-deps", "--no-index", f"--find-links={wheels}", f"--wheel-dir={built}")
        await self._run("wheel", *options, "--", f"./{project}", before=[source.directory])
        left = os.listdir(built) if built.is_dir() and not built.is_symlink() else []
        found = [name for name in left if name.endswith(".whl")]
        if len(found) != 1:
            raise PipError(f"the build of {source.name} has left {len(found)} wheels", offline=False)
        return built / found[0]

    def build_requirements(self) -> set[str]:
        """Returns the requirements that the last `build` had, including those that were missing.

        Raises:
            PipError: If they are no requirements: code of the package may have written them.
        """
        try:
            found: object = json.loads(_read_file(self.directory / pip_process.REQUIREMENTS_FILE))
            requirements = {str(Requirement(text)) for text in cast(list[str], found)}
        except FileNotFoundError:
            return set()
        except (OSError, ValueError, TypeError, RecursionError) as exc:
            raise PipError(f"the build has requirements that can't be understood: {exc}", offline=False) from exc
        if len(requirements) > MAX_REQUIREMENTS:
            message = f"the build has too many requirements: {len(requirements)}; the limit is {MAX_REQUIREMENTS}"
            raise PipError(message, offline=False)
        return requirements

    async def _run(self, action: str, *arguments: str, before: Sequence[str] = ()) -> None:
        # Nothing that was built in the sandbox may get into a cache that the host uses.
        cache = (f"--cache-dir={self.directory / 'cache'}",) if self.wrapper else ()
        only = ("--only-binary=:all:",) if self.mode == "wheels" else ()
        options = ("--no-input", "--no-color", "--progress-bar=off", "--disable-pip-version-check")
        words = _command("run", str(self.metadata), self.mode, *before, action, *options, *cache, *only, *arguments)
        needed = self.directory / pip_process.SOURCE_FILE
        needed.unlink(missing_ok=True)
        output = self.directory.with_name(f"{self.directory.name}.log")
        with output.open("wb") as log:
            code = await _run([*self.wrapper, *words], self._environment(), self.directory, log.fileno())
        if code == 0:
            return
        if self.mode == "fetch" and needed.exists():
            raise SourceNeeded(Source(**json.loads(_read_file(needed))))
        raise _failure(output.read_text(errors="replace"), code)

    def _environment(self) -> dict[str, str]:
        temporary = self.directory / "tmp"
        temporary.mkdir(exist_ok=True)
        return {
            **inherited(self.variables),
            **DEFAULTS,
            **self.settings.environment,
            "PIP_CONFIG_FILE": os.devnull,  # the settings are those that were read before
            "PIP_ROOT_USER_ACTION": "ignore",
            "TMPDIR": str(self.srt_temporary or temporary),
            "CLAUDE_CODE_TMPDIR": str(temporary),  # makes it srt's TMPDIR inside
        }


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
        code = await _run(_command("settings"), environment, directory, out.fileno(), err.fileno())
    if code != 0:
        raise _failure(errors.read_text(errors="replace"), code)
    found: dict[str, Any] = json.loads(output.read_text())
    return PipSettings(**found)


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-E", "-P", pip_process.__file__, *arguments]


async def _run(command: Sequence[str], env: Mapping[str, str], cwd: Path, out: int, err: int | None = None) -> int:
    """Runs a command in a session of its own, and ends all of it if nobody waits any more."""
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
        _signal_group(process, signal.SIGTERM)  # srt takes down what it has set up
        with suppress(TimeoutError):
            async with asyncio.timeout(TERMINATE_GRACE):
                await process.wait()
    _signal_group(process, signal.SIGKILL)
    await process.wait()


def _signal_group(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _read_file(path: Path) -> bytes:
    """Returns what is in a file that strangers may have written."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        state = os.fstat(fd)
        if not stat.S_ISREG(state.st_mode) or state.st_size > MAX_REPORT_BYTES:
            raise PipError("pip has written no usable report", offline=False)
        return file.read(MAX_REPORT_BYTES)


def _parse_report(content: bytes) -> list[Planned]:
    try:
        return [_planned(entry) for entry in json.loads(content)["install"]]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as exc:
        raise PipError(f"pip has written a report that is not understood: {exc}", offline=False) from exc


def _planned(entry: dict[str, Any]) -> Planned:
    name, version = str(entry["metadata"]["name"]), str(entry["metadata"]["version"])
    text = f"{name}=={version}"
    if entry["is_direct"]:
        text = pinned_url(entry["download_info"])
    return Planned(canonicalize_name(name, validate=True), version, text, bool(entry["requested"]))


def pinned_url(info: dict[str, Any]) -> str:
    """Returns the URL of what was resolved, as exactly as it is known (PEP 610)."""
    url = str(info["url"])
    if "vcs_info" in info:
        url = f"{info['vcs_info']['vcs']}+{url}@{info['vcs_info']['commit_id']}"
    if "subdirectory" in info:
        url += f"#subdirectory={info['subdirectory']}"
    return url


def _failure(output: str, code: int) -> PipError:
    lines = output.splitlines()
    starts = [index for index, line in enumerate(lines) if line.strip().lower().startswith(("error:", "fatal:"))]
    said = lines[starts[0] :] if starts else lines
    said = [line for line in said if line.strip() and not _NOISE.match(line.strip())]
    # Builds that fail in a process of pip's own are reported twice, once with an indentation.
    reason = list({line.strip(): line.removeprefix("ERROR: ") for line in said}.values())
    reason = reason[:2] + reason[2:][-REPORTED_LINES:]
    causes = [match[1] for line in lines if (match := _CAUSE.search(line))]
    if causes:
        reason.append(f"No connection to the index: {causes[-1]}")
    if _REFUSED.search(output):
        reason.append(REFUSED)
    return PipError("\n".join(reason) or f"pip has ended with code {code}", offline=bool(causes))
