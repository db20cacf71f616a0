"""Imports modules into the template, so that kernels have them from their start, and share their memory.

A fork keeps neither threads nor what others know of descriptors. A module that starts threads or opens descriptors is
therefore not preloaded: the template starts again without it, and its log says so.
"""

import gc
import os
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from ipybox.guest.packages import import_from

#: Seconds that threads may take to end at a fork, as those of OpenBLAS do.
THREADS_END = 0.2


def preload(modules: Sequence[str], packages: Path) -> str | None:
    """Imports modules from the environment, and from the packages of the workspace.

    A module that can't be imported is skipped: the import in a cell reports the error.

    Returns:
        The first module that may not be preloaded: this process then imports no more and is of no use. Or `None`
        if all may be preloaded.
    """
    path = sys.path[:]
    import_from(packages)
    try:
        for module in modules:
            before = set(os.listdir("/proc/self/fd"))
            try:
                import_module(module)
            except Exception as error:
                _say(f"{module!r} is not preloaded: {type(error).__name__}: {error}")
            if problem := "opens descriptors" if set(os.listdir("/proc/self/fd")) != before else _threads():
                _say(f"{module!r} is not preloaded, because its import {problem}")
                return module
    finally:
        sys.path[:] = path
        sys.path_importer_cache.pop(str(packages), None)
    gc.collect()
    return None


def _threads() -> str | None:
    """Returns what a module does if it has threads that a fork does not end."""
    if len(os.listdir("/proc/self/task")) == 1:
        return None
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)
    end = time.monotonic() + THREADS_END
    while time.monotonic() < end:
        if len(os.listdir("/proc/self/task")) == 1:
            return None
    return "starts threads"


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
