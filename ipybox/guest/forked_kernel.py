"""Turns a process that was forked off the template into a kernel: as if it had been started as a program.

Its socket has the request for it (`ipybox.guest.fork_protocol`): descriptors for its output, then a line of JSON. A
spare kernel waits in `until_handover` until a session uses it. Up to then it reads nothing but that socket, so that no
other process can have it run anything. See `ipybox.guest.template`.
"""

import importlib
import json
import os
import signal
import socket
import sys
from functools import partial
from typing import BinaryIO

from ipybox.guest import kernel
from ipybox.guest.confine import unprotect_process
from ipybox.guest.fork_protocol import Handover, KernelRequest
from ipybox.guest.last_output import KernelOutput
from ipybox.guest.process import change_environment, close_input, show_kernel_id
from ipybox.guest.strays import KERNEL_ID


def run_kernel(channel: socket.socket, command: list[str], template_environment: dict[str, str]) -> None:
    """Reads the request and runs the kernel until it ends.

    Args:
        channel: The socket of the request; nothing of the kernel starts before the request is complete.
        command: The command line that would start the kernel as a program.
        template_environment: The environment with which the template was started. What libraries have set since then
            stays, as they set it in each kernel.
    """
    output = KernelOutput(channel)
    stream = channel.makefile("rb")
    channel.close()  # as soon as the stream is closed
    request: KernelRequest = json.loads(read_line(stream))
    unprotect_process()
    show_kernel_id(request["environment"][KERNEL_ID])
    change_environment(template_environment, request["environment"])
    os.chdir(request["directory"])
    close_input()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as the gateway does, which has forked the template before
    seed_random_numbers()
    replace_keys()
    importlib.invalidate_caches()
    sys.orig_argv[:] = command
    sys.argv[:] = [kernel.__file__, *command[4:]]  # without python -P -m MODULE
    if request["spare"]:
        kernel.main(request["connection"], output, partial(until_handover, stream))
    else:
        stream.close()
        kernel.main(request["connection"], output)


def until_handover(stream: BinaryIO) -> None:
    """Waits until a session uses this kernel, and sets its variables."""
    with stream:
        handover: Handover = json.loads(read_line(stream))
    os.environ.update(handover["environment"])
    importlib.invalidate_caches()


def read_line(stream: BinaryIO) -> bytes:
    """Returns the next message; ends this process if the gateway does not need the kernel anymore, or has ended."""
    line = stream.readline()
    if not line.endswith(b"\n"):
        os._exit(0)
    return line


def seed_random_numbers() -> None:
    """Gives a preloaded numpy another seed. The generators of Python and OpenSSL notice a fork by themselves."""
    if (random := sys.modules.get("numpy.random")) is not None:
        random.seed()


def replace_keys() -> None:
    """Gives a preloaded multiprocessing another key: who has it can run code in programs that listen for processes."""
    for package in ("multiprocessing", "multiprocess"):  # of the standard library, and of pathos
        if (process := sys.modules.get(f"{package}.process")) is not None:
            process.current_process().authkey = os.urandom(32)
