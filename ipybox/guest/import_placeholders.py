"""Placeholders for modules that Jupyter's server imports, and that the gateway does not use.

These modules take more than half of the time and a third of the memory of the gateway's imports: Jupyter's whole web
application, notebooks and their validation, events, metrics, and templates of pages. A placeholder has the names that
are bound while other modules are imported. Any other name loads the real module, so that a version of Jupyter that
needs more works, too.
"""

import importlib
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Self


class Metric:
    """A metric that is not recorded, in place of Prometheus' classes."""

    def __init__(self, *_: object, **__: object):
        pass

    def __getattr__(self, name: str) -> Callable[..., Self]:
        return self._ignore  # `labels`, `inc`, `dec` …

    def _ignore(self, *_: object, **__: object) -> Self:
        return self


class EventLogger:
    """The type of a trait that our kernel managers don't have."""


#: Names by module.
PLACEHOLDERS: Mapping[str, Mapping[str, object]] = {
    "jinja2": {"TemplateNotFound": type("TemplateNotFound", (Exception,), {})},
    "jupyter_events": {"EventLogger": EventLogger},
    "jupyter_events.schema_registry": {"SchemaRegistryException": type("SchemaRegistryException", (Exception,), {})},
    "jupyter_server.serverapp": {"random_ports": None},  # for a port that the gateway does not open
    "nbformat": {},
    "prometheus_client": {"Gauge": Metric, "Histogram": Metric, "Info": Metric},
}


class Placeholder(ModuleType):
    """Stands in for a module until a name is needed that it does not have."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import system asks for `__path__`
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


@contextmanager
def placeholders() -> Generator[None]:
    """Puts placeholders in place of modules that other modules import in this context."""
    added: dict[str, ModuleType] = {}
    for name in PLACEHOLDERS.keys() - sys.modules.keys():
        added[name] = Placeholder(name)
        vars(added[name]).update(PLACEHOLDERS[name])
    sys.modules.update(added)
    try:
        yield
    finally:
        for name, module in added.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]


@contextmanager
def missing(*names: str) -> Generator[None]:
    """Makes modules look as if they were not installed, unless they have been imported already."""
    added = {*names} - sys.modules.keys()
    sys.modules.update(dict.fromkeys(added))  # type: ignore[arg-type]: https://docs.python.org/3/reference/import.html
    try:
        yield
    finally:
        for name in added:
            sys.modules.pop(name, None)
