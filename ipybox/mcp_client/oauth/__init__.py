"""Sign-ins to remote MCP servers with OAuth 2.1, following MCP's authorization specification.

The protocol is the SDK's (discovery, registration, PKCE, the grants). This package has the application's part: what is
stored and where (`store`), how a person signs in (`sign_in`, `callback`), and when each step happens (`authenticator`).

https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization
"""
