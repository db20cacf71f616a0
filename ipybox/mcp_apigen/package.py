"""All files of a generated package as text: pure, so that it needs no server and can be measured."""

import json
from typing import Any

from ipybox.mcp_apigen.manifest import MANIFEST, Manifest, ModuleRecord, digest
from ipybox.mcp_apigen.module import ToolSpec, render_module
from ipybox.mcp_apigen.naming import module_names
from ipybox.mcp_apigen.noise import known_words, says_nothing
from ipybox.mcp_apigen.render import render_imports
from ipybox.mcp_apigen.text import block, docstring, quote, summary

# Characters of a line of the list of tools, and of what it says of a tool even if that has a long name.
_INDEX_WIDTH = 60
_LEAST_SUMMARY = 40


def render_package(server_name: str, server_params: dict[str, Any], tools: list[ToolSpec], seal: str) -> dict[str, str]:
    """The text of each file of a package, by the file's name.

    A tool whose schema is hopeless gets a model that accepts everything, and a warning in the log.
    """
    modules = module_names([tool.name for tool in tools])
    rendered = {name: render_module(tool, name) for name, tool in zip(modules, tools, strict=True)}
    names = set[str]().union(*(module.names for module in rendered.values()))
    files = {"__init__.py": _render_init(server_name, server_params, tools, modules, names, seal)}
    for name, module in rendered.items():
        files[f"{name}.py"] = module.source
        if module.schema is not None:
            files[f".{name}.schema.json"] = module.schema
    files[MANIFEST] = _manifest(server_name, dict(zip(modules, tools, strict=True)), files).text()
    return files


def _render_init(
    server_name: str,
    server_params: dict[str, Any],
    tools: list[ToolSpec],
    modules: list[str],
    names: set[str],
    seal: str,
) -> str:
    index = [f"Tools of the MCP server {server_name}, one module each.", ""]
    for tool, module in zip(tools, modules, strict=True):
        sentence = summary(tool.description or "", max(_INDEX_WIDTH - len(module) - 2, _LEAST_SUMMARY))
        said = not says_nothing(sentence, known_words([server_name, tool.name]))
        index.append(f"{module}: {sentence}" if said else module)
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


def _manifest(server_name: str, tools: dict[str, ToolSpec], files: dict[str, str]) -> Manifest:
    contents = {name: text.encode() for name, text in files.items()}
    modules: dict[str, ModuleRecord] = {}
    for module, tool in tools.items():
        source = contents.pop(f"{module}.py")
        modules[module] = ModuleRecord(
            tool=tool.name, sha256=tool_digest(tool), source=digest(source), length=len(source)
        )
    return Manifest(server=server_name, modules=modules, files={name: digest(data) for name, data in contents.items()})


def tool_digest(tool: ToolSpec) -> str | None:
    """A hash of all that the server says about the tool; none, if it is too deep to be written down."""
    said = [tool.name, tool.description, tool.input_schema, tool.output_schema]
    try:
        text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    except RecursionError:
        return None
    return digest(text.encode())
