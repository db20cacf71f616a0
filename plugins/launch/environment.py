"""The environments of the plugins: the packages that ipybox needs, and the versions of ipybox that run with them.

They are in the user's data directory (`XDG_DATA_HOME`, or `~/.local/share`), for all plugins and all their versions:

    ipybox/environments/<key>                     packages; the key is of requirements.txt and of Python
    ipybox/environments/<key>/versions/<digest>   ipybox, as the plugin brings it; the digest is of its files
    ipybox/environments/ipybox                    a program for people: ipybox of the version that was started last
    ipybox/environments/<key>.log                 the output of the programs that built it

Both are virtual environments. A version finds the packages by a path file. Complete ones contain the file READY.

Locks are in the state directory, which no sandbox shows to code (`ipybox.support.state.environment_locks`):

    build       held by the process that builds an environment, and by the programs it runs
    <digest>    shared by the servers of a version while they run, so that no process removes it

The system takes a lock from a process that dies, so the next build continues the work of a killed one.
"""

import fcntl
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ipybox.support.state import data_dir, environment_locks, make_directory, state_dir, unwritable

HERE = Path(__file__).absolute().parent
PACKAGE = HERE.parent / "package"
REQUIREMENTS = HERE / "requirements.txt"

#: A file in each complete environment and version.
READY = "ipybox-ready"

#: Changes when this module builds the same requirements differently.
LAYOUT = 1

#: Seconds between two polls of a build, and between two reports on it.
PAUSE = 0.1
REPORT_PAUSE = 1.0

#: Seconds that one program of a build may take.
STEP_TIMEOUT = 600.0

#: Packages that one program installs: few enough for people to see progress.
STEP = 20

#: Seconds since its last start after which a version may be removed. Plugins may be of different versions.
KEPT = 7 * 86400.0

#: Variables that would lead uv, pip or Python to another environment.
FOREIGN = {
    *("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONHOME", "PYTHONPATH"),
    *("UV_PROJECT_ENVIRONMENT", "UV_SYSTEM_PYTHON", "UV_TARGET", "UV_PREFIX", "UV_PROJECT", "UV_WORKING_DIR"),
    *("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_REQUIRE_VIRTUALENV"),
}

#: Why pip could not reach an index, which its last line does not say.
BROKEN_CONNECTION = re.compile(r"after connection broken by '(.*)': ")

#: Without links, which may lead elsewhere later.
PYTHON = os.path.realpath(sys.executable)

SITE_PACKAGES = Path("lib", f"python{sys.version_info.major}.{sys.version_info.minor}", "site-packages")


class LaunchError(Exception):
    """ipybox can't be started; the message says what to do."""


