"""The container: its rights, and the directories of the host that it gets.

Two directories of the host are mounted: the workspace, and one for ipybox's keys, registrations and caches, which must
outlast containers. The second is not in the workspace, because a repository may contain any file there, even keys that
its author knows. Containers with and without a sandbox have different ones, because code without a sandbox can write
it.
"""

import csv
import io
import os
import secrets
from pathlib import Path

from ipybox.docker.engine import Engine
from ipybox.docker.options import MEMORY_BESIDE_CODE, WORKSPACE, DockerError, Options
from ipybox.support.state import record_confined_code, workspace_state_dir
from ipybox.support.way_in import PLUGIN_VARIABLE

#: Home of the container's user; it ends with the container, like /tmp.
HOME = "/home/ipybox"

#: Path of ipybox's state in the container, see XDG_STATE_HOME in the Dockerfile.
STATE = "/app/state"
#: Scratch directories for sockets, which the file systems of Docker Desktop do not support.
SCRATCH = f"{STATE}/ipybox-scratch"

#: Processes and threads of the container together; some numerical libraries start a thread for each processor.
PIDS_LIMIT = 1024

#: The command that creates a container reads the system call filter from here: it needs no file.
PROFILE_FILE = "/dev/stdin"

#: Label of ipybox's containers; its value is the workspace.
LABEL = "ipybox.workspace"


def create_command(options: Options, engine: Engine) -> list[str]:
    """Returns the command that creates the container, and prints its id. With a sandbox, it reads `seccomp.profile`.

    When stdin ends, or the attached client is gone, ipybox ends, and with it the container, which Docker then removes.
    """
    uid, gid = _user(options, engine)
    if options.sandbox and uid == 0:
        whose = "Docker is rootless" if engine.rootless else f"root owns the workspace {options.workspace}"
        raise DockerError(f"--sandbox needs a container that does not run as root, but {whose}: remove --sandbox")
    code = engine.memory // 2 if options.memory_limit is None else options.memory_limit
    container = min(code + MEMORY_BESIDE_CODE, engine.memory) if code else 0
    # The variable by which messages name the options of a plugin (`ipybox.support.way_in`), if it is set.
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
        # Unlike --volume, this does not create a directory that has disappeared.
        *("--mount", _fields("type=bind", f"source={options.workspace}", f"target={WORKSPACE}")),
        *("--mount", _fields("type=bind", f"source={_state(options, uid, gid)}", f"target={STATE}")),
        *("--tmpfs", f"{SCRATCH}:rw,exec,nosuid,nodev,mode=0700,uid={uid},gid={gid}"),
        *("--pids-limit", str(PIDS_LIMIT)),
        # The same limit with swap: no swap.
        *(("--memory", str(container), "--memory-swap", str(container)) if container else ()),
        *(("--network", options.network) if options.network else ()),
        # By name: the command takes the values from its environment.
        *(argument for name in (*options.env, *way_in) for argument in ("--env", name)),
        options.image,
        *([f"--memory-limit={code}"] if code else []),
        *(["--sandbox"] if options.sandbox else []),
        *options.passed_on,
    ]


def _user(options: Options, engine: Engine) -> tuple[int, int]:
    """Returns the ids with which the container's files belong to the caller."""
    if engine.rootless:
        return 0, 0  # which is the caller on the host; other ids don't exist there
    uid, gid = os.geteuid(), os.getegid()
    if uid != 0:
        return uid, gid
    # Root without capabilities can't write files of other users, and its own files would be in their way.
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
    """Returns the options that bubblewrap needs: namespaces, mounts in them, and a /proc of its own."""
    granted = [f"seccomp={PROFILE_FILE}", "systempaths=unconfined"]
    if engine.apparmor:  # its profile for containers forbids all mounts
        granted.append("apparmor=unconfined")
    return [argument for option in granted for argument in ("--security-opt", option)]


def _fields(*fields: str) -> str:
    """Returns a line of CSV, which --mount reads as these fields with any characters."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()
