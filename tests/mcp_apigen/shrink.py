"""The smallest tool that still fails, of those that are made by leaving out parts of one that does."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ipybox.mcp_apigen.package.files import ToolSpec
from ipybox.mcp_apigen.schema.values import elements, is_object

_TRIALS = 400


def smallest(tool: ToolSpec, fails: Callable[[ToolSpec], bool]) -> ToolSpec:
    """What is left of a failing tool after some hundred trials."""
    trials = 0
    smaller = True
    while smaller:
        smaller = False
        for other in _smaller_tools(tool):
            trials += 1
            if trials > _TRIALS:
                return tool
            if other != tool and fails(other):
                tool, smaller = other, True
                break
    return tool


def _smaller_tools(tool: ToolSpec) -> Iterator[ToolSpec]:
    yield replace(tool, name="tool")
    yield replace(tool, description="")
    yield replace(tool, input_schema={})
    yield replace(tool, output_schema=None)
    yield from (replace(tool, name=name) for name in _smaller(tool.name))
    yield from (replace(tool, description=text) for text in _smaller(tool.description))
    yield from (replace(tool, input_schema=schema) for schema in _smaller(tool.input_schema))
    yield from (replace(tool, output_schema=schema) for schema in _smaller(tool.output_schema))


def _smaller(value: Any) -> Iterator[Any]:
    """Copies of a JSON value without one of its parts, large parts first."""
    if isinstance(value, str) and len(value) > 1:
        yield from (value[: len(value) // 2], value[len(value) // 2 :])
    if is_object(value):
        yield from ({key: item for key, item in value.items() if key != name} for name in value)
        yield from (value | {name: smaller} for name, item in value.items() for smaller in _smaller(item))
    elif isinstance(value, list):
        items = elements(value)
        yield from ([*items[:n], *items[n + 1 :]] for n in range(len(items)))
        yield from (
            [*items[:n], smaller, *items[n + 1 :]] for n, item in enumerate(items) for smaller in _smaller(item)
        )
