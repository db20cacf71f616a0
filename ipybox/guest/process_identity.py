"""What the operating system shows of a forked kernel: its own command line and id, in place of the template's.

/proc shows the memory in which a program found its arguments and environment. The application knows kernels by their
command lines (`ipybox.kernel_mgr.limits.kernel_processes`), and the gateway knows forked children of kernels by the id
in their environments (`ipybox.guest.strays`). So the template starts with space for a longer command line, and with an
id that kernels replace. See proc(5).
"""

import ctypes
import os
from pathlib import Path

from ipybox.guest.strays import KERNEL_ID

#: The kernel id in the environment of the template; each kernel id is as long as this one.
PLACEHOLDER = "0" * 36

#: Where /proc/self/stat has the start and the end of the arguments, counted after the name of the program.
ARGUMENTS = slice(45, 47)


def show_command(command: list[str]) -> None:
    """Replaces the command line of this process in /proc.

    Raises:
        ValueError: If it is longer than the one with which the process was started.
    """
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    start, end = map(int, fields[ARGUMENTS])
    text = b"".join(os.fsencode(argument) + b"\0" for argument in command)
    if len(text) > end - start:
        raise ValueError(f"a command line of {len(text)} bytes exceeds the {end - start} bytes of the template's")
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


def show_kernel_id(kernel_id: str) -> None:
    """Replaces the id in the environment with which this process was started. Call it before that is changed.

    Raises:
        ValueError: If the environment has no id, or one of another length.
    """
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    address = libc.getenv(KERNEL_ID.encode())
    if not address or len(ctypes.string_at(address)) != len(kernel_id):
        raise ValueError(f"the environment of the template has no {KERNEL_ID} of {len(kernel_id)} bytes")
    ctypes.memmove(address, kernel_id.encode(), len(kernel_id))
