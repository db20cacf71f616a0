"""Signing in to remote MCP servers by OAuth 2.1, as MCP's authorization specification has it.

The protocol is the SDK's (discovery, registration, PKCE, the grants). Here is what it leaves to the application: what
is kept of it and where (`store`), how a person signs in (`callback`, `browser`), and when which of it happens
(`authenticator`).

https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization
"""
