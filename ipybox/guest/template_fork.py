"""Forks the first template off the gateway, when both have imported what they have in common.

These modules are then imported, and in memory, once. It happens before the gateway holds what kernels must not have:
the link to the application, its token, and that of the first session. At that moment the process has one thread, no
event loop and no ZeroMQ context, because a fork copies none of these in a usable state.

A template that is needed later is started as a program (`ipybox.guest.template_client`), because by then the gateway
has all of these. `run_forked` makes the forked process the same as such a program.
"""

import gc
import json
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module

from ipybox.guest.fork_protocol import SOCKET_TYPE, TemplateRequest
from ipybox.guest.process import close_input, die_with_parent
from ipybox.guest.process_identity import change_environment, show_command
from ipybox.support.gc_pause import gc_paused

#: What both import. A kernel has imported all of it before its first cell.
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
        except OSError:  # the gateway starts a template as a program, and reports it if that fails, too
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

    from ipybox.guest import template

    sys.argv[:] = [template.__file__, *command[4:]]  # without python -P -m MODULE
    template.run_template(control)


def at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that count when a process starts."""
    return {name: value for name, value in environment.items() if name.startswith(READ_AT_START)}
