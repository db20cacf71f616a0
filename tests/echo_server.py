"""A stdio MCP server of the SDK whose one tool returns its argument.

python echo_server.py
"""

from mcp.server.mcpserver import MCPServer

server = MCPServer("echo")


@server.tool()
def echo(text: str) -> str:
    """Returns the text."""
    return text


server.run()