@dataclass(frozen=True)
class Environment:
    """The environment of this version of ipybox, built or not.

    Attributes:
        directory: The directory of the packages.
    """

    directory: Path

    @classmethod
    def here(cls) -> "Environment":
        """Returns the environment of this Python and of the sources next to this file."""
        content = f"{LAYOUT} {PYTHON} {sys.version} ".encode() + REQUIREMENTS.read_bytes()
        return cls(data_dir() / "environments" / hashlib.sha256(content).hexdigest()[:16])

    @cached_property
    def version(self) -> Path:
        """The directory of ipybox."""
        digest = hashlib.sha256()
        for path in _sources():
            content = path.read_bytes()
            digest.update(f"\0{path.relative_to(PACKAGE)}\0{len(content)}\0".encode())
            digest.update(content)
        return self.directory / "versions" / digest.hexdigest()[:16]

    @property
    def python(self) -> Path:
        """The Python that can import ipybox."""
        return self.version / "bin" / "python"

    @property
    def log(self) -> Path:
        """The log of the programs that built it."""
        return self.directory.with_name(f"{self.directory.name}.log")

    @property
    def ready(self) -> bool:
        """Whether it is complete."""
        return (self.version / READY).exists()

    @property
    def command(self) -> Path:
        """The program `ipybox` for people, whose path stays the same for all versions."""
        return self.directory.parent / "ipybox"

    def publish(self) -> None:
        """Makes `command` run this version."""
        script = f'#!/bin/sh\nexec {shlex.quote(str(self.python))} -I -m ipybox "$@"\n'
        with suppress(OSError):  # the server can run without it
            if self.command.exists() and self.command.read_text() == script:
                return
            new = self.command.with_name(f"ipybox.{os.getpid()}")
            new.write_text(script)
            new.chmod(0o755)
            new.replace(self.command)

    def claim(self) -> bool:
        """Returns whether it is complete; if so, this process and its successor keep it from being removed."""
        if not self.ready:
            return False
        try:
            lock = _open_lock(self.version)
        except OSError:  # the build reports why
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            os.utime(self.version / READY)
        except (BlockingIOError, FileNotFoundError):  # another process is removing it
            os.close(lock)
            return False
        os.set_inheritable(lock, True)
        return True

    def progress(self) -> str:
        """Returns the progress of a build, for people."""
        wanted = requirements()
        installed = len(list((self.directory / SITE_PACKAGES).glob("*.dist-info")))
        if installed >= len(wanted):
            return "installing ipybox"
        return f"installing {installed} of {len(wanted)} packages"

    def obtain(self, report: Callable[[str], None]) -> None:
        """Claims it, and builds it if needed. The build goes on if this process ends.

        Args:
            report: Receives the progress, about once a second.

        Raises:
            LaunchError: If it can't be built.
        """
        builder: subprocess.Popen[bytes] | None = None
        next_report = 0.0
        while not self.claim():
            if builder is None:
                builder = self._start_build()
            elif (status := builder.poll()) is not None:
                builder = None
                if status != 0:
                    raise LaunchError(self._failure(status))
                continue
            if time.monotonic() >= next_report:
                report(self.progress())
                next_report = time.monotonic() + REPORT_PAUSE
            time.sleep(PAUSE)

    def _start_build(self) -> "subprocess.Popen[bytes] | None":
        """Starts to build it, unless another process does."""
        try:
            self.directory.parent.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise LaunchError(unwritable(self.directory.parent, exc.strerror)) from exc
        try:
            lock = _open_lock(self.directory)
        except OSError as exc:
            raise LaunchError(str(exc)) from exc
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with self.log.open("wb") as log:
                return subprocess.Popen(
                    [PYTHON, "-I", "-S", "-B", str(HERE / "build.py"), str(lock)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=[lock],
                    start_new_session=True,
                )
        except BlockingIOError:
            return None
        except OSError as exc:
            raise LaunchError(unwritable(self.directory.parent, exc.strerror)) from exc
        finally:
            os.close(lock)

    def _failure(self, status: int) -> str:
        said = self.log.read_text(errors="replace").split("\n") if self.log.exists() else []
        reasons = [line for line in said if line.strip()]
        if status < 0:
            reason = f"the build was killed by signal {-status}"
        else:
            reason = reasons[-1] if reasons else f"the build exited with status {status}"
        return (
            f"ipybox can't set up its environment: {reason}. See {self.log} for details. The next call will try again"
        )


def requirements() -> list[str]:
    """Returns the packages of requirements.txt that are for this system."""
    lines = [line for line in REQUIREMENTS.read_text().splitlines() if line and not line.startswith("#")]
    return [line for line in lines if " ; " not in line or line.endswith(f"'{sys.platform}'")]


def build(environment: Environment, lock: int) -> None:
    """Builds its missing parts. The lock is held, and inherited by the programs that this runs.

    Raises:
        LaunchError: If that is impossible.
        OSError: If there is no space, for example.
    """
    directory = environment.directory
    if not (directory / READY).exists():
        _install_packages(directory, lock)
        (directory / READY).touch()
    if not environment.ready:
        _install_version(environment)
    remove_unused(environment)


def _install_packages(directory: Path, lock: int) -> None:
    """Creates the environment: with uv, or if uv is missing or fails, with venv and pip."""
    python = str(directory / "bin" / "python")
    uv = shutil.which("uv")
    try:
        if uv is None:
            # pip installs uv, and uv the rest, in a third of the time that pip needs for all.
            _make_venv(lock, directory)
            _pip_install(lock, directory, "--target", str(directory / "uv"), "uv")
            uv = str(directory / "uv" / "bin" / "uv")
        else:
            _run(lock, uv, "venv", "--quiet", "--clear", "--no-project", "--python", PYTHON, str(directory))
        for wanted in _steps():
            _run(lock, uv, "pip", "install", "--no-deps", "--compile-bytecode", "--python", python, *wanted)
        shutil.rmtree(directory / "uv", ignore_errors=True)
    except LaunchError as exc:
        # uv has its own index settings and certificates, which may not work in companies' networks.
        print(f"ipybox is falling back to venv and pip: {exc}", flush=True)
        _make_venv(lock, directory)
        for wanted in _steps():
            _pip_install(lock, directory, *wanted)


def _make_venv(lock: int, directory: Path) -> None:
    """Creates an environment with pip, and replaces an existing one."""
    try:
        _run(lock, PYTHON, "-I", "-m", "venv", "--clear", str(directory))
    except LaunchError as exc:
        lacks = "if Python lacks venv, install uv, or on Debian run `apt-get install python3-venv` as root"
        raise LaunchError(f"{exc} ({lacks})") from exc


def _pip_install(lock: int, directory: Path, *wanted: str) -> None:
    """Installs packages by the environment's own pip."""
    pip = (str(directory / "bin" / "python"), "-I", "-m", "pip", "install", "--no-input", "--disable-pip-version-check")
    _run(lock, *pip, "--no-deps", *wanted)


def _steps() -> Iterator[list[str]]:
    wanted = [line.partition(" ; ")[0] for line in requirements()]
    for start in range(0, len(wanted), STEP):
        yield wanted[start : start + STEP]


def _run(lock: int, *command: str) -> None:
    """Runs a program that has the lock, too, and writes to the log."""
    env = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    words = list(command[1:4] if command[1] == "-I" else command[1:3])
    name = " ".join([Path(command[0]).name, *(word for word in words if not word.startswith("-") or word == "-m")])
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
            pass_fds=[lock],
            timeout=STEP_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LaunchError(f"`{name}` did not finish within {STEP_TIMEOUT:g} s") from None
    except OSError as exc:
        raise LaunchError(f"`{name}` can't be started ({exc.strerror})") from exc
    sys.stdout.buffer.write(done.stdout)
    sys.stdout.flush()
    if done.returncode:
        raise LaunchError(f"`{name}` {_reason(done)}")


def _reason(done: "subprocess.CompletedProcess[bytes]") -> str:
    """Returns why a program failed, from its output."""
    said = [line.strip() for line in done.stdout.decode(errors="replace").splitlines() if line.strip()]
    errors = [line for line in said if "error" in line.lower()] or said[-1:]
    broken = [found[1] for line in said if (found := BROKEN_CONNECTION.search(line))]
    if broken and "No matching distribution" in errors[-1]:
        return (
            f"can't reach the package index ({re.sub('<[^<>]*>: ', '', broken[-1])}): check the network, and behind a "
            "proxy, set HTTPS_PROXY before you start Claude Code"
        )
    return f"exited with status {done.returncode}: {' '.join(errors[-1:])}"


def _install_version(environment: Environment) -> None:
    """Installs ipybox next to its packages, compiled, because sandboxed code can't write there later."""
    place = environment.version
    shutil.rmtree(place, ignore_errors=True)
    site = place / SITE_PACKAGES
    for path in _sources():
        if path.is_relative_to(PACKAGE / "ipybox"):
            target = site / path.relative_to(PACKAGE)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    (site / "packages.pth").write_text(f"{environment.directory / SITE_PACKAGES}\n")
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    information = site / f"ipybox-{project['version']}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: ipybox\nVersion: {project['version']}\n"
        + "".join(f"Requires-Dist: {need}\n" for need in project["dependencies"])
    )
    (place / "bin").mkdir()
    environment.python.symlink_to(PYTHON)
    script = place / "bin" / "ipybox"
    script.write_text('#!/bin/sh\nexec "$(dirname "$0")/python" -I -m ipybox "$@"\n')
    script.chmod(0o755)
    version = sysconfig.get_config_var("py_version")
    (place / "pyvenv.cfg").write_text(
        f"home = {Path(PYTHON).parent}\ninclude-system-site-packages = false\nversion = {version}\n"
    )
    command = [str(environment.python), "-I", "-m", "compileall", "-q", "-j", "0", str(site / "ipybox")]
    subprocess.run(command, stdin=subprocess.DEVNULL, timeout=STEP_TIMEOUT, check=False)
    (place / READY).touch()


