"""The template process: it has imported what kernels import, and each kernel is a fork of it, which is ready sooner.

The gateway forks it (`fork_template`) when both have imported what they have in common. These modules are then
imported, and in memory, once. It happens before the gateway holds what kernels must not have: the link to the
application, and its token. At that moment the process has one thread, no event loop and no ZeroMQ context, because a
fork copies none of these in a usable state. The template keeps to that: it runs no code of users and imports nothing
from the workspace.

The gateway sends it the command line of each kernel and one end of a socket pair (`ipybox.guest.template_client`). The
template forks, does not read from that socket, and answers with the id of the new process. Only that process reads its
environment from the socket (`ipybox.guest.forked_kernel`), so that no secret of a kernel is ever in the memory of the
template and of later kernels. The end of the gateway ends the template.

What a fork can't change needs a new program: variables that are read when a process starts, and modules that were
imported. Then the template executes itself, under the same id and with the same socket:

    python -P -m ipybox.guest.template SOCKET PARENT_PID MODULES PROBLEMS ...

MODULES are more modules to import, separated by commas (`ipybox.guest.preload`). PROBLEMS are those that an earlier try
found unfit, as JSON. The arguments at the end are empty: they reserve space for the command lines of kernels
(`ipybox.guest.process`).
"""

import atexit
import errno
import gc
import io
import json
import logging
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from ipybox.guest.confine import protect_process
from ipybox.guest.fork_protocol import MAX_BYTES, READY, SOCKET_TYPE, ForkAnswer, ForkRequest, TemplateRequest
from ipybox.guest.packages import packages_dir
from ipybox.guest.preload import preload
from ipybox.guest.process import change_environment, close_input, die_with_parent, show_command
from ipybox.support.gc_pause import gc_paused

#: What gateway and template import. A kernel has imported all of it before its first cell.
SHARED_MODULES = (
    "encodings.idna",
    "jupyter_client",
    "packaging.version",
    "tornado.gen",
    "tornado.platform.asyncio",
    "tornado.queues",
    "zmq.eventloop.zmqstream",
)

#: The beginnings of variables that Python and the C library read when a process starts. Libraries read all others when
#: they are imported or used.
READ_AT_START = ("GLIBC_", "HOME", "LANG", "LC_", "LD_", "MALLOC_", "OPENSSL_", "PYTHON", "TZ")

#: What a kernel imports until its first cell runs.
KERNEL_MODULES = (
    "ipybox.guest.kernel",
    "ipybox.guest.extension",
    "IPython.core.completerlib",
    "IPython.core.debugger",
    "IPython.core.logger",
    "IPython.core.oinspect",
    "IPython.extensions.storemagic",
    "encodings.ascii",
    "encodings.idna",
    "encodings.latin_1",
    "faulthandler",
    "pdb",
    "tornado.platform.asyncio",
    "tornado.queues",
    "traitlets.config.argcomplete_config",
)


@dataclass(frozen=True)
class ForkedTemplate:
    """The forked process, which waits for its request.

    Attributes:
        pid: Its process id.
        control: The gateway's end of the socket over which kernels are requested.
        control_number: The number of the template's end, there.
        channel: Where its own request is sent.
    """

    pid: int
    control: socket.socket
    control_number: int
    channel: socket.socket

    def start(self, request: TemplateRequest) -> None:
        """Lets the process become the template, and returns when it has its own command line.

        Until then, the application could take it for a process that code has started.

        Raises:
            OSError: If it has ended.
        """
        with self.channel:
            self.channel.sendall(json.dumps(request).encode())
            self.channel.shutdown(socket.SHUT_WR)
            self.channel.recv(1)  # end of file


def fork_template() -> ForkedTemplate | None:
    """Imports the shared modules and forks the template; returns in this process only.

    Returns:
        The new process; None if it can't be forked, and on systems whose libraries do not survive that.
        https://github.com/python/cpython/issues/77906
    """
    with gc_paused(own=True):
        for module in SHARED_MODULES:
            import_module(module)
    if sys.platform != "linux":
        return None
    gc.freeze()  # so that the collector writes to no page that both share
    gateway = os.getpid()
    control, control_end = socket.socketpair(socket.AF_UNIX, SOCKET_TYPE)
    channel, channel_end = socket.socketpair()
    with control_end, channel_end:
        try:
            pid = os.fork()
        except OSError:
            control.close()
            channel.close()
            return None
        if pid == 0:
            control.close()
            channel.close()
            close_input()  # which is the link
            os.setsid()
            die_with_parent(gateway)
            run_forked(control_end, channel_end)
            sys.exit()
        control.setblocking(False)
        return ForkedTemplate(pid, control, control_end.fileno(), channel)


