"""Keeps this process from importing modules that code has planted.

`python script.py` and `python -m module` put a directory at the front of `sys.path` that is often the workspace. The
host imports many modules late, and code that runs by then can plant a module of the same name.
"""

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import cast

from ipybox.workspace.writable import WritablePlaces


def guard_imports(places: WritablePlaces) -> None:
    """Prevents imports from places that code can write, permanently for this process.

    Removes such directories from `sys.path`, and spells paths that lead to this Python's own directories through a link
    of the workspace without the link. An import that finds only removed directories, or a module of a package that was
    loaded from such a place, raises ModuleNotFoundError, with a message that says what to do.
    """
    _guard.add(places)
    for entry in sys.path[:]:
        path = entry or os.getcwd()
        trusted = places.trusted(path)
        if trusted is None:
            sys.path.remove(entry)
            _guard.dropped.append(os.path.abspath(path))
        elif places.covers(path):
            sys.path[sys.path.index(entry)] = trusted
    for module in list(sys.modules.values()):
        _respell(module, places)
    if _guard not in sys.meta_path:
        sys.meta_path.insert(0, _guard)
        sys.meta_path.append(_LastFinder())


def _respell(module: ModuleType, places: WritablePlaces) -> None:
    """Removes links of the workspace from the module paths of a loaded package."""
    search = getattr(module, "__path__", None)
    if type(search) is list:  # or a namespace package's, which follows `sys.path`
        entries = cast("list[str]", search)
        entries[:] = [(places.trusted(entry) or entry) if places.spells(entry) else entry for entry in entries]


class _Guard(MetaPathFinder):
    """Finds nothing; rejects modules of packages in places that code can write. Comes first."""

    def __init__(self) -> None:
        self.dropped: list[str] = []
        self._places: dict[WritablePlaces, None] = {}
        #: Results by directory: resolving links for each of thousands of imports would cost start-up time.
        self._covered: dict[str, bool] = {}

    def add(self, places: WritablePlaces) -> None:
        """Also rejects modules in these places."""
        if places not in self._places:
            self._places[places] = None
            self._covered.clear()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        for entry in path or ():
            if entry not in self._covered:
                self._covered[entry] = any(places.covers(entry) for places in tuple(self._places))
            if self._covered[entry]:
                raise _refusal(fullname, entry)
        return None


class _LastFinder(MetaPathFinder):
    """Finds nothing; explains why a module is not found any more. Comes last."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        if path is None:
            for entry in _guard.dropped:
                if PathFinder.find_spec(fullname, [entry]) is not None:
                    raise _refusal(fullname, entry)
        return None


def _refusal(name: str, directory: str) -> ModuleNotFoundError:
    return ModuleNotFoundError(
        f"ipybox does not import {name!r} from {directory}: code in the kernel can write there. Import it before the "
        "sandbox starts, or run code in another directory (working_dir, --workspace)",
        name=name,
    )


_guard = _Guard()
