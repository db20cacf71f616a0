"""Turns a process that was forked off the template into a kernel: as if it had been started as a program.

The request for it is JSON, up to the end of file on its socket. See `ipybox.guest.template`.
"""

import importlib
import json
import os
import signal
import socket
import sys

from ipybox.guest import kernel
from ipybox.guest.confine import unprotect_process
from ipybox.guest.fork_protocol import KernelRequest
from ipybox.guest.process import close_input
from ipybox.guest.process_identity import change_environment, show_command, show_kernel_id
from ipybox.guest.strays import KERNEL_ID


def run_kernel(channel: socket.socket, template_environment: dict[str, str]) -> None:
    """Reads the request and runs the kernel until it ends.

    Args:
        channel: The socket of the request; nothing of the kernel starts before the request is complete.
        template_environment: The environment with which the template was started. What libraries have set since then
            stays, as they set it in each kernel.
    """
    with channel, channel.makefile("rb") as stream:
        text = stream.read()
    if not text:  # the gateway does not need the kernel anymore, or has ended
        os._exit(0)
    request: KernelRequest = json.loads(text)
    unprotect_process()
    show_command(request["command"])
    show_kernel_id(request["environment"][KERNEL_ID])
    change_environment(template_environment, request["environment"])
    os.chdir(request["directory"])
    close_input()
    set_signals()
    importlib.invalidate_caches()
    sys.orig_argv[:] = request["command"]
    sys.argv[:] = [kernel.__file__, *request["command"][4:]]  # without python -P -m MODULE
    kernel.main()


def set_signals() -> None:
    """Sets the signals as in a program that the gateway starts: it ignores SIGHUP, and handles others itself.

    The template has started earlier, with the signals of the application.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for number in (signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
