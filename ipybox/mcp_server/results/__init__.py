"""How the MCP server returns an execution's output: truncated for the model, and saved in full."""
