"""Runs ipybox in a container that doesn't outlive its client.

There are two processes. The *owner* creates the container, waits until it is no longer needed, and removes it. The
*client*, this process, becomes the docker command that connects stdin and stdout to the container. The owner sends the
container's id over a socket, which also tells it when the client exits, even if the client is killed during creation.
(`docker run`, when killed between creation and start, would leave the container behind.)

When stdin closes, ipybox exits and Docker removes the container. The owner removes it if that takes too long. All this
still works if the owner dies.
"""

import os
import select
import signal
import socket
import subprocess
from contextlib import suppress
from typing import NoReturn

from ipybox.docker.container import Options, create_command
from ipybox.docker.engine import DockerError, Engine, find_engine
from ipybox.docker.seccomp import profile

#: Seconds for Docker to create a container, which may include mounting its image.
CREATE_TIMEOUT = 60.0

#: Seconds for ipybox to exit after its stdin closes, and for the container after a stop request.
END_GRACE = 2.0
STOP_GRACE = 2

#: Seconds for Docker to stop or remove a container, and the number of attempts to remove it.
REMOVE_TIMEOUT = 30.0
REMOVE_TRIES = 3

#: The first character of the owner's message.
MADE, FAILED = "+", "-"


def launch(options: Options) -> NoReturn:
    """Becomes the client of a new container. Raises a DockerError, and leaves nothing behind, if there is none."""
    engine = find_engine(options.image)
    theirs, ours = socket.socketpair()
    # Forks, because a new Python would double the startup time. No threads are running at this point.
    if os.fork() == 0:
        ours.close()
        _own(options, engine, theirs)
    theirs.close()
    with ours.makefile("rb") as answers:
        line = answers.readline().rstrip(b"\n").decode(errors="replace")
    if not line.startswith(MADE):
        raise DockerError(line[1:] or "can't create the container: the process creating it died")
    container = line[1:]
    # On SIGTERM, some Docker releases forward the signal to the container; others only exit themselves.
    command = [engine.program, "start", "--attach", "--interactive", container]
    os.set_inheritable(ours.fileno(), True)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores SIGPIPE, and docker would inherit that
    os.execv(command[0], command)


def _own(options: Options, engine: Engine, client: socket.socket) -> NoReturn:
    status = 1
    try:
        # A signal to the client's process group must not kill the owner.
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        # The client's stdin and stdout carry MCP, and readers of its stderr wait for end of file.
        stdin = os.dup(0)  # only to detect its end; never read
        devnull = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(devnull, stream)
        status = _own_container(options, engine, client, stdin)
    finally:
        os._exit(status)


def _own_container(options: Options, engine: Engine, client: socket.socket, stdin: int) -> int:
    try:
        container = _create(options, engine)
    except DockerError as exc:
        _send(client, FAILED, str(exc))
        return 1
    had_time = False
    try:
        _send(client, MADE, container)
        had_time = _wait_for_end(client, stdin)
    finally:
        if not had_time:
            _ask([engine.program, "stop", "-t", str(STOP_GRACE), container])
        remove = [engine.program, "rm", "--force", "--volumes", container]
        removed = any(_ask(remove) for _ in range(REMOVE_TRIES))
    return 0 if removed else 1


def _wait_for_end(client: socket.socket, stdin: int) -> bool:
    """Waits until the container is no longer needed; returns whether stdin closed and ipybox had time to exit."""
    poll = select.poll()
    poll.register(client, select.POLLIN)  # the client only closes it
    # A closed pipe is always reported, but a half-closed socket only with this flag.
    poll.register(stdin, getattr(select, "POLLRDHUP", 0))
    if any(fd == client.fileno() for fd, _ in poll.poll()):
        return False
    poll.unregister(stdin)
    poll.poll(END_GRACE * 1000)
    return True


def _send(client: socket.socket, kind: str, text: str) -> None:
    with suppress(BrokenPipeError):
        client.sendall(f"{kind}{text}".replace("\n", " ").encode() + b"\n")


def _create(options: Options, engine: Engine) -> str:
    try:
        command = create_command(options, engine)
        done = subprocess.run(
            command, input=profile(), capture_output=True, timeout=CREATE_TIMEOUT, check=False, text=True
        )
    except subprocess.TimeoutExpired:
        raise DockerError(f"Docker can't create the container: it took longer than {CREATE_TIMEOUT:g} s") from None
    except OSError as exc:
        raise DockerError(f"Docker can't create the container: {exc}") from exc
    if done.returncode != 0:
        reason = done.stderr.strip().removeprefix("Error response from daemon: ")
        raise DockerError(f"Docker can't create the container: {reason}")
    # Warnings, such as about missing swap limits, go to stderr.
    return done.stdout.strip()


def _ask(command: list[str]) -> bool:
    """Runs a Docker command for the container; returns whether it succeeded or was unnecessary."""
    with suppress(subprocess.TimeoutExpired, OSError):
        done = subprocess.run(command, capture_output=True, timeout=REMOVE_TIMEOUT, check=False, text=True)
        said = done.stderr.lower()
        return done.returncode == 0 or "no such container" in said or "already in progress" in said
    return False
