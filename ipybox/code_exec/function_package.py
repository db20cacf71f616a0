"""The package `mcptools/app/` for an application's functions, and conflicts with an MCP server of that name."""

from pathlib import Path

from ipybox.codeact.library import MCPTOOLS
from ipybox.mcp_apigen.generator import generate_package
from ipybox.tool_exec.dispatch import APP_PARAMS, APP_SERVER
from ipybox.tool_exec.function_tools import FunctionTools
from ipybox.workspace.registrations import ToolSpec, current_seal, record_file
from ipybox.workspace.seal import seal


def write_package(functions: FunctionTools, workspace: Path) -> None:
    """Generates the package, unless it would not change. The workspace's path contains no links.

    Raises:
        ValueError: If an MCP server is registered under its name.
        FileExistsError: If something that was not generated is in its place.
        OSError: If it can't be written.
    """
    check_package(workspace)
    tools = [ToolSpec(tool.name, tool.description, tool.input_schema, tool.output_schema) for tool in functions.tools]
    generate_package(APP_SERVER, APP_PARAMS, tools, workspace / MCPTOOLS / APP_SERVER, workspace)


def check_package(workspace: Path) -> None:
    """Raises a ValueError if an MCP server is registered under the package's name."""
    place = workspace / MCPTOOLS / APP_SERVER
    if place.is_dir() and current_seal(record_file(place)) and not is_function_package(place):
        raise ValueError(
            f"tools: {place.parent} contains a registered MCP server named {APP_SERVER!r}, a name reserved for "
            f"functions: register the server under another name and delete {place}"
        )


def is_function_package(place: Path) -> bool:
    """Returns whether a package was last generated for functions. Its parent's path contains no links."""
    sealed = seal(APP_SERVER, APP_PARAMS, place.parent)
    return place.is_dir() and current_seal(record_file(place)) == sealed.rpartition(":")[2]
