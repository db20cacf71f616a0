"""Imports modules into the template, so that kernels start with them and share their memory.

Threads don't survive a fork, and descriptors must not be shared. If a module starts threads or opens descriptors, the
template restarts without it, and tells the gateway.
"""

import gc
import os
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from ipybox.guest.packages import import_from
from ipybox.guest.protocol import FAILS, OPENS_DESCRIPTORS, STARTS_THREADS

#: Keeps an allocator of pyarrow (which pandas imports if it is installed) from starting a thread.
#: https://jemalloc.net/jemalloc.3.html#background_thread
WITHOUT_THREADS = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}

#: Seconds for threads that end at a fork to do so, as OpenBLAS's do.
THREADS_END = 0.2


def preload(modules: Sequence[str], packages: Path, problems: dict[str, str]) -> bool:
    """Imports modules from the environment, and from the packages of the workspace.

    `problems` receives the modules that are not preloaded, with the reason (`ipybox.guest.protocol`). A module that
    can't be imported is skipped: the import in a cell reports the error.

    Returns:
        Whether this process can be the template. If not, it imported nothing after the last of `problems`.
    """
    path = sys.path[:]
    import_from(packages)
    added = {name: value for name, value in WITHOUT_THREADS.items() if name not in os.environ}
    os.environ.update(added)
    try:
        for module in modules:
            before = set(os.listdir("/proc/self/fd"))
            try:
                import_module(module)
            except Exception as error:
                problems[module] = FAILS
                print(f"could not preload {module!r}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            if set(os.listdir("/proc/self/fd")) != before:
                problems[module] = OPENS_DESCRIPTORS
                return False
            if _threads_stay():
                problems[module] = STARTS_THREADS
                return False
    finally:
        for name in added:
            del os.environ[name]
        sys.path[:] = path
        sys.path_importer_cache.pop(str(packages), None)
    gc.collect()
    return True


def _threads_stay() -> bool:
    """Returns whether this process has threads that a fork doesn't end."""
    if len(os.listdir("/proc/self/task")) == 1:
        return False
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)
    end = time.monotonic() + THREADS_END
    while time.monotonic() < end:
        if len(os.listdir("/proc/self/task")) == 1:
            return False
    return True
