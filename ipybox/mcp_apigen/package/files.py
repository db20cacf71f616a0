"""Renders all files of a generated package as text: pure, so that it needs no server and can be measured."""

import json
import logging
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from ipybox.mcp_apigen.package.hashes import meaning_hash
from ipybox.mcp_apigen.package.manifest import MANIFEST, Manifest, ModuleRecord, sha256_hex
from ipybox.mcp_apigen.render.naming import module_names
from ipybox.mcp_apigen.render.source import render_imports, render_tool
from ipybox.mcp_apigen.render.text import block, docstring, quote, summary
from ipybox.mcp_apigen.schema.ir import Model
from ipybox.mcp_apigen.schema.parser import parse
from ipybox.mcp_apigen.schema.resolve import Resolver, SchemaError
from ipybox.mcp_apigen.schema.values import is_object, mapping, strings
from ipybox.workspace.registrations import ToolSpec

logger = logging.getLogger(__name__)

# Characters of a line in the list of tools, and the minimum for a tool's summary.
_INDEX_WIDTH = 60
_LEAST_SUMMARY = 40

#: Maximum characters of a schema's JSON: a larger one costs each kernel too much, and servers check arguments anyway.
_MAX_SCHEMA = 4_000_000

_NAME = attrgetter("name")


def render_package(
    server_name: str,
    server_params: dict[str, Any],
    tools: list[ToolSpec],
    seal: str,
    known: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Returns the text of each file of a package, by the file's name.

    Tool names must be distinct. A tool with an unusable schema gets a model that accepts everything, and a warning is
    logged. `known` maps the modules of the package so far to their tools, see `module_names`.
    """
    # Functions of the application have no server.
    owner = f"Tools of the MCP server {server_name}" if server_params else "Functions of the application"
    index = [f"{owner}, one module each.", ""]
    names: set[str] = set()
    patterns: dict[str, bool] = {}
    files = {"__init__.py": ""}
    hashes = {"__init__.py": ""}
    records: dict[str, ModuleRecord] = {}
    for tool, name in zip(tools, module_names([*map(_NAME, tools)], known or {}), strict=True):
        sentence = summary(tool.description or "", max(_INDEX_WIDTH - len(name) - 2, _LEAST_SUMMARY))
        index.append(f"{name}: {sentence}" if sentence else name)
        source, used, schema = render_module(tool, name, patterns)
        names |= used
        files[f"{name}.py"] = source
        if schema is not None:
            file = f".{name}.schema.json"
            files[file], hashes[file] = schema, sha256_hex(schema.encode())
        data = source.encode()
        records[name] = ModuleRecord(
            tool=tool.name, meaning=meaning_hash(tool), source=sha256_hex(data), length=len(data)
        )
    files["__init__.py"] = _render_init(server_name, server_params, index, names, seal)
    hashes["__init__.py"] = sha256_hex(files["__init__.py"].encode())
    manifest = Manifest(server=server_name, modules=records, files=hashes).model_dump()
    files[MANIFEST] = json.dumps(manifest, indent=1) + "\n"
    return files


def _render_init(server_name: str, server_params: dict[str, Any], index: list[str], names: set[str], seal: str) -> str:
    lines = [
        *docstring("\n".join(index), wrap=False),
        "",
        *render_imports({"ToolRunner", *names}),
        "",
        *block(sorted({"CLIENT", *names}), "__all__ = ", ""),
        "",
        "CLIENT = ToolRunner.from_env(",
        f"    server_name={quote(server_name)},",
        *block(server_params, "server_params=", indent=4),
        f"    seal={quote(seal)},",
        ")",
    ]
    return "\n".join(lines) + "\n"


def render_module(tool: ToolSpec, name: str, patterns: dict[str, bool]) -> tuple[str, set[str], str | None]:
    """Returns the text of a tool's module, the names that it imports from its package, and a schema.

    The schema is the one that arguments are also checked against, or None if types suffice. `patterns` are those of the
    package so far.
    """
    params, complete = _model(tool, "Params", tool.input_schema, patterns)
    schema = None if complete else _document(tool.input_schema)
    params.checked = schema is not None
    result = None
    if mapping(tool.output_schema) and _admits_objects(tool.output_schema):
        result, _ = _model(tool, "Result", tool.output_schema, patterns)
    source, names = render_tool(tool.name, name, tool.description or "", params, result)
    return source, names, schema


def _model(tool: ToolSpec, name: str, schema: Any, patterns: dict[str, bool]) -> tuple[Model, bool]:
    """Returns the model of a schema, and whether types express all that it demands of arguments."""
    try:
        model, remarks, complete = parse(Resolver(schema, patterns), name)
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
