"""The output of an execution as the MCP server returns it: truncated for the model, and kept in full."""
