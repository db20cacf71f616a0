"""ipybox as an MCP server: the interface for MCP clients. It runs no code itself.

    stdio, http ──► server ──► tools, file_tools ──► services ──► kernel_sessions: a CodeExecutor for each session
                                   │                    └─► approver, question: approvals by the user
                                   ├─► registration: MCP servers whose tools cells can call
                                   ├─► detached: cells and registrations that wait for a person between requests
                                   └─► tool_result, outputs: output as clients receive it

Names are resolved on first use (PEP 562): loading the MCP SDK takes longer than a client waits for the first answer.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ipybox.support.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from ipybox.mcp_server.http import HTTPServerInfo
    from ipybox.mcp_server.server import MCPServer

__all__ = ["HTTPServerInfo", "MCPServer"]

#: How tool calls are approved: automatically, by the user (those that may write, or all), or by the rules in a file.
Approval = Literal["auto", "writes", "ask"] | Path

#: What the audit log contains.
AuditOption = Literal["full", "hash", "off"]

#: How images are returned: as file paths, as images for the model, or both.
Images = Literal["link", "inline", "both"]

#: Complete instructions, or shorter ones, which cost less context, for agents with the codeact skill.
Instructions = Literal["full", "brief"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "ipybox.mcp_server.http": ("HTTPServerInfo",),
        "ipybox.mcp_server.server": ("MCPServer",),
    },
)
