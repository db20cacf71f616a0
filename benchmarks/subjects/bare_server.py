"""The least that is an MCP server of the SDK: the floor of MCP mode, and the server whose tool is called."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("bare")


@server.tool(structured_output=False)
def echo(text: str) -> str:
    """Returns the text."""
    return text


server.run()
