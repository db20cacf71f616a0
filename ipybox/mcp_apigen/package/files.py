"""Renders all files of a generated package as text: pure, so that it needs no server and can be measured."""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from ipybox.mcp_apigen.package.hashes import meaning_hash
from ipybox.mcp_apigen.package.manifest import MANIFEST, Manifest, ModuleRecord, sha256_hex
from ipybox.mcp_apigen.render.module import ToolSpec, render_module
from ipybox.mcp_apigen.render.naming import module_names
from ipybox.mcp_apigen.render.source import render_imports
from ipybox.mcp_apigen.render.text import block, docstring, quote, summary

# Characters of a line in the list of tools, and the minimum for a tool's summary.
_INDEX_WIDTH = 60
_LEAST_SUMMARY = 40

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
    files = {"__init__.py": ""}
    hashes = {"__init__.py": ""}
    records: dict[str, ModuleRecord] = {}
    for tool, name in zip(tools, module_names([*map(_NAME, tools)], known or {}), strict=True):
        sentence = summary(tool.description or "", max(_INDEX_WIDTH - len(name) - 2, _LEAST_SUMMARY))
        index.append(f"{name}: {sentence}" if sentence else name)
        source, used, schema = render_module(tool, name)
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
    files[MANIFEST] = Manifest(server=server_name, modules=records, files=hashes).text()
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
