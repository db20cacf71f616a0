"""The error of a sign-in; `MCPServerError` reports it for a server."""


class SignInError(Exception):
    """A sign-in failed, or is needed where no person can be asked; the message says why, and what to do."""
