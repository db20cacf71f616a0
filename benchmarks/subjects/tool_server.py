"""An MCP server of the SDK whose tools are called, and listed.

Usage: tool_server.py [TOOLS]

It serves standard input and output. With a number it has so many more tools, and serves HTTP on a free port: the first
line that it prints has the URL.
"""

import json
import socket
import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("measured", log_level="ERROR")


@server.tool(structured_output=False)
def echo(text: str) -> str:
    """Returns the text."""
    return text


@server.tool(structured_output=False)
def length(text: str) -> str:
    """Returns the length of the text."""
    return str(len(text))


@server.tool(structured_output=False)
def repeat(count: int) -> str:
    """Returns so many letters."""
    return "x" * count


def add_tools(count: int) -> None:
    """Adds tools with a few parameters."""
    for number in range(count):

        def tool(name: str, count: int = 1, flags: list[str] | None = None, *, ratio: float = 0.5) -> str:
            """Does something with a name."""
            return f"{name} {count} {flags} {ratio}"

        server.tool(name=f"tool_{number}", structured_output=False)(tool)


def serve_http() -> None:
    """Serves HTTP until the process ends."""
    # Imported late, because a server on standard input and output does not need it.
    import uvicorn

    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(json.dumps({"url": f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"}), flush=True)
        config = uvicorn.Config(server.streamable_http_app(), log_level="error", access_log=False)
        uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        add_tools(int(sys.argv[1]))
        serve_http()
    else:
        server.run()
