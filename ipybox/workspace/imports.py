"""Keeps this process from importing what code has planted.

`python script.py` and `python -m module` put a directory in front of `sys.path` that is often the workspace. The host
imports much of what it needs late, and code that runs by then can plant a module of that name.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import cast

from ipybox.workspace.writable import WritablePlaces


def guard_imports(places: WritablePlaces) -> None:
    """Lets no import of this process lead to what code can write, from now on and for good.

    Such directories of `sys.path` are dropped; what leads to this Python's own directories through a link of the
    workspace is spelled without the link. An import that finds nothing but what was dropped, or a module of a package
    that was loaded from such a place, raises ModuleNotFoundError, with a message that says what to do.

    Args:
        places: The places that code can write.
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


def import_installed(name: str) -> ModuleType:
    """Returns a module, imported with all that it needs without the directory that Python puts in front of `sys.path`.

    That is the directory of a script, or the working directory, where code may have planted a module earlier.
    Only if something is found nowhere else, it counts: some programs bring what they need beside their script.
    """
    script = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    own = {os.path.dirname(os.path.realpath(script)), os.getcwd()}
    if sys.flags.safe_path or os.path.realpath(sys.path[0]) not in own:
        return import_module(name)
    first = sys.path.pop(0)
    try:
        return import_module(name)
    except ModuleNotFoundError:
        pass
    finally:
        sys.path.insert(0, first)
    return import_module(name)


def _respell(module: ModuleType, places: WritablePlaces) -> None:
    """Spells where the modules of a loaded package are without links, if these are in the workspace."""
    search = getattr(module, "__path__", None)
    if type(search) is list:  # or a namespace package's, which follows `sys.path`
        entries = cast("list[str]", search)
        entries[:] = [(places.trusted(entry) or entry) if places.spells(entry) else entry for entry in entries]


class _Guard(MetaPathFinder):
    """Finds nothing; refuses the modules of packages in places that code can write. Comes first."""

    def __init__(self) -> None:
        self.dropped: list[str] = []
        self._places: dict[WritablePlaces, None] = {}
        #: What was found of directories: looking up links for each of thousands of imports would cost start-up time.
        self._covered: dict[str, bool] = {}

    def add(self, places: WritablePlaces) -> None:
        """Refuses what is in these places, too."""
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
    """Finds nothing; says why a module is not found any more. Comes last."""

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
        "sandbox starts, or have code run in another directory (working_dir, --workspace)",
        name=name,
    )


_guard = _Guard()
