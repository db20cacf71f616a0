"""The container: its privileges and mounts.

It mounts two host directories: the workspace, and a state directory for ipybox's keys, registrations and caches, which
must outlive containers. The state directory isn't in the workspace, because a cloned repository could plant files
there, even keys that its author knows. Containers with and without a sandbox use separate state directories, because
code without a sandbox can write the state.
"""

import csv
import io
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ipybox.docker.engine import DockerError, Engine
from ipybox.support.state import record_confined_code, workspace_state_dir
from ipybox.support.way_in import PLUGIN_VARIABLE

#: Path of the workspace in the container.
WORKSPACE = "/app/workspace"

#: Bytes of memory for ipybox and the MCP servers, in addition to the code's limit.
MEMORY_BESIDE_CODE = 1 << 30

#: Home of the container's user. Like /tmp, it is discarded with the container.
HOME = "/home/ipybox"

#: Path of ipybox's state in the container; see XDG_STATE_HOME in the Dockerfile.
STATE = "/app/state"
#: Scratch directories for sockets, which Docker Desktop's file systems don't support.
SCRATCH = f"{STATE}/ipybox-scratch"

#: Limit of processes and threads in the container; some numerical libraries start a thread per processor.
PIDS_LIMIT = 1024

#: `docker create` reads the system call filter from here, so no temporary file is needed.
PROFILE_FILE = "/dev/stdin"

#: Label of ipybox's containers. Its value is the workspace.
LABEL = "ipybox.workspace"


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options for running the container."""

    #: The host directory to mount as the workspace.
    workspace: Path
    image: str
    #: A Docker network, such as `none`; by default, Docker's default network.
    network: str | None = None
    #: Names of environment variables to pass to the container and its MCP servers.
    env: Sequence[str] = ()
    #: Memory limit for code in bytes; 0 for no limit, None for half of the machine's memory.
    memory_limit: int | None = None
    #: Whether to isolate code from the MCP servers and their secrets in the container.
    sandbox: bool = False
    #: Arguments for ipybox in the container.
    passed_on: Sequence[str] = ()


def create_command(options: Options, engine: Engine) -> list[str]:
    """Returns the command that creates the container and prints its id. With a sandbox, it reads `seccomp.profile`.

    When stdin closes or the attached client exits, ipybox exits, the container stops, and Docker removes it.
    """
    uid, gid = _user(options, engine)
    if options.sandbox and uid == 0:
        whose = "Docker is rootless" if engine.rootless else f"root owns the workspace {options.workspace}"
        raise DockerError(f"--sandbox needs a container that does not run as root, but {whose}: remove --sandbox")
    code = engine.memory // 2 if options.memory_limit is None else options.memory_limit
    container = min(code + MEMORY_BESIDE_CODE, engine.memory) if code else 0
    # If set, messages refer to plugin options instead of command line options (`ipybox.support.way_in`).
    way_in = [PLUGIN_VARIABLE] if PLUGIN_VARIABLE in os.environ else []
    return [
        *(engine.program, "create", "--pull", "never", "--rm", "--init"),
        *("--interactive", "--attach", "stdin", "--attach", "stdout", "--attach", "stderr"),
        *("--name", f"ipybox-{secrets.token_hex(4)}", "--label", f"{LABEL}={options.workspace}"),
        # Docker must not log the MCP messages.
        *("--log-driver", "none"),
        *("--user", f"{uid}:{gid}", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *(_permit_sandbox(engine) if options.sandbox else ()),
        "--read-only",
        *("--tmpfs", "/tmp:rw,exec,nosuid,nodev,mode=1777"),
        *("--tmpfs", f"{HOME}:rw,exec,nosuid,nodev,mode=0700,uid={uid},gid={gid}"),
        # Unlike --volume, --mount doesn't create a missing directory.
        *("--mount", _fields("type=bind", f"source={options.workspace}", f"target={WORKSPACE}")),
        *("--mount", _fields("type=bind", f"source={_state(options, uid, gid)}", f"target={STATE}")),
        *("--tmpfs", f"{SCRATCH}:rw,exec,nosuid,nodev,mode=0700,uid={uid},gid={gid}"),
        *("--pids-limit", str(PIDS_LIMIT)),
        # The limit including swap is the same, so there is no swap.
        *(("--memory", str(container), "--memory-swap", str(container)) if container else ()),
        *(("--network", options.network) if options.network else ()),
        # By name only: Docker reads the values from its environment.
        *(argument for name in (*options.env, *way_in) for argument in ("--env", name)),
        options.image,
        *([f"--memory-limit={code}"] if code else []),
        *(["--sandbox"] if options.sandbox else []),
        *options.passed_on,
    ]


def _user(options: Options, engine: Engine) -> tuple[int, int]:
    """Returns the user and group ids that make the caller own the container's files."""
    if engine.rootless:
        return 0, 0  # root in the container is the caller on the host; other ids don't exist there
    uid, gid = os.geteuid(), os.getegid()
    if uid != 0:
        return uid, gid
    # Root without capabilities can't write other users' files, and would leave files that they can't write.
    owner = options.workspace.stat()
    return owner.st_uid, owner.st_gid


def _state(options: Options, uid: int, gid: int) -> Path:
    try:
        record_confined_code(options.workspace)
        directory = workspace_state_dir(options.workspace) / ("docker-sandbox" if options.sandbox else "docker")
        directory.mkdir(mode=0o700, exist_ok=True)
        if os.geteuid() == 0:
            os.chown(directory, uid, gid)
    except OSError as exc:
        raise DockerError(f"can't create the directory for the container's state: {exc}") from exc
    return directory


def _permit_sandbox(engine: Engine) -> list[str]:
    """Returns the options that bubblewrap needs to create namespaces, mount in them, and mount its own /proc."""
    granted = [f"seccomp={PROFILE_FILE}", "systempaths=unconfined"]
    if engine.apparmor:  # its container profile forbids all mounts
        granted.append("apparmor=unconfined")
    return [argument for option in granted for argument in ("--security-opt", option)]


def _fields(*fields: str) -> str:
    """Returns the fields as a line of CSV, the format of --mount, which allows any characters."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()
