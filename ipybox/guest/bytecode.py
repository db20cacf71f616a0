"""How modules are loaded from files. Keeps bytecode in a workspace out of its git repository, whatever that ignores.

Python writes `__pycache__` next to each module that it imports. People commit `mcptools/` and `gentools/`, often with
`git add -A`.
"""

import os
import sys
from contextlib import suppress
from importlib.abc import Loader, PathEntryFinder
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

_CACHE = "__pycache__"


def loaders(source: type[SourceFileLoader] = SourceFileLoader) -> list[tuple[type[Loader], list[str]]]:
    """Returns Python's own loaders and the suffixes of their files, for a `FileFinder`, with this one of source."""
    return [
        (ExtensionFileLoader, EXTENSION_SUFFIXES),
        (source, SOURCE_SUFFIXES),
        (SourcelessFileLoader, BYTECODE_SUFFIXES),
    ]


class _Loader(SourceFileLoader):
    """Writes a `.gitignore` into each directory of bytecode."""

    def set_data(self, path: str, data: Any, *, _mode: int = 0o666) -> None:
        super().set_data(path, data, _mode=_mode)
        directory = os.path.dirname(path)
        if os.path.basename(directory) == _CACHE:
            with suppress(OSError):  # it exists, or the directory is not writable
                file = os.open(f"{directory}/.gitignore", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
                os.write(file, b"*\n")
                os.close(file)


def keep_bytecode_out_of_git(workspace: Path) -> None:
    """Makes git ignore the bytecode of modules that this process imports from a workspace from now on."""
    root = f"{workspace}/"
    hook = FileFinder.path_hook(*loaders(_Loader))

    def find(path: str) -> PathEntryFinder:
        if not f"{path or os.getcwd()}/".startswith(root):
            raise ImportError("not in the workspace", path=path)
        return hook(path)

    sys.path_hooks.insert(0, find)
    for path in [path for path in sys.path_importer_cache if f"{path}/".startswith(root)]:
        del sys.path_importer_cache[path]
