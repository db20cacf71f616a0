"""The container: what it may do, and what of the host it gets. Pure, but for a look at the workspace's owner."""

import csv
import io
import os
import secrets

from ipybox.docker.engine import Engine
from ipybox.docker.errors import DockerError
from ipybox.docker.options import MEMORY_BESIDE_CODE, WORKSPACE, Options

#: Home of the container's user; like /tmp it ends with the container.
HOME = "/home/ipybox"

#: Processes and threads of the container together; some numerical libraries start a thread for each processor.
PIDS_LIMIT = 1024

#: Whence the command that makes a container reads the filter of system calls: it needs no file.
PROFILE_FILE = "/dev/stdin"

#: Seconds that the container has to end when it is told to.
STOP_GRACE = 2

#: Label of ipybox's containers; its value is the workspace.
LABEL = "ipybox.workspace"


def create_command(options: Options, engine: Engine) -> list[str]:
    """Returns the command that makes the container, and writes its id. With a sandbox, it reads `seccomp.profile`.

    Once its stdin is at its end, or the client that is attached to it has gone, ipybox ends, and with it the container,
    which Docker then removes.

    Raises:
        DockerError: If such a container can't have a sandbox.
    """
    uid, gid = _user(options, engine)
    if options.sandbox and uid == 0:
        whose = "Docker runs without root" if engine.rootless else f"the workspace {options.workspace} is root's"
        raise DockerError(f"--sandbox needs a container that does not run as root, but {whose}: go without --sandbox")
    code, container = _memory(options.memory_limit, engine.memory)
    return [
        *(engine.program, "create", "--pull", "never", "--rm", "--init"),
        *("--interactive", "--attach", "stdin", "--attach", "stdout", "--attach", "stderr"),
        *("--name", f"ipybox-{secrets.token_hex(4)}", "--label", f"{LABEL}={options.workspace}"),
        # What is said over MCP is nobody's to keep.
        *("--log-driver", "none"),
        *("--user", f"{uid}:{gid}", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *(_permit_sandbox(engine) if options.sandbox else ()),
        "--read-only",
        *("--tmpfs", "/tmp:rw,exec,nosuid,nodev,mode=1777"),
        *("--tmpfs", f"{HOME}:rw,exec,nosuid,nodev,mode=0700,uid={uid},gid={gid}"),
        # Unlike --volume it does not make a directory that has gone meanwhile.
        *("--mount", _fields("type=bind", f"source={options.workspace}", f"target={WORKSPACE}")),
        *("--pids-limit", str(PIDS_LIMIT)),
        # As much with swap as without: there is none.
        *(("--memory", str(container), "--memory-swap", str(container)) if container else ()),
        *(("--network", options.network) if options.network else ()),
        # By name: the command takes the values from its environment.
        *(argument for name in options.env for argument in ("--env", name)),
        options.image,
        *([f"--memory-limit={code}"] if code else []),
        *(["--sandbox"] if options.sandbox else []),
        *options.passed_on,
    ]


def attach_command(engine: Engine, container: str) -> list[str]:
    """Returns the command that starts the container with stdin, stdout and stderr of its own, and ends with it.

    What it does when it is told to end differs: some releases of Docker pass that on, others only end themselves.
    """
    return [engine.program, "start", "--attach", "--interactive", container]


def stop_command(engine: Engine, container: str) -> list[str]:
    """Returns the command that tells the container to end, and kills it if it doesn't."""
    return [engine.program, "stop", "-t", str(STOP_GRACE), container]


def remove_command(engine: Engine, container: str) -> list[str]:
    """Returns the command that removes the container, whatever it does."""
    return [engine.program, "rm", "--force", "--volumes", container]


def _user(options: Options, engine: Engine) -> tuple[int, int]:
    """Returns the ids by which files that the container writes belong to the caller."""
    if engine.rootless:
        return 0, 0  # which is the caller outside; all others are ids that nobody has
    uid, gid = os.geteuid(), os.getegid()
    if uid != 0:
        return uid, gid
    # Root without capabilities can't write what is someone else's, and its files would be in the way there.
    owner = options.workspace.stat()
    return owner.st_uid, owner.st_gid


def _permit_sandbox(engine: Engine) -> list[str]:
    """Returns what bubblewrap needs: namespaces, mounts in them, and a /proc of its own."""
    granted = [f"seccomp={PROFILE_FILE}", "systempaths=unconfined"]
    if engine.apparmor:  # its profile for containers forbids all mounts
        granted.append("apparmor=unconfined")
    return [argument for option in granted for argument in ("--security-opt", option)]


def _memory(limit: int | None, machine: int) -> tuple[int, int]:
    """Returns the limits of the code and of the container; 0 is none."""
    code = machine // 2 if limit is None else limit
    return code, (min(code + MEMORY_BESIDE_CODE, machine) if code else 0)


def _fields(*fields: str) -> str:
    """Returns what --mount reads as these fields, whatever characters are in them: a line of CSV."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()
