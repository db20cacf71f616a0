"""What keeps a person or ipybox from signing in; `MCPServerError` says it of the server."""


class SignInError(Exception):
    """Signing in failed, or is needed where nobody is asked; the message says why, and what to do."""
