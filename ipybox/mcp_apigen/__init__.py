"""Generates typed Python packages from the tools of MCP servers.

    tools ──► schema/ ──► ir ──► render/ ──► package/files ──► generator ──► root_dir/server_name/
                                                                   ▲
    the existing package ──► package/existing ──► merge (additions) ──► swap

    schema/     JSON Schema to the intermediate representation, and whether types express all of a schema
    render/     the intermediate representation to source
    package/    the files of a package, its inputs, and how it replaces the existing one

It connects to no server: `code_exec/registration` does, and has the package generated from the server's tools.
`generate_mcp_sources` is exported here, too, and resolved on first use (PEP 562).

`schema/` and `render/` are pure. The text of a server may be hostile: it becomes literals and docstrings
(`render/text`) and identifiers (`render/naming`), and gets into the source in no other way. Files in the package's
place may be hostile, too: code in a kernel can write there.
"""

from typing import TYPE_CHECKING

from ipybox.support.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from ipybox.code_exec.registration import generate_mcp_sources
    from ipybox.mcp_apigen.package.tool_modules import ToolModules

__all__ = ["ToolModules", "generate_mcp_sources"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "ToolModules": "ipybox.mcp_apigen.package.tool_modules",
        "generate_mcp_sources": "ipybox.code_exec.registration",
    },
)
