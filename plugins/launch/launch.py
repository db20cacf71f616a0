"""Starts ipybox for a Claude Code plugin, in an environment that is made at the first start of each version.

    launch.py serve plain|sandbox|docker [--OPTION=VALUE ...]
    launch.py notice plain|sandbox|docker

The environment is made of the sources beside this file (`../package`), which came with the plugin, and not of what an
index calls ipybox. It lives in the plugin's data directory:

    envs/<fingerprint>         of the sources and of Python; complete once READY is in it
    envs/<fingerprint>.lock    held exclusively by who makes it, shared by each server that runs from it

The system takes a lock from whoever dies, so a start that is killed half-way leaves what the next one removes and makes
again. The programs that make an environment inherit its lock: while one of them lives, nobody else begins.

It runs on Python's standard library, as there is nothing else yet. stdin and stdout are the client's.
"""

import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NoReturn, cast

HERE = Path(__file__).absolute().parent
PACKAGE = HERE.parent / "package"

#: In an environment that is complete.
READY = "ipybox-ready"

#: Variables that would lead uv, pip or Python to another environment than the one that is made.
FOREIGN = {
    *("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONHOME", "PYTHONPATH"),
    *("UV_PROJECT_ENVIRONMENT", "UV_SYSTEM_PYTHON", "UV_TARGET", "UV_PREFIX"),
    *("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_REQUIRE_VIRTUALENV"),
}

#: Not by the link through which launch.sh may have started it, as that may lead elsewhere some day.
PYTHON = os.path.realpath(sys.executable)

Mode = Literal["plain", "sandbox", "docker"]

NAMES: dict[Mode, str] = {"plain": "codeact-default", "sandbox": "codeact-sandbox", "docker": "codeact-docker"}


class LaunchError(Exception):
    """ipybox can't be started; the message says what to do."""


def main(arguments: list[str]) -> None:
    """Serves in place of this process, or prints a notice; exits with 1 and a message if that is impossible."""
    what, given, *options = arguments
    mode = cast(Mode, given)  # from the plugin's own manifests
    workspace = Path(os.environ["CLAUDE_PROJECT_DIR"])
    signal.signal(signal.SIGTERM, terminated)
    sys.path.insert(0, str(PACKAGE))
    distrust(workspace)
    try:
        if what == "notice":
            notice(mode, workspace)
        else:
            serve(mode, workspace, options)
    except LaunchError as exc:
        sys.exit(f"ipybox: {exc}")
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def distrust(workspace: Path) -> None:
    """Has this process, and all that it becomes, run no program of the workspace that PATH may lead to."""
    from ipybox.workspace.programs import host_path
    from ipybox.workspace.writable import WritablePlaces

    os.environ["PATH"] = host_path(WritablePlaces(workspace))


def terminated(*_: object) -> NoReturn:
    """Exits as what is told to, having ended the program that makes the environment."""
    sys.exit(128 + signal.SIGTERM)


def notice(mode: Mode, workspace: Path) -> None:
    """Prints two lines on what keeps ipybox from working, for the session; nothing if it works."""
    sys.path.insert(0, str(PACKAGE))
    from ipybox.diagnosis import PluginWorkspace, session_notice

    if image := os.environ.get("CLAUDE_PLUGIN_OPTION_IMAGE"):
        os.environ["IPYBOX_IMAGE"] = image
    name = NAMES[mode]
    place = place_of_environment(Path(os.environ["CLAUDE_PLUGIN_DATA"]))
    policy = os.environ.get("CLAUDE_PLUGIN_OPTION_APPROVE", "auto")
    user_settings = PluginWorkspace(
        path=workspace.resolve(),
        profile=os.environ.get("CLAUDE_PLUGIN_OPTION_SANDBOX_PROFILE") or "default",
        policy=workspace / policy if policy not in ("", "auto", "ask") else None,
        # In Docker mode, there is no environment on the host.
        program=["uvx", "--from", str(PACKAGE), "ipybox"] if mode == "docker" else [str(place / "bin" / "ipybox")],
    )
    if (text := session_notice(mode, name, user_settings)) is not None:
        print(text)
    elif mode != "docker" and not (place / READY).exists():
        print(f"{name} sets up its environment, once for this version, which takes up to a minute.")
        print("If its tools are missing, tell the user that they come with that: see /mcp, or start a session then.")


def serve(mode: Mode, workspace: Path, options: list[str]) -> NoReturn:
    """Becomes the MCP server, once its environment is there.

    Raises:
        LaunchError: It can't be made.
    """
    if mode == "docker":
        serve_from_container(workspace, options)
    python = environment(Path(os.environ["CLAUDE_PLUGIN_DATA"]))
    # Isolated: neither the workspace, which is the working directory, nor PYTHON… variables name modules.
    os.execv(python, [str(python), "-I", "-m", "ipybox", *server_options(mode, workspace, options)])


