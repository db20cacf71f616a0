"""Imports from a kernel's workspace, and from the packages that were installed for it.

The template imports modules for all kernels (`preload`), which then start with them and share their memory. Threads
don't survive a fork, and descriptors must not be shared: if a module starts threads or opens descriptors, the template
restarts without it, and tells the gateway.

Python writes `__pycache__` next to each module that it imports. People commit `mcptools/` and `gentools/`, often with
`git add -A`, so bytecode must stay out of the repository, whatever the repository ignores.
"""

import gc
import os
import site
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from pathlib import Path
from typing import Any

from ipybox.guest.protocol import FAILS, OPENS_DESCRIPTORS, STARTS_THREADS
from ipybox.support.names import STATE_DIR

#: The directory of the module that Python programs started by kernels import at startup, and the variables that it
#: reads: the Python environment with the packages directory, and the inode of the kernel's stdout.
CHILD_SITE = str(Path(__file__).with_name("child_site"))
PACKAGES, STDOUT = "IPYBOX_PACKAGES", "IPYBOX_STDOUT"

_CACHE = "__pycache__"

#: Keeps an allocator of pyarrow (which pandas imports if it is installed) from starting a thread.
#: https://jemalloc.net/jemalloc.3.html#background_thread
WITHOUT_THREADS = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}

#: Seconds for threads that end at a fork to do so, as OpenBLAS's do.
THREADS_END = 0.2


def packages_dir(workspace: Path) -> Path:
    """Returns the directory in which packages for the kernels of this workspace are installed."""
    return workspace / STATE_DIR / "packages"


def let_children_import(directory: Path) -> None:
    """Lets Python programs that this process starts import packages from a directory."""
    os.environ[PACKAGES] = f"{sys.prefix}{os.pathsep}{directory}"
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [CHILD_SITE, os.environ.get("PYTHONPATH")]))


def import_from(directory: Path) -> None:
    """Lets this process import packages from a directory, now or as soon as it exists.

    They take precedence over ipybox's environment but not over the standard library: an old backport must not replace
    one of its modules.
    """
    entry = str(directory)
    sites = {*site.getsitepackages(), site.getusersitepackages()}
    position = next((index for index, path in enumerate(sys.path) if path in sites), len(sys.path))
    sys.path.insert(position, entry)
    # Otherwise Python would cache that the directory is missing, and never check again.
    sys.path_importer_cache[entry] = FileFinder(
        entry,
        (ExtensionFileLoader, EXTENSION_SUFFIXES),
        (SourceFileLoader, SOURCE_SUFFIXES),
        (SourcelessFileLoader, BYTECODE_SUFFIXES),
    )


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


def keep_bytecode_out_of_git(workspace: Path) -> None:
    """Makes git ignore the bytecode of modules that this process imports from a workspace from now on."""
    write = SourceFileLoader.set_data

    def write_ignored(self: SourceFileLoader, path: str, data: Any, *, _mode: int = 0o666) -> None:
        write(self, path, data, _mode=_mode)
        directory = os.path.dirname(path)
        if os.path.basename(directory) == _CACHE and path.startswith(f"{workspace}/"):
            with suppress(OSError):  # it exists, or the directory is not writable
                file = os.open(f"{directory}/.gitignore", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
                os.write(file, b"*\n")
                os.close(file)

    SourceFileLoader.set_data = write_ignored
