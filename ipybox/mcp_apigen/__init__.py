"""Generates typed Python packages from the tools of MCP servers.

    MCPClient ── tools/list ──► schema.parse ──► ir ──► render ──► package ──► generator ──► root_dir/server_name/
                                 │ resolve: limits, $ref, allOf      │ naming: identifiers
                                 │ unions, limits                    │ annotations, text: literals and docstrings

All but `generator` is pure. What a server says is hostile: it becomes literals and docstrings (`text`) and
identifiers (`naming`), and gets into the source in no other way.
"""

from ipybox.mcp_apigen.generator import generate_mcp_sources

__all__ = ["generate_mcp_sources"]
