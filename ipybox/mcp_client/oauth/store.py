"""Stored sign-ins: a file for each server and client, in the user's state directory.

The directory is outside every workspace, and the sandbox hides it. Files are replaced as a whole, so a reader finds
either the old or the new one. A process that refreshes a token holds the file's lock: most authorization servers accept
a refresh token only once, and a second process would fail.
"""

import asyncio
import fcntl
import hashlib
import json
import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp.shared.auth_utils import resource_url_from_server_url
from pydantic import BaseModel, ValidationError

from ipybox.mcp_client.params import OAuthParams
from ipybox.support.private_file import replace_private
from ipybox.support.state import make_directory, state_dir

#: Seconds before its expiry at which a token is renewed, so that it doesn't expire while a request is in progress.
_MARGIN = 10


class Challenge(BaseModel):
    """A response that requires a token, or one with a wider scope (RFC 6750, RFC 9728)."""

    status: int
    header: str


class StoredGrant(BaseModel):
    """The stored sign-in to a server, and the metadata needed to renew it."""

    #: The server's URL; the token is for no other one (RFC 8707).
    resource: str
    tokens: OAuthToken | None = None
    #: When the access token expires, in seconds since the epoch, if known.
    expires_at: float | None = None
    #: The registration of ipybox as a client, including the issuer.
    client: OAuthClientInformationFull | None = None
    authorization_server: OAuthMetadata | None = None
    protected_resource: ProtectedResourceMetadata | None = None
    #: The response to an earlier call that needs a sign-in.
    challenge: Challenge | None = None

    @property
    def access_token(self) -> str | None:
        """The access token, valid or expired."""
        return self.tokens and self.tokens.access_token

    @property
    def refresh_token(self) -> str | None:
        """The token to get a new access token with."""
        return self.tokens and self.tokens.refresh_token

    @property
    def expired(self) -> bool:
        """Whether the access token has expired, or is about to expire."""
        return self.expires_at is not None and self.expires_at < time.time() + _MARGIN

    def set_tokens(self, tokens: OAuthToken | None) -> None:
        """Replaces the tokens."""
        lifetime = tokens and tokens.expires_in
        self.expires_at = None if lifetime is None else time.time() + lifetime
        self.tokens = tokens


class GrantFile:
    """The file of one server's grant, for one client: a different client or issuer has different tokens."""

    def __init__(self, server_url: str, params: OAuthParams):
        self._resource = resource_url_from_server_url(server_url)
        key = [self._resource, params.grant, params.client_id, params.client_metadata_url, params.issuer]
        name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]
        self.path = state_dir() / "oauth" / f"{name}.json"

    def read(self) -> StoredGrant:
        """Returns the grant, or an empty one if there is none, or it can't be read: a new sign-in replaces it."""
        with suppress(OSError, ValidationError):
            grant = StoredGrant.model_validate_json(self.path.read_bytes())
            if grant.resource == self._resource:
                return grant
        return StoredGrant(resource=self._resource)

    def write(self, grant: StoredGrant) -> None:
        """Replaces the file; raises an OSError if it can't be written."""
        replace_private(self.path, grant.model_dump_json(exclude_none=True))

    @asynccontextmanager
    async def locked(self) -> AsyncGenerator[None]:
        """Waits until no other process refreshes the grant, and locks it."""
        make_directory(self.path.parent)
        fd = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # On a thread: if the wait is cancelled, the thread ends when the other process has refreshed the grant.
        locking = asyncio.get_running_loop().run_in_executor(None, fcntl.flock, fd, fcntl.LOCK_EX)
        try:
            await asyncio.shield(locking)
            yield
        finally:
            locking.add_done_callback(lambda _: os.close(fd))
