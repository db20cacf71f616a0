"""The template process, which has imported what kernels need. Kernels are forks of it, so they start faster.

The gateway forks it (`fork_template`) before it holds what kernels must not have: the link to the application, and its
token. At that point the process still has one thread, no event loop and no ZeroMQ context, because a fork copies none
of these in a usable state. The template runs no user code.

If variables that are read at process start differ, or modules must be imported again, it re-executes itself with the
same process id and socket:

    python -P -m ipybox.guest.template SOCKET PARENT_PID MODULES PROBLEMS ...

MODULES lists the modules to preload, separated by commas (`ipybox.guest.packages`). PROBLEMS lists those that could not
be, as JSON. Empty arguments at the end reserve space for kernels' command lines (`ipybox.guest.process`).

The gateway (`ipybox.guest.template_client`) and the template exchange JSON over a `SOCK_SEQPACKET` pair.

- template → gateway, when it has imported its modules: those that it could not preload, with the reason.
- gateway → template, with one end of a stream socket pair: the command line of a new kernel. The template forks, and
  answers with the new process's id once that is a child of the gateway, or with the reason why the fork failed.
- gateway → template, without a descriptor: MODULES to import again, because their packages have changed.

Only the new process reads the stream, so no kernel's secrets are ever in the memory of the template or of later
kernels. A kernel that is a program reads the same from its standard input (`ipybox.guest.kernel`).

- gateway → new process: the descriptors of `KernelOutput`, then a `KernelRequest` as a line.
- gateway → kernel, when a session uses it: the variables that differ from session to session, such as the token for
  tool calls, as a line. No process has them earlier, and the kernel reads nothing else until then.
"""

import atexit
import errno
import gc
import io
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, TypedDict

from ipybox.guest.confine import protect_process, unprotect_process
from ipybox.guest.descendants import KERNEL_ID
from ipybox.guest.packages import packages_dir, preload
from ipybox.guest.process import (
    COMMAND_SPACE,
    PLACEHOLDER,
    change_environment,
    close_input,
    die_with_parent,
    show_command,
)
from ipybox.support.gc_pause import gc_paused

SOCKET_TYPE = socket.SOCK_SEQPACKET
MAX_BYTES = 1 << 16

#: Modules that both gateway and template import. A kernel needs all of them before its first cell.
SHARED_MODULES = (
    "encodings.idna",
    "jupyter_client",
    "packaging.version",
    "tornado.gen",
    "tornado.platform.asyncio",
    "tornado.queues",
    "zmq.eventloop.zmqstream",
)

#: Prefixes of variables that Python and the C library read at process start. Libraries read all others when they are
#: imported or used.
READ_AT_START = ("GLIBC_", "HOME", "LANG", "LC_", "LD_", "MALLOC_", "OPENSSL_", "PYTHON", "TZ")

#: Further modules that a kernel imports before its first cell runs.
KERNEL_MODULES = (
    "ipybox.guest.kernel",
    "IPython.core.completerlib",
    "IPython.core.debugger",
    "IPython.core.logger",
    "IPython.core.oinspect",
    "IPython.extensions.storemagic",
    "encodings.ascii",
    "encodings.latin_1",
    "faulthandler",
    "pdb",
    "traitlets.config.argcomplete_config",
)


class KernelRequest(TypedDict):
    """The kernel to start."""

    #: The kernel's ports and message keys.
    connection: dict[str, Any]
    environment: dict[str, str]
    #: The working directory.
    directory: str


def fork_template(
    environment: Mapping[str, str], directory: str, modules: Sequence[str] = ()
) -> tuple[int, socket.socket] | None:
    """Imports the shared modules and forks the template; returns only in the gateway, once the template has its own
    command line. Until then, the application could mistake it for a process that code has started.

    Args:
        environment: The environment of all kernels.
        directory: The directory of kernels' files.
        modules: Modules to preload.

    Returns:
        The id of the new process, and the socket to it; None if the fork fails, and on systems other than Linux, whose
        libraries would not survive it. https://github.com/python/cpython/issues/77906
    """
    with gc_paused(own=True):
        for module in SHARED_MODULES:
            import_module(module)
    if sys.platform != "linux":
        return None
    gc.freeze()  # keeps the collector from writing to pages that both share
    gateway = os.getpid()
    control, control_end = socket.socketpair(socket.AF_UNIX, SOCKET_TYPE)
    started, starting = socket.socketpair()
    with control_end, started, starting:
        try:
            pid = os.fork()
        except OSError:
            control.close()
            return None
        if pid == 0:
            control.close()
            close_input()  # which is the link
            os.setsid()
            die_with_parent(gateway)
            space = [""] * (len(sys.executable) + len(directory) + COMMAND_SPACE)  # each reserves a byte
            arguments = [str(control_end.fileno()), str(gateway), ",".join(modules), "{}", *space]
            become_template(control_end, starting, arguments, environment)
            sys.exit()
        starting.close()
        started.recv(1)  # end of file
    control.setblocking(False)
    return pid, control


def become_template(
    control: socket.socket,
    starting: socket.socket,
    arguments: list[str],
    environment: Mapping[str, str],
) -> None:
    """Makes this process the template, and runs it."""
    command = [sys.executable, "-P", "-m", "ipybox.guest.template", *arguments]
    environment = {**environment, KERNEL_ID: PLACEHOLDER, "JPY_PARENT_PID": str(os.getppid())}
    if at_start(environment) != at_start(os.environ):
        control.set_inheritable(True)
        os.execve(command[0], command, environment)
    show_command([argument for argument in command if argument])
    starting.close()
    change_environment(dict(os.environ), environment)
    sys.orig_argv[:] = command
    sys.argv[:] = [__file__, *arguments]
    run_template(control)


