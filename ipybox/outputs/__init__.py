"""How an execution's output reaches the client of the MCP server: cut to what a model reads, and all of it kept."""
