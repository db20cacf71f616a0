"""Reads the MCP servers that other clients' configurations define, without starting any."""