def at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that are read at process start."""
    return {name: value for name, value in environment.items() if name.startswith(READ_AT_START)}


def main() -> None:
    """Runs the template as a program."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    die_with_parent(int(sys.argv[2]))
    run_template(control)


def run_template(control: socket.socket) -> None:
    """Imports what kernels need, and serves requests; in a forked process, runs the kernel and returns when it ends."""
    protect_process()
    environment = dict(os.environ)
    # Registered before all others, so that it runs last. `logging` registered its handler earlier: do that again.
    atexit.unregister(logging.shutdown)
    atexit.register(end_kernel, os.getpid())
    atexit.register(logging.shutdown)
    with gc_paused(own=True):
        for module in (*SHARED_MODULES, *KERNEL_MODULES):
            import_module(module)
        modules = [module for module in sys.argv[3].split(",") if module]
        problems: dict[str, str] = json.loads(sys.argv[4])
        if not preload(modules, packages_dir(Path.cwd()), problems):
            execute(control, environment, [module for module in modules if module not in problems], problems)
    if (threads := len(os.listdir("/proc/self/task"))) > 1:  # of a module that kernels' environment loads
        sys.exit(f"can't fork kernels from a process with {threads} threads")
    gc.collect()
    gc.freeze()  # keeps kernels' collectors from writing to pages that they share with the template
    control.send(json.dumps(problems).encode())
    run_kernel(*serve(control, environment), environment)


def end_kernel(template: int) -> None:
    """Exits a forked kernel after its `atexit` handlers, without tearing down each module.

    Teardown would take 40 ms and write to most of the memory that the kernel shares with the template. What code left
    behind is still finalized, and its files are flushed.
    """
    if os.getpid() == template:
        return
    vars(sys.modules["__main__"]).clear()
    gc.collect()
    for each in gc.get_objects():
        if type(each) is io.TextIOWrapper or type(each) is io.BufferedWriter:
            with suppress(Exception):
                each.flush()
    os._exit(0)


def execute(
    control: socket.socket, environment: dict[str, str], modules: Sequence[str], problems: dict[str, str]
) -> NoReturn:
    """Replaces this process with a new template that preloads other modules."""
    control.set_inheritable(True)
    arguments = [*sys.orig_argv[:6], ",".join(modules), json.dumps(problems), *sys.argv[5:]]
    os.execve(sys.executable, arguments, environment)


def serve(control: socket.socket, environment: dict[str, str]) -> tuple[socket.socket, list[str]]:
    """Forks a process for each request; returns only in forked processes, with the socket and the command line."""
    while True:
        message, fds, _, _ = socket.recv_fds(control, MAX_BYTES, 1)
        if not message:
            sys.exit()
        request: list[str] = json.loads(message)
        if not fds:
            execute(control, environment, request, {})
        channel = socket.socket(fileno=fds[0])
        try:
            answer: int | str = fork_orphan(request)
        except OSError as error:
            answer = f"fork: {error.strerror}"
        if answer == 0:
            control.close()
            return channel, request
        channel.close()
        control.send(json.dumps(answer).encode())


def fork_orphan(command: list[str]) -> int:
    """Forks a process that becomes a child of the gateway, which adopts orphans; returns its id, or 0 in itself.

    It shows its command line before it is adopted: otherwise the application could mistake it for a process that has
    left its kernel.

    Raises:
        OSError: If it can't be forked.
    """
    read_end, write_end = os.pipe()
    with open(read_end, "rb") as pipe, open(write_end, "wb") as answer:
        if (between := os.fork()) == 0:
            with suppress(OSError, ValueError):  # ValueError: the command line is too long
                show_command(command)
                if (pid := os.fork()) == 0:
                    os.setsid()
                    return 0
                os.write(write_end, b"%d" % pid)
            os._exit(0)
        answer.close()
        pid = int(pipe.read() or 0)
    os.waitpid(between, 0)
    if not pid:
        raise ChildProcessError(errno.ECHILD, os.strerror(errno.ECHILD))
    return pid


def run_kernel(channel: socket.socket, command: list[str], template_environment: dict[str, str]) -> None:
    """Reads the request and runs the kernel until it ends.

    Keeps variables that libraries have set since the template started, as they would in each kernel.
    """
    from ipybox.guest import kernel
    from ipybox.guest.kernel_output import KernelOutput

    output = KernelOutput(channel)
    stream = channel.makefile("rb")
    channel.close()  # as soon as the stream is closed
    request: KernelRequest = json.loads(kernel.read_line(stream))
    unprotect_process()
    change_environment(template_environment, request["environment"])
    os.chdir(request["directory"])
    close_input()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as the gateway does, but only after it has forked the template
    renew_secrets()
    sys.orig_argv[:] = command
    sys.argv[:] = [kernel.__file__, *command[4:]]  # without python -P -m MODULE
    kernel.main(request["connection"], output, stream)


def renew_secrets() -> None:
    """Renews secrets that kernels would share. Python's and OpenSSL's random generators detect a fork themselves."""
    if (random := sys.modules.get("numpy.random")) is not None:
        random.seed()
    for package in ("multiprocessing", "multiprocess"):  # of the standard library, and of pathos
        if (process := sys.modules.get(f"{package}.process")) is not None:
            # Anyone who knows it can run code in programs that listen for processes.
            process.current_process().authkey = os.urandom(32)


if __name__ == "__main__":
    main()