def remove_unused(current: Environment) -> None:
    """Removes versions that were not started for a while, and environments without versions."""
    for directory in current.directory.parent.iterdir():
        if not directory.is_dir():
            continue
        for version in (directory / "versions").glob("*"):
            if version != current.version:
                _remove_version(version)
        if directory != current.directory and not any((directory / "versions").glob("*")):
            _remove_environment(directory)


def _remove_version(version: Path) -> None:
    with suppress(OSError):  # in use, or removed already
        lock = _open_lock(version)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if time.time() - (version / READY).stat().st_mtime > KEPT:
                shutil.rmtree(version)
        finally:
            os.close(lock)


def _remove_environment(directory: Path) -> None:
    """Removes an environment that no process builds. Its lock stays: others may wait there."""
    with suppress(OSError):
        lock = _open_lock(directory)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory)
        finally:
            os.close(lock)


def _open_lock(place: Path) -> int:
    """Opens the lock of an environment, or of one of its versions, and creates it if needed.

    Raises:
        OSError: If it can't be created; the message says which variable to set.
    """
    is_version = place.parent.name == "versions"
    directory = environment_locks((place.parents[1] if is_version else place).name)
    make_directory(state_dir())
    make_directory(directory)
    lock = directory / (place.name if is_version else "build")
    try:
        return os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as exc:
        raise OSError(unwritable(lock, exc.strerror)) from exc


def _sources() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
