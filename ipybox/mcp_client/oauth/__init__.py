"""Sign-ins to remote MCP servers with OAuth 2.1, following MCP's authorization specification.

The protocol is the SDK's (discovery, registration, PKCE, the grants). This package has the application's part: what is
stored and where (`store`), how a person signs in (`callback`, `browser`), and when each step happens (`authenticator`).

https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization
"""


class SignInError(Exception):
    """A sign-in failed, or is needed where no person can be asked; the message says why, and what to do."""
