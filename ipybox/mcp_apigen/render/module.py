"""Renders a tool as the text of a module, and of a schema file if types can't express the whole schema."""

import json
import logging
from dataclasses import dataclass
from typing import Any

from ipybox.mcp_apigen.render.source import render_tool
from ipybox.mcp_apigen.schema.ir import Model
from ipybox.mcp_apigen.schema.parser import parse
from ipybox.mcp_apigen.schema.resolve import Resolver, SchemaError
from ipybox.mcp_apigen.schema.values import is_object, mapping, strings

logger = logging.getLogger(__name__)

#: Maximum characters of a schema's JSON: a larger one costs each kernel too much, and servers check arguments anyway.
_MAX_SCHEMA = 4_000_000


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as an MCP server defines it."""

    name: str
    description: str | None
    input_schema: Any
    output_schema: Any = None
    #: The names of the hints that apply to it; empty without any.
    hints: tuple[str, ...] = ()


def render_module(tool: ToolSpec, name: str) -> tuple[str, set[str], str | None]:
    """Returns the text of a tool's module, the names that it imports from its package, and a schema.

    The schema is the one that arguments are also checked against, or None if types suffice.
    """
    params, complete = _model(tool, "Params", tool.input_schema)
    schema = None if complete else _document(tool.input_schema)
    params.checked = schema is not None
    result = None
    if mapping(tool.output_schema) and _admits_objects(tool.output_schema):
        result, _ = _model(tool, "Result", tool.output_schema)
    source, names = render_tool(tool.name, name, tool.description or "", params, result)
    return source, names, schema


def _model(tool: ToolSpec, name: str, schema: Any) -> tuple[Model, bool]:
    """Returns the model of a schema, and whether types express all that it demands of arguments."""
    try:
        model, remarks, complete = parse(Resolver(schema), name)
    except (SchemaError, RecursionError) as exc:
        logger.warning("tool %r: %s accepts any fields: %s", tool.name, name, exc)
        return Model(name, "Accepts any fields because Python's types can't express the schema."), False
    for remark in remarks:
        logger.warning("tool %r: %s: %s; the server checks it", tool.name, name, remark)
    if name == "Params":
        model.description = ""  # the tool's own description is enough
    return model, complete


def _document(schema: Any) -> str | None:
    """Returns the file that arguments are checked against; None if the schema can't be written or allows no arguments.

    Only the kernel checks whether the schema is well-formed, because a server could make that take hours.
    """
    if not is_object(schema) or not _admits_objects(schema):
        return None
    try:
        text = json.dumps(schema, allow_nan=False)
    except (RecursionError, ValueError):
        return None
    return f"{text}\n" if len(text) <= _MAX_SCHEMA else None


def _admits_objects(schema: Any) -> bool:
    # An argument schema that doesn't would allow no call, which its author can't mean. Other results are text.
    kinds = strings(mapping(schema).get("type"))
    return not kinds or "object" in kinds
