"""Sign-ins to remote MCP servers with OAuth 2.1, following MCP's authorization specification.

The SDK implements the protocol (discovery, registration, PKCE, the grants). This package implements the rest: what is
stored where (`store`), how a person signs in (`sign_in`, `callback`), and when each step happens (`authenticator`).

https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization
"""
