"""Generates typed Python packages from the tools of MCP servers.

    MCPClient ── tools/list ──► schema.parse ──► ir ──► render ──► package ──► generator ──► root_dir/server_name/
                                 │ resolve: $ref, allOf       │ naming: identifiers          ▲
                                 │ unions, limits             │ annotations, text, noise     │
                                 └ exactness ──► checkable: the schema, where types don't     │
                                                 say all of it                               │
           the package that was there: manifest, record ──► previous ──► renewal (additions) ──► replacement

All but `generator`, `record`, `previous` and `replacement` is pure. What a server says is hostile: it becomes literals
and docstrings (`text`) and identifiers (`naming`), and gets into the source in no other way. What lies in the package's
place is hostile, too: code in a kernel can write there.
"""

from ipybox.mcp_apigen.generator import generate_mcp_sources
from ipybox.mcp_apigen.tool_modules import ToolModules

__all__ = ["ToolModules", "generate_mcp_sources"]
