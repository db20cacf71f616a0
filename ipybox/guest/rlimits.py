"""The limits of single processes, which the operating system enforces inside the guest.

These come first and are gentle: one allocation too many is a MemoryError in the cell. What the kernel and its children
use together is watched from outside (`ipybox.kernel_mgr.limits`), where code of the guest can't reach it.
"""

import platform
import re
import resource
import sys

#: Threads count as processes for RLIMIT_NPROC: it has to let programs with many of them pass.
THREADS_PER_PROCESS = 8
SPARE_THREADS = 1024


def limit_process(*, memory: int | None = None, processes: int | None = None) -> None:
    """Limits this process, and each of those that it starts, for good: soft and hard limits are the same.

    Args:
        memory: Bytes of private memory. It counts from the allocation on, used or not, thread stacks (8 MiB each)
            included; reserved address space and shared memory don't count. macOS does not enforce it.
        processes: Processes that the watch on the host allows. Here it is a coarse second line against a bomb that
            is faster than the watch. Give it in a sandbox only: elsewhere it would count what else the user runs.
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
