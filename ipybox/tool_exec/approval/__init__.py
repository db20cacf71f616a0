"""Approval of tool calls: rules, and requests to the application as JSON-RPC over a WebSocket or through a callback."""
