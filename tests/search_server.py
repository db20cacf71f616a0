"""A stdio MCP server in place of servers that need the internet: a search for images, one for pages, and a fetch."""

from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel

server = MCPServer("search")


class Properties(BaseModel):
    url: str


class Image(BaseModel):
    title: str
    properties: Properties


class Images(BaseModel):
    items: list[Image]


@server.tool()
def brave_image_search(query: str, count: int = 5) -> Images:
    """Returns images."""
    urls = (f"https://example.org/{number}.png" for number in range(count))
    return Images(items=[Image(title=query, properties=Properties(url=url)) for url in urls])


@server.tool(structured_output=False)
def brave_web_search(query: str, count: int = 5) -> str:
    """Returns pages."""
    return "\n".join(f"{number}. {query}" for number in range(1, count + 1))


@server.tool(structured_output=False)
def fetch(url: str) -> str:
    """Returns the text of a page."""
    return f"Contents of {url}"


server.run()
