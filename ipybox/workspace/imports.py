"""Keeps this process from importing modules planted by code.

`python script.py` and `python -m module` put a directory at the front of `sys.path`, often the workspace. The host
imports many modules lazily, so code can first plant a module with the same name.
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
    """Permanently prevents this process from importing modules from places that code can write.

    Removes such directories from `sys.path`. Resolves links in the workspace that lead to this Python's own
    directories. An import raises ModuleNotFoundError, with a remedy, if the module is only in a removed directory, or
    belongs to a package that was loaded from such a place.
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
    """Resolves workspace links in a loaded package's module paths."""
    search = getattr(module, "__path__", None)
    if type(search) is list:  # not a namespace package's, which follows `sys.path`
        entries = cast("list[str]", search)
        entries[:] = [(places.trusted(entry) or entry) if places.spells(entry) else entry for entry in entries]


class _Guard(MetaPathFinder):
    """The first finder, which only rejects modules of packages in places that code can write."""

    def __init__(self) -> None:
        self.dropped: list[str] = []
        self._places: dict[WritablePlaces, None] = {}
        #: Results by directory: resolving links for thousands of imports would slow down startup.
        self._covered: dict[str, bool] = {}

    def add(self, places: WritablePlaces) -> None:
        """Adds places to reject modules from."""
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
    """The last finder, which only explains why a module can no longer be found."""

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
