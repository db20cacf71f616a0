"""Runs ipybox in a container that does not outlive its client.

There are two processes. The *owner* makes the container, waits until nobody needs it any more, and removes it. The
*client* is this process: it becomes the docker command that connects stdin and stdout with the container. What holds
them together is a socket: the owner sends the container's id, and then waits for the end of the client, however that
comes, since even a process that is killed has its files closed. A client that is killed while the container is being
made has the owner remove it afterwards. Hence not `docker run`, which dies between the making and the start.

At the end of stdin ipybox ends by itself, and Docker removes what has ended. The owner sees that end, too, and removes
what takes too long for it. Without an owner, the rest still happens.
"""

import os
import select
import signal
import socket
import subprocess
from contextlib import suppress
from typing import NoReturn

from ipybox.docker.container import attach_command, create_command, remove_command, stop_command
from ipybox.docker.engine import Engine, find_engine
from ipybox.docker.errors import DockerError
from ipybox.docker.options import Options
from ipybox.docker.seccomp import profile

#: Seconds that Docker has to make a container, which may mean to mount its image.
CREATE_TIMEOUT = 60.0

#: Seconds that ipybox has to end after the end of its stdin.
END_GRACE = 2.0

#: Seconds that Docker has to stop or remove a container, and how often it is asked to remove it.
REMOVE_TIMEOUT = 30.0
REMOVE_TRIES = 3

#: What the owner sends first.
MADE, FAILED = b"+", b"-"


def launch(options: Options) -> NoReturn:
    """Becomes the client of a new container.

    Raises:
        DockerError: If Docker, the image or the container can't be had; nothing is left then.
    """
    engine = find_engine(options.image, options.network)
    theirs, ours = socket.socketpair()
    # Forked, as a new Python would take as long as all the rest; there are no threads any more.
    if os.fork() == 0:
        ours.close()
        _own(options, engine, theirs)
    theirs.close()
    container = _receive(ours)
    command = attach_command(engine, container)
    os.set_inheritable(ours.fileno(), True)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and what it becomes would, too
    os.execv(command[0], command)


def _receive(owner: socket.socket) -> str:
    """Returns the id of the container, when the owner has made it."""
    with owner.makefile("rb") as stream:
        line = stream.readline().rstrip(b"\n")
    text = line[1:].decode(errors="replace")
    if line[:1] == MADE:
        return text
    raise DockerError(text or "Docker can't make the container: what was to make it has died")


def _own(options: Options, engine: Engine, client: socket.socket) -> NoReturn:
    """Is the owner, from the making of the container to its removal."""
    status = 1
    try:
        # Who ends the client by its process group does not mean the owner.
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        # The client's stdin and stdout are MCP's, and whoever reads its stderr waits for the end of that.
        stdin = os.dup(0)  # to see its end; nothing is read
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
    told = False
    try:
        _send(client, MADE, container)
        told = _wait_for_end(client, stdin)
    finally:
        if not told:
            _ask(stop_command(engine, container))
        removed = any(_ask(remove_command(engine, container)) for _ in range(REMOVE_TRIES))
    return 0 if removed else 1


def _wait_for_end(client: socket.socket, stdin: int) -> bool:
    """Waits until the container is not needed any more, and returns whether it was told so itself, and had its time."""
    poll = select.poll()
    poll.register(client, select.POLLIN)  # nothing comes but the end
    # The end of a pipe is always reported, that of one direction of a socket only where there is a flag for it.
    poll.register(stdin, getattr(select, "POLLRDHUP", 0))
    if any(fd == client.fileno() for fd, _ in poll.poll()):
        return False
    poll.unregister(stdin)
    poll.poll(END_GRACE * 1000)
    return True


def _send(client: socket.socket, kind: bytes, text: str) -> None:
    with suppress(BrokenPipeError):
        client.sendall(kind + text.replace("\n", " ").encode() + b"\n")


def _create(options: Options, engine: Engine) -> str:
    try:
        done = subprocess.run(
            create_command(options, engine),
            input=profile(),
            capture_output=True,
            timeout=CREATE_TIMEOUT,
            check=False,
            text=True,
        )
    except subprocess.TimeoutExpired:
        raise DockerError(f"Docker can't make the container: it takes longer than {CREATE_TIMEOUT:g} s") from None
    except OSError as exc:
        raise DockerError(f"Docker can't make the container: {exc}") from exc
    if done.returncode != 0:
        reason = done.stderr.strip().removeprefix("Error response from daemon: ")
        raise DockerError(f"Docker can't make the container: {reason}")
    # Warnings, such as of a kernel without swap limits, are on stderr.
    return done.stdout.strip()


def _ask(command: list[str]) -> bool:
    """Tells Docker to do something to the container, and returns whether that is done, or needless."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=REMOVE_TIMEOUT, check=False, text=True)
    except (subprocess.TimeoutExpired, OSError):
        return False
    said = done.stderr.lower()
    return done.returncode == 0 or "no such container" in said or "already in progress" in said
