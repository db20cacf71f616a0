"""Imports a package's exported names on first use (PEP 562), but not from directories that code can write."""

import os
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


def lazy_exports(
    package: str, exports: Mapping[str, Sequence[str]], load: Callable[[str], ModuleType] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns the `__getattr__` and the `__dir__` of a package, given the names that it exports from each module.

    `load` imports a module, by default `import_installed`.
    """
    modules = {name: module for module, names in exports.items() for name in names}

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr((load or import_installed)(modules[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *modules})


def import_installed(name: str) -> ModuleType:
    """Imports a module and its dependencies without the directory that Python adds in front of `sys.path`.

    That is the script's directory or the working directory, where code may have planted a module earlier. It is used
    only for modules that are found nowhere else.
    """
    if name in sys.modules or sys.flags.safe_path or not _was_added(sys.path[0]):
        return import_module(name)
    try:
        with _without(sys.path[0]):
            return import_module(name)
    except ModuleNotFoundError:
        return import_module(name)


def _was_added(directory: str) -> bool:
    """Returns whether Python may have added a directory in front of `sys.path`."""
    script = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    try:
        return os.path.realpath(directory) in {os.path.dirname(os.path.realpath(script)), os.getcwd()}
    except FileNotFoundError:  # the working directory was deleted
        return True


class _Hidden(threading.local):
    """The directory that this thread does not import from."""

    directory: str | None = None


_hidden = _Hidden()


class _PathFinder(PathFinder):
    """Finds modules in `sys.path`, except for those in a directory that is hidden from this thread."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is None and _hidden.directory is not None and sys.path[:1] == [_hidden.directory]:
            path = sys.path[1:]
        return super().find_spec(fullname, path, target)


@contextmanager
def _without(directory: str) -> Generator[None]:
    """Hides a directory at the front of `sys.path` from this thread, while others still import from it."""
    if _PathFinder not in sys.meta_path:
        sys.meta_path[:] = [_PathFinder if finder is PathFinder else finder for finder in sys.meta_path]
    before, _hidden.directory = _hidden.directory, directory
    try:
        yield
    finally:
        _hidden.directory = before
