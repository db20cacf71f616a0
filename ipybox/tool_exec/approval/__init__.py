"""Asking the application to accept or reject tool calls: JSON-RPC over a WebSocket."""
