"""The plugins' Python environments: each contains one version of ipybox and the packages that it needs.

They are in the user's data directory (`XDG_DATA_HOME`, or `~/.local/share`), shared by all plugins and versions:

    ipybox/environments/<key>        the environment for one Python, requirements file and set of ipybox sources
    ipybox/environments/<key>.log    the output of the programs that built it
    ipybox/environments/ipybox       a program for people: the most recently started version of ipybox

A complete environment contains the file READY. uv links its packages from uv's cache, so the environment of a new
version takes little space.

Locks are in the state directory, which every sandbox hides (`ipybox.support.state.environment_locks`). The process that
builds an environment holds its lock, as do the programs it runs. Running servers share the lock, so the environment
can't be removed. The system releases the lock of a process that dies, so the next build starts over.
"""

import fcntl
import hashlib
import os
import re
import shlex
import shutil
import ssl
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ipybox.support.state import data_dir, environment_locks, make_directory, state_dir, unwritable

HERE = Path(__file__).absolute().parent
PACKAGE = HERE.parent / "package"
REQUIREMENTS = HERE / "requirements.txt"

#: A file in each complete environment.
READY = "ipybox-ready"

#: Increment this when the module builds the same requirements differently.
LAYOUT = 2

#: Seconds between two polls of a build, and between two reports on it.
PAUSE = 0.1
REPORT_PAUSE = 1.0

#: Time limit for each program of a build, in seconds.
STEP_TIMEOUT = 1800.0

#: Seconds since its last start after which an environment may be removed. Plugins may have different versions.
KEPT = 7 * 86400.0

#: Variables that would point uv, pip or Python to another environment.
FOREIGN = {
    *("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONHOME", "PYTHONPATH"),
    *("UV_PROJECT_ENVIRONMENT", "UV_SYSTEM_PYTHON", "UV_TARGET", "UV_PREFIX", "UV_PROJECT", "UV_WORKING_DIR"),
    *("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_REQUIRE_VIRTUALENV"),
}

#: Where pip says why it can't reach an index; uv says why in its last line, after a line with one of these.
BROKEN_CONNECTION = re.compile(r"after connection broken by '(.*)': ")
FAILED_REQUEST = re.compile(r"Request failed after|Failed to fetch")

#: With links resolved, because their targets may change.
PYTHON = os.path.realpath(sys.executable)

SITE_PACKAGES = Path("lib", f"python{sys.version_info.major}.{sys.version_info.minor}", "site-packages")


class LaunchError(Exception):
    """ipybox can't be started; the message says what to do."""


