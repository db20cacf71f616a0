"""A tool as the source of a module: its models, then `run` and `run_async`.

Short on purpose: agents read these modules, so what they cost is their size in tokens.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ipybox.mcp_apigen import naming
from ipybox.mcp_apigen.annotations import Annotations, Names
from ipybox.mcp_apigen.ir import EnumType, ListType, DictType, Model, ModelField, Type, UnionType
from ipybox.mcp_apigen.text import LINE_LENGTH, docstring, literal, quote


def render_tool(tool_name: str, description: str, params: Model, result: Model | None) -> str:
    """The source of a tool's module."""
    return _ToolModule(params, result).render(tool_name, description)


class _ToolModule:
    def __init__(self, params: Model, result: Model | None):
        self._result = result
        self._definitions = _definitions(params)
        known = set(map(_identity, self._definitions))
        # An enum that both sides use is one class; models differ in what they demand of their fields.
        self._result_definitions = [
            definition
            for definition in (_definitions(result) if result else [])
            if _identity(definition) not in known
        ]
