"""The limits of single processes, which the operating system enforces inside the guest.

These apply first and are gentle: one allocation too many is a MemoryError in the cell. The application monitors what
the kernel and its children use together (`ipybox.kernel_mgr.limits`), where code in the kernel can't reach it.
"""

import platform
import re
import resource
import sys

#: Threads count as processes for RLIMIT_NPROC: it must permit programs with many of them.
THREADS_PER_PROCESS = 8
SPARE_THREADS = 1024


def limit_process(*, memory: int | None = None, processes: int | None = None) -> None:
    """Limits this process and each of its children permanently: soft and hard limits are the same.

    Args:
        memory: Bytes of private memory. It counts from the allocation on, used or not, thread stacks (8 MiB each)
            included; reserved address space and shared memory don't count. macOS does not enforce it.
        processes: Processes that the application's limit monitor allows. Here it is a coarse second line against a fork
            bomb that is faster than the monitor. Use it in a sandbox only: elsewhere it would count all processes of
            the user.
    """
    _lower(resource.RLIMIT_CORE, 0)
    if memory is not None:
        # Not RLIMIT_AS, which counts what numpy, Node and others only reserve.
        _lower(resource.RLIMIT_DATA, memory)
    if processes is not None and _counts_per_namespace():
        _lower(resource.RLIMIT_NPROC, processes * THREADS_PER_PROCESS + SPARE_THREADS)


def _lower(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))


def _counts_per_namespace() -> bool:
    """Tells whether RLIMIT_NPROC counts the processes of this user namespace only, as Linux does since 5.14."""
    release = re.match(r"(\d+)\.(\d+)", platform.release())
    return sys.platform == "linux" and release is not None and (int(release[1]), int(release[2])) >= (5, 14)
