"""Generates typed Python packages from the tools of MCP servers.

    tools ──► schema/ ──► ir ──► render/ ──► package/files ──► generator ──► root_dir/server_name/
                                                                   ▲
    the existing package ──► package/merge (additions) ──► package/swap

    schema/     JSON Schema to the intermediate representation, and whether types express all of a schema
    render/     the intermediate representation to source
    package/    the files of a package, its inputs, and how it replaces the existing one

It connects to no server: `code_exec/registration` does, and passes the server's tools to the generator. Its function
`generate_mcp_sources` is also exported here, and resolved on first use (PEP 562).

`schema/` and `render/` are pure. A server's text may be hostile: it enters the source only as literals, docstrings and
comments (`render/text`) and as identifiers (`render/naming`). Existing files in the package's place may also be
hostile, because code in a kernel can write there.
"""

from typing import TYPE_CHECKING

from ipybox.support.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from ipybox.code_exec.registration import generate_mcp_sources
    from ipybox.mcp_apigen.generator import ToolModules

__all__ = ["ToolModules", "generate_mcp_sources"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "ipybox.code_exec.registration": ("generate_mcp_sources",),
        "ipybox.mcp_apigen.generator": ("ToolModules",),
    },
)
