"""Placeholders for modules that Jupyter's server imports but the gateway does not use.

These modules account for more than half of the time and a third of the memory of the gateway's imports. A placeholder
has the names that other modules bind when they are imported. Any other name loads the real module, so a Jupyter version
that needs more still works.
"""

import importlib
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import Any, Self, cast


class Metric:
    """Replaces Prometheus' metric classes, and records nothing."""

    def __init__(self, *_: object, **__: object):
        pass

    def __getattr__(self, name: str) -> Callable[..., Self]:
        return self._ignore  # `labels`, `inc`, `dec` …

    def _ignore(self, *_: object, **__: object) -> Self:
        return self


#: Names by module.
PLACEHOLDERS: Mapping[str, Mapping[str, object]] = {
    "jinja2": {"TemplateNotFound": type("TemplateNotFound", (Exception,), {})},
    "jupyter_events": {"EventLogger": type("EventLogger", (), {})},  # of a trait that our kernel managers don't have
    "jupyter_events.schema_registry": {"SchemaRegistryException": type("SchemaRegistryException", (Exception,), {})},
    "jupyter_server.serverapp": {"random_ports": None},  # for a port that the gateway does not open
    "nbformat": {},
    "prometheus_client": {"Gauge": Metric, "Histogram": Metric, "Info": Metric},
}


class Placeholder(ModuleType):
    """Replaces a module until a name that the placeholder lacks is needed."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import system asks for `__path__`
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def placeholders() -> AbstractContextManager[None]:
    """Replaces modules by placeholders while other modules are imported in this context."""
    made = {name: Placeholder(name) for name in PLACEHOLDERS}
    for name, module in made.items():
        vars(module).update(PLACEHOLDERS[name])
    return _in_place(made)


def missing(*names: str) -> AbstractContextManager[None]:
    """Makes modules look as if they were not installed, unless they have been imported already."""
    return _in_place(dict.fromkeys(names))  # https://docs.python.org/3/reference/import.html


@contextmanager
def _in_place(modules: Mapping[str, ModuleType | None]) -> Generator[None]:
    added = {name: module for name, module in modules.items() if name not in sys.modules}
    sys.modules.update(cast(dict[str, ModuleType], added))
    try:
        yield
    finally:
        for name, module in added.items():
            if sys.modules.get(name, module) is module:
                sys.modules.pop(name, None)