@dataclass(frozen=True)
class Environment:
    """An environment for one version of ipybox, built or not."""

    directory: Path

    @classmethod
    def here(cls) -> "Environment":
        """Returns the environment for this Python and the sources next to this file."""
        digest = hashlib.sha256(f"{LAYOUT} {PYTHON} {sys.version} ".encode())
        sources = (path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        for path in (REQUIREMENTS, *sorted(sources)):
            content = path.read_bytes()
            digest.update(f"\0{path.relative_to(HERE.parent)}\0{len(content)}\0".encode())
            digest.update(content)
        return cls(data_dir() / "environments" / digest.hexdigest()[:16])

    @property
    def python(self) -> Path:
        """The Python that can import ipybox."""
        return self.directory / "bin" / "python"

    @property
    def log(self) -> Path:
        """The output of the programs that built it."""
        return self.directory.with_name(f"{self.directory.name}.log")

    @property
    def ready(self) -> bool:
        """Whether it is complete."""
        return (self.directory / READY).exists()

    @property
    def command(self) -> Path:
        """The program `ipybox` for people, whose path is the same for all versions."""
        return self.directory.with_name("ipybox")

    def publish(self) -> None:
        """Makes `command` run this version."""
        new = self.directory.with_name(f"ipybox.{os.getpid()}")
        with suppress(OSError):  # the server can run without it
            new.write_text(f'#!/bin/sh\nexec {shlex.quote(str(self.python))} -I -m ipybox "$@"\n')
            new.chmod(0o755)
            new.replace(self.command)

    def claim(self) -> bool:
        """Returns whether it is complete; if so, it can't be removed while this process, or its successor, runs."""
        if not self.ready:
            return False
        lock = self.open_lock()
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            os.utime(self.directory / READY)
        except (BlockingIOError, FileNotFoundError):  # another process is removing it
            os.close(lock)
            return False
        os.set_inheritable(lock, True)
        return True

    def open_lock(self) -> int:
        """Opens its lock file, and creates it if needed.

        Raises:
            LaunchError: If that fails; the message says which variable to set.
        """
        lock = environment_locks(self.directory.name) / "lock"
        try:
            make_directory(state_dir())
            make_directory(lock.parent)
        except OSError as exc:
            raise LaunchError(str(exc)) from exc
        try:
            return os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as exc:
            raise LaunchError(unwritable(lock, exc.strerror)) from exc

    def progress(self) -> str:
        """Returns the progress of a build, for people: the last line of the log."""
        lines = [line for line in self.log_lines() if not line.startswith("+ ")]
        return f"installing packages: {lines[-1]}" if lines else "installing packages"

    def log_lines(self, start: int = 0) -> list[str]:
        """Returns the nonblank lines of the log from a byte position."""
        if not self.log.exists():
            return []
        lines = self.log.read_bytes()[start:].decode(errors="replace").splitlines()
        return [line.strip() for line in lines if line.strip()]

    def obtain(self, report: Callable[[str], None]) -> None:
        """Claims it, and builds it if needed. The build continues if this process ends.

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
        lock = self.open_lock()
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with self.log.open("wb") as log:
                return subprocess.Popen(
                    [PYTHON, "-I", "-S", "-B", str(HERE / "launch.py"), "build", str(lock)],
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
        if status < 0:
            reason = f"the build was killed by signal {-status}"
        else:
            reason = [f"the build exited with status {status}", *self.log_lines()][-1]
        return (
            f"ipybox can't set up its environment: {reason}. See {self.log} for details. The next call will try again"
        )


def build(environment: Environment, lock: int) -> None:
    """Builds an environment unless it is complete. The caller holds the lock, which the build's programs inherit.

    Raises:
        LaunchError: If a program fails.
        OSError: If there is no space, for example.
    """
    if not environment.ready:
        _install_packages(environment, lock)
        install_ipybox(environment)
        (environment.directory / READY).touch()
    fcntl.flock(lock, fcntl.LOCK_SH)  # servers can start now
    remove_unused(environment)


def _install_packages(environment: Environment, lock: int) -> None:
    """Creates the environment with uv or, if that is missing, with venv and pip, which take longer."""
    directory, python, uv = str(environment.directory), str(environment.python), shutil.which("uv")
    if uv is not None:
        _run(environment, lock, uv, "venv", "--quiet", "--clear", "--no-project", "--python", PYTHON, directory)
        install = [uv, "pip", "install", "--compile-bytecode", "--python", python]
    else:
        try:
            _run(environment, lock, PYTHON, "-I", "-m", "venv", "--clear", directory)
        except LaunchError as exc:
            lacks = "if Python lacks venv, install uv, or on Debian run `apt-get install python3-venv` as root"
            raise LaunchError(f"{exc} ({lacks})") from exc
        install = [python, "-I", "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    _run(environment, lock, *install, "--no-deps", "--requirement", str(REQUIREMENTS))


def _run(environment: Environment, lock: int, *command: str) -> None:
    """Runs a program that inherits the lock and writes to the log."""
    env = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    if ssl.get_default_verify_paths().cafile and "UV_NATIVE_TLS" not in env:
        env.setdefault("UV_SYSTEM_CERTS", "1")  # as pip does: companies add the certificate of their proxy there
    words = command[1:4] if command[1] == "-I" else command[1:3]
    name = " ".join([Path(command[0]).name, *(word for word in words if not word.startswith("-") or word == "-m")])
    start = environment.log.stat().st_size if environment.log.exists() else 0
    try:
        status = subprocess.run(
            command, stdin=subprocess.DEVNULL, env=env, pass_fds=[lock], timeout=STEP_TIMEOUT, check=False
        ).returncode
    except subprocess.TimeoutExpired:
        raise LaunchError(f"`{name}` did not finish within {STEP_TIMEOUT:g} s") from None
    except OSError as exc:
        raise LaunchError(f"`{name}` can't be started ({exc.strerror})") from exc
    if status:
        raise LaunchError(f"`{name}` {_reason(status, environment.log_lines(start))}")


def _reason(status: int, log_lines: list[str]) -> str:
    """Returns why a program failed, from its output."""
    error = ["no output", *log_lines[-1:], *(line for line in log_lines if "error" in line.lower())][-1]
    broken = [found[1] for line in log_lines if (found := BROKEN_CONNECTION.search(line))]
    if broken and "No matching distribution" in error:
        reason = re.sub("<[^<>]*>: ", "", broken[-1])
    elif any(map(FAILED_REQUEST.search, log_lines)):
        reason = log_lines[-1].removeprefix("cause: ")
    else:
        return f"exited with status {status}: {error}"
    return (
        f"can't reach the package index ({reason}): check the network, and behind a proxy, set HTTPS_PROXY before you "
        "start Claude Code"
    )


def install_ipybox(environment: Environment) -> None:
    """Copies ipybox next to its packages and compiles it, because sandboxed code can't write there later."""
    site = environment.directory / SITE_PACKAGES
    shutil.copytree(PACKAGE / "ipybox", site / "ipybox", ignore=shutil.ignore_patterns("__pycache__"))
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    information = site / f"ipybox-{project['version']}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: ipybox\nVersion: {project['version']}\n"
        + "".join(f"Requires-Dist: {need}\n" for need in project["dependencies"])
    )
    command = [str(environment.python), "-I", "-m", "compileall", "-q", "-j", "0", str(site / "ipybox")]
    subprocess.run(command, stdin=subprocess.DEVNULL, timeout=STEP_TIMEOUT, check=False)


def remove_unused(current: Environment) -> None:
    """Removes environments that have not been started for a while and that no process is building or running."""
    for directory in current.directory.parent.iterdir():
        environment = Environment(directory)
        if environment == current or not directory.is_dir():
            continue
        with suppress(OSError, LaunchError):  # in use, or removed already
            lock = environment.open_lock()
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                used = (directory / READY if environment.ready else directory).stat().st_mtime
                if time.time() - used > KEPT:
                    shutil.rmtree(directory)
            finally:
                os.close(lock)