def serve_from_container(workspace: Path, options: list[str]) -> NoReturn:
    """Becomes the client of a container, for which there need be no environment here."""
    sys.path.insert(0, str(PACKAGE))
    from ipybox.docker.command import run
    from ipybox.docker.options import parser

    asked = parser().parse_args(server_options("docker", workspace, options))
    asked.allowed_dir = []  # Claude Code sees the workspace: tools that transfer files would only cost context
    run(asked)


def server_options(mode: Mode, workspace: Path, options: list[str]) -> list[str]:
    """Returns the options of ipybox: those that the user has set, and that it looks for settings of the workspace."""
    # The plugin's skill says the rest.
    given = ["--instructions=brief", *(in_workspace(option, workspace) for option in options if option[-1] != "=")]
    if mode != "docker":
        given = ["--late-checks", *given]
    if mode == "sandbox":
        given = ["--sandbox", "--workspace-config", *given]
    return [f"--workspace={workspace}", *given]


def in_workspace(option: str, workspace: Path) -> str:
    """Returns an option as ipybox takes it: relative paths mean the workspace, in which the launcher does not run."""
    name, _, value = option.partition("=")
    return f"{name}={workspace / value}" if name == "--approve" and value not in ("auto", "ask") else option


def environment(data: Path) -> Path:
    """Returns the Python of the environment of this version, which is made if need be.

    The lock that keeps others from removing it is inherited by whatever this process becomes.

    Raises:
        LaunchError: It can't be made.
    """
    place = place_of_environment(data)
    place.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(f"{place}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_SH)
    while not (place / READY).exists():
        with exclusive(lock):
            if not (place / READY).exists():
                make(place, lock)
                remember_python(data)
                remove_others(place)
    os.set_inheritable(lock, True)
    return place / "bin" / "python"


def place_of_environment(data: Path) -> Path:
    """Returns where the environment of this version is, or will be."""
    return data / "envs" / fingerprint()


def fingerprint() -> str:
    """Returns what changes with the sources and with Python."""
    digest = hashlib.sha256(f"{PYTHON} {sys.version}".encode())
    for path in sorted(path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        content = path.read_bytes()
        digest.update(f"\0{path.relative_to(PACKAGE)}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


@contextmanager
def exclusive(lock: int) -> Generator[None]:
    """Holds the lock exclusively, and shared afterwards."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("waits for another start that sets up the environment")
        fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(lock, fcntl.LOCK_SH)


def make(place: Path, lock: int) -> None:
    """Makes the environment, whose lock is held exclusively: with uv, and if that fails, with pip alone."""
    say(f"sets up its environment, once for this version: {place}")
    python = str(place / "bin" / "python")
    wanted = ["--constraint", str(PACKAGE / "constraints.txt"), str(PACKAGE)]
    try:
        uv = shutil.which("uv")
        if uv is None:
            # pip gets uv, and uv the rest, in a third of the time that pip needs for all.
            make_venv(place, lock)
            pip_install(place, lock, *wanted[:2], "uv")
            uv = str(place / "bin" / "uv")
        else:
            run(lock, uv, "venv", "--quiet", "--clear", "--no-project", "--python", PYTHON, str(place))
        run(lock, uv, "pip", "install", "--compile-bytecode", "--python", python, *wanted)
    except LaunchError as exc:
        # uv has its own ways to an index and its own certificates, which companies' networks may not suit.
        say(f"goes on with venv and pip: {exc}")
        make_venv(place, lock)
        pip_install(place, lock, *wanted)
    (place / READY).touch()
    say("has set up its environment")


def make_venv(place: Path, lock: int) -> None:
    """Makes an environment that has pip, in place of what is there."""
    lacks = "if Python lacks venv, install uv (`pip install uv`), or on Debian `apt-get install python3-venv`"
    run(lock, PYTHON, "-I", "-m", "venv", "--clear", str(place), hint=lacks)


def pip_install(place: Path, lock: int, *wanted: str) -> None:
    """Installs packages by the environment's own pip."""
    python = str(place / "bin" / "python")
    run(lock, python, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", *wanted)


def run(lock: int, *command: str, hint: str = "see above; the next start tries again") -> None:
    """Runs a program that has the lock, too, and writes to stderr only."""
    env = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    status = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno(), env=env, pass_fds=[lock], check=False
    ).returncode
    if status:
        program = f"{Path(command[0]).name} {command[1]}"
        raise LaunchError(f"can't set up the environment, `{program}` exited with {status}: {hint}")


def remember_python(data: Path) -> None:
    """Leaves a link to this Python for launch.sh."""
    link = data / "python"
    new = data / f"python.{os.getpid()}"
    new.unlink(missing_ok=True)
    new.symlink_to(PYTHON)
    new.replace(link)


def remove_others(place: Path) -> None:
    """Removes the environments of other versions that no server runs from. Their locks stay: others may wait there."""
    for other in place.parent.iterdir():
        if other == place or other.suffix == ".lock":
            continue
        lock = os.open(f"{other}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(other, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)


def say(what: str) -> None:
    """Tells people who look at the server's log."""
    print(f"ipybox {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