def run_forked(control: socket.socket, channel: socket.socket) -> None:
    """Makes this process the template, as if it had been started as a program, and runs it."""
    with channel:
        with channel.makefile("rb") as stream:
            text = stream.read()
        if not text:  # the gateway has ended
            os._exit(0)
        request: TemplateRequest = json.loads(text)
        command, environment = request["command"], request["environment"]
        if at_start(environment) != at_start(os.environ):
            control.set_inheritable(True)
            os.execve(command[0], command, environment)
        show_command([argument for argument in command if argument])
        change_environment(dict(os.environ), environment)
        sys.orig_argv[:] = command

    sys.argv[:] = [__file__, *command[4:]]  # without python -P -m MODULE
    run_template(control)


def at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that count when a process starts."""
    return {name: value for name, value in environment.items() if name.startswith(READ_AT_START)}


def main() -> None:
    """Answers requests until the gateway ends; a forked process becomes a kernel and returns when that ends."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    die_with_parent(int(sys.argv[2]))
    run_template(control)


def run_template(control: socket.socket) -> None:
    """Imports what kernels need, and answers requests; `main` has the rest."""
    protect_process()
    environment = dict(os.environ)
    # Before all others, so that it is the last one to run; but `logging` was imported earlier.
    atexit.unregister(logging.shutdown)
    atexit.register(end_kernel, os.getpid())
    atexit.register(logging.shutdown)
    with gc_paused(own=True):
        for module in KERNEL_MODULES:
            import_module(module)
        modules = [module for module in sys.argv[3].split(",") if module]
        problems: dict[str, str] = json.loads(sys.argv[4])
        if not preload(modules, packages_dir(Path.cwd()), problems):
            execute(control, environment, [module for module in modules if module not in problems], problems)
    if (threads := len(os.listdir("/proc/self/task"))) > 1:  # of a module that the environment of kernels brings in
        sys.exit(f"can't fork kernels from a process with {threads} threads")
    gc.collect()
    gc.freeze()  # so that the collector of a kernel writes to no page that it shares with the template
    channel, command = serve(control, environment, problems)

    from ipybox.guest.forked_kernel import run_kernel

    run_kernel(channel, command, environment)


def end_kernel(template: int) -> None:
    """Ends a forked kernel after its handlers of `atexit`, without taking each module apart.

    That would write to most of the memory that the kernel shares with the template, for 40 ms. What code has left is
    still finalized, and its files are written.
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
    """Replaces this process by a new template with other modules."""
    control.set_inheritable(True)
    arguments = [*sys.orig_argv[:6], ",".join(modules), json.dumps(problems), *sys.argv[5:]]
    os.execve(sys.executable, arguments, environment)


def serve(
    control: socket.socket, environment: dict[str, str], problems: dict[str, str]
) -> tuple[socket.socket, list[str]]:
    """Says that it is ready, and forks a process for each request.

    Returns in forked processes only, with the socket and the command line.

    Args:
        control: The socket to the gateway.
        environment: The environment of a new template.
        problems: The modules that are not preloaded, with the reason.
    """
    control.send(READY)
    while True:
        message, fds, _, _ = socket.recv_fds(control, MAX_BYTES, 1)
        if not message:
            sys.exit()
        request: ForkRequest = json.loads(message)
        if "modules" in request:
            execute(control, environment, request["modules"], {})
        channel = socket.socket(fileno=fds[0])
        try:
            pid = fork_orphan(request["command"])
        except OSError as error:
            answer: ForkAnswer = {"error": f"fork: {error.strerror}"}
        else:
            if pid == 0:
                control.close()
                return channel, request["command"]
            answer = {"pid": pid, "not_preloaded": problems}
        channel.close()
        control.send(json.dumps(answer).encode())


def fork_orphan(command: list[str]) -> int:
    """Forks a process that becomes a child of the gateway, which adopts orphans; returns its id, or 0 in itself.

    The process leads a session and a process group of its own, and shows its command line, before the gateway adopts
    it: else the application could take it for a process that has left its kernel. It has been adopted when this returns
    its id.

    Raises:
        OSError: If it can't be forked, or has ended before.
    """
    read_end, write_end = os.pipe()
    try:
        between = os.fork()
    except OSError:
        os.close(read_end)
        os.close(write_end)
        raise
    if between == 0:
        try:
            ready, is_ready = os.pipe()
            pid = os.fork()
            if pid == 0:
                show_command(command)
                os.setsid()
                os.write(is_ready, b".")
                for end in (read_end, write_end, ready, is_ready):
                    os.close(end)
                return 0
            os.close(is_ready)
            if os.read(ready, 1):  # else it has ended
                os.write(write_end, b"%d" % pid)
        except OSError as error:
            os._exit(error.errno or 1)
        except ValueError:  # the command line is too long
            os._exit(1)
        os._exit(0)
    os.close(write_end)
    with open(read_end, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(between, 0)
    if error := os.waitstatus_to_exitcode(status) or (0 if answer else errno.ECHILD):
        raise OSError(error, os.strerror(error))
    return int(answer)


if __name__ == "__main__":
    main()
