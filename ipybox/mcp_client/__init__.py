"""Connects this process to MCP servers: the client, transports, server processes, secrets, and sign-ins.

    client ──► connection ──► transport ──► process_guard ──► a stdio server     messages: what it sends
                  │    └────► http_client, http ─────────────► a remote server    failures: why it failed
                  └─► params, secrets, oauth/                            configs/: servers of other clients

`MCPClient` is resolved on first use (PEP 562), so modules that need only the parameters don't load the MCP SDK.
"""

from typing import TYPE_CHECKING

from ipybox.support.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from ipybox.mcp_client.client import MCPClient

__all__ = ["MCPClient"]


__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "ipybox.mcp_client.client": ("MCPClient",),
    },
)
