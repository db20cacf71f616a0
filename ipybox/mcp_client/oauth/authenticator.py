"""Decides when ipybox signs in to a remote server, and with which of the SDK's flows.

Requests carry the stored access token. If it has expired, or the server rejects it, ipybox uses tokens that another
process has renewed, or else the refresh token. Failing that, it starts a new grant if a person may be asked or is not
needed (client credentials). Otherwise the request fails, and the server's challenge is stored: the next connection that
may ask a person begins with it. So registering a server again leads to a sign-in even if only some tools need one.

The flows' own requests use a separate client: headers from the parameters never go to an authorization server, and
requests time out. They go no nearer to this machine than the server is (`http.py`). Tokens go only to the server's
origin.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager, aclosing, suppress
from importlib.metadata import version

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from ipybox.mcp_client.http import Reach, bounded, origin, trusted_authorities
from ipybox.mcp_client.oauth import SignIn, SignInError
from ipybox.mcp_client.oauth.store import Challenge, GrantFile, StoredGrant
from ipybox.mcp_client.params import OAuthParams, RemoteParams, is_secure, public_url
from ipybox.support.printable import printable

logger = logging.getLogger(__name__)

# Seconds for each request of a flow.
_TIMEOUT = 30.0
# Maximum bytes of its response.
_MAX_BYTES = 1 << 20
# Maximum characters of an error message from a server.
_MESSAGE_LENGTH = 500


class Authenticator(httpx2.Auth):
    """Adds access tokens to the requests to one server, whose placeholders are replaced.

    Args:
        sign_in: Shows a person where to sign in; None to ask nobody.
        waiting: Returns a context to enter while a person signs in.
        reach: Where the requests of a flow may go.
    """

    def __init__(
        self,
        server: RemoteParams,
        sign_in: SignIn | None,
        waiting: Callable[[], AbstractContextManager[object]],
        reach: Reach,
    ):
        self._url = server.url
        self._params = server.oauth or OAuthParams()
        self._sign_in = sign_in
        self._waiting = waiting
        self._reach = reach
        self._known = _known_client(self._params)
        self._file = GrantFile(server.url, self._params)
        self._grant = self._file.read()
        self._turn = asyncio.Lock()

    @property
    def secrets(self) -> list[str]:
        """Values that no message may show."""
        grant, client = self._grant, self._grant.client
        values = (grant.access_token, grant.refresh_token, client and client.client_secret, self._params.client_secret)
        return [*filter(None, values)]

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Adds a token to a request, and another one if the response requires it (the HTTP library's interface)."""
        if origin(request.url) != origin(httpx2.URL(self._url)):
            yield request
            return
        if request.method == "DELETE":  # ends the session, for which nobody should be asked to sign in
            self._add_token(request)
            yield request
            return
        await self._prepare(request)
        untried = [self._renew, self._begin]
        while True:
            used = self._add_token(request)
            challenge = _challenge((yield request))
            if challenge is None or not untried:
                return
            async with self._turn:
                while self._grant.access_token == used and untried:  # another request may have renewed it
                    await untried.pop(0)(request, challenge)

    async def _prepare(self, request: httpx2.Request) -> None:
        """Renews an expired token, and signs in if an earlier call would have needed that."""
        async with self._turn:
            if self._grant.expired:
                await self._renew(request, Challenge(status=401, header=""))
            if self._grant.challenge is not None and self._sign_in is not None:
                await self._begin(request, self._grant.challenge)

    async def _renew(self, request: httpx2.Request, challenge: Challenge) -> None:
        """Uses the tokens of another process, or else refreshes the token; neither helps for a wider scope."""
        used = self._grant.access_token
        self._grant = self._file.read()
        if self._grant.access_token != used or challenge.status != 401 or not self._grant.refresh_token:
            return
        async with self._file.locked():
            self._grant = self._file.read()
            if self._grant.access_token == used:
                await self._refresh(request)

    async def _refresh(self, request: httpx2.Request) -> None:
        tokens = self._grant.tokens
        provider = self._provider()
        provider.context.token_expiry_time = 1.0  # long ago
        provider.context.protected_resource_metadata = self._grant.protected_resource
        provider.context.oauth_metadata = self._grant.authorization_server
        status = await self._drive(provider, request, None)
        if self._grant.tokens is tokens:
            if status == 429 or status >= 500:  # unrelated to the token
                raise SignInError(f"can't refresh its token: the authorization server returned HTTP {status}")
            logger.info("the authorization server refused to refresh the token for %s", public_url(self._url))
            self._grant.set_tokens(None)
        self._file.write(self._grant)

    async def _begin(self, request: httpx2.Request, challenge: Challenge) -> None:
        """Gets a new grant, from a person if needed."""
        _check_secure(self._url)
        if self._params.grant == "client_credentials":
            await self._obtain(self._machine(), request, challenge)
        elif self._sign_in is None:
            self._grant.challenge = challenge
            with suppress(OSError):  # the error below matters more
                self._file.write(self._grant)
            raise SignInError(
                f"HTTP {challenge.status}: it requires a sign-in, which is only possible while registering the server: "
                "register it again, or give it an 'Authorization' header"
            )
        else:
            await self._sign_in_by_browser(self._sign_in, request, challenge)

    async def _sign_in_by_browser(self, sign_in: SignIn, request: httpx2.Request, challenge: Challenge) -> None:
        # Imports aiohttp's server, which other connections don't need.
        from ipybox.mcp_client.oauth.callback import CallbackServer

        async with CallbackServer(self._params.redirect_uri) as callback:

            async def show(url: str) -> None:
                _check_secure(url)
                await self._reach.check(httpx2.URL(url))
                if self._params.client_secret is not None and provider.context.oauth_metadata is None:
                    # The SDK would send it to the server itself.
                    raise SignInError(
                        "refusing to send the client secret: the authorization server publishes no metadata"
                    )
                callback.expect(url)
                with self._waiting():
                    await sign_in(url)

            async def answer() -> AuthorizationCodeResult:
                with self._waiting():
                    return await callback.result()

            self._grant.client = None  # it is registered with the port of the last sign-in
            provider = self._provider(callback.uri, show, answer)
            await self._obtain(provider, request, challenge)

    async def _obtain(self, provider: OAuthClientProvider, request: httpx2.Request, challenge: Challenge) -> None:
        if self._params.scope is not None and challenge.status == 401:
            # The SDK prefers the challenge's scope to the metadata's.
            given = f'Bearer scope="{self._params.scope}", '
            challenge = Challenge(status=401, header=given + challenge.header.removeprefix("Bearer "))
        await self._drive(provider, request, challenge)
        self._grant.authorization_server = provider.context.oauth_metadata
        self._grant.protected_resource = provider.context.protected_resource_metadata
        self._grant.challenge = None
        self._file.write(self._grant)

    async def _drive(self, provider: OAuthClientProvider, request: httpx2.Request, challenge: Challenge | None) -> int:
        """Runs the part of an SDK flow that obtains tokens, and returns the status of the last response.

        The request that needs the token is not sent; `challenge` is the response to it, or None to run only the steps
        before it.
        """
        status = 0
        hooks = bounded(self._reach, is_server=False, max_bytes=_MAX_BYTES)
        try:
            async with (
                httpx2.AsyncClient(
                    timeout=_TIMEOUT, follow_redirects=False, event_hooks=hooks, verify=trusted_authorities()
                ) as client,
                aclosing(provider.async_auth_flow(request)) as flow,
            ):
                outgoing = await anext(flow)
                while True:
                    if outgoing is not request:
                        _check_secure(str(outgoing.url))
                        async with asyncio.timeout(_TIMEOUT):
                            response = await client.send(outgoing)
                        status = response.status_code
                    elif challenge is not None:
                        headers = {"WWW-Authenticate": challenge.header}
                        response = httpx2.Response(challenge.status, headers=headers, request=request)
                        challenge = None
                    else:
                        return status
                    outgoing = await flow.asend(response)
        except OAuthFlowError as exc:
            reason = printable(str(exc).partition("<")[0].strip())[:_MESSAGE_LENGTH]  # an HTML page may follow
            raise SignInError(f"it requires a sign-in (HTTP 401), and the sign-in failed: {reason}") from exc
        except (ValueError, OverflowError, httpx2.InvalidURL) as exc:  # the SDK's, for example for an endless lifetime
            reason = printable(str(exc))[:_MESSAGE_LENGTH]
            raise SignInError(f"the authorization server's response is not valid: {reason}") from exc
        except (httpx2.HTTPError, TimeoutError) as exc:
            reason = printable(str(exc))[:_MESSAGE_LENGTH] or "no response"
            raise SignInError(f"can't reach the authorization server: {reason}") from exc

    def _provider(
        self,
        redirect_uri: str | None = None,
        show: SignIn | None = None,
        answer: Callable[[], Awaitable[AuthorizationCodeResult]] | None = None,
    ) -> OAuthClientProvider:
        metadata = OAuthClientMetadata(
            client_name="ipybox",
            software_id="ipybox",
            software_version=version("ipybox"),
            redirect_uris=None if redirect_uri is None else [AnyUrl(redirect_uri)],
        )
        document = self._params.client_metadata_url
        return OAuthClientProvider(self._url, metadata, _Memory(self._grant, self._known), show, answer, document)

    def _machine(self) -> OAuthClientProvider:
        """Returns the provider for client credentials, which need no person."""
        # These import cryptography, which takes longer than everything else.
        from mcp.client.auth.extensions.client_credentials import (
            ClientCredentialsOAuthProvider,
            PrivateKeyJWTOAuthProvider,
            SignedJWTParameters,
        )

        params, memory = self._params, _Memory(self._grant, self._known)
        assert params.client_id is not None
        if params.client_secret is not None:
            return ClientCredentialsOAuthProvider(
                self._url,
                memory,
                params.client_id,
                params.client_secret,
                params.token_endpoint_auth_method,
                issuer=params.issuer,
            )
        assert params.private_key is not None
        signing = SignedJWTParameters(
            issuer=params.client_id,
            subject=params.client_id,
            signing_key=params.private_key,
            signing_algorithm=params.signing_algorithm,
        )
        signer = signing.create_assertion_provider()
        return PrivateKeyJWTOAuthProvider(self._url, memory, params.client_id, signer, issuer=params.issuer)

    def _add_token(self, request: httpx2.Request) -> str | None:
        """Adds the access token to a request, and returns it."""
        token = self._grant.access_token
        request.headers.pop("Authorization", None)
        if token is not None:
            request.headers["Authorization"] = f"Bearer {token}"
        return token


class _Memory:
    """The grant as storage for the SDK's flows (`TokenStorage`)."""

    def __init__(self, grant: StoredGrant, known: OAuthClientInformationFull | None):
        self._grant = grant
        self._known = known

    async def get_tokens(self) -> OAuthToken | None:
        return self._grant.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._grant.set_tokens(tokens)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._known or self._grant.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Stores a new client, which the SDK also registers if the known one belongs to another issuer."""
        if self._known is not None:
            raise SignInError("its authorization server is not the 'issuer' in server_params['oauth']")
        self._grant.client = client_info


def _known_client(params: OAuthParams) -> OAuthClientInformationFull | None:
    """Returns the client that was registered in advance, or None."""
    if params.client_id is None:
        return None
    return OAuthClientInformationFull(
        client_id=params.client_id,
        client_secret=params.client_secret,
        issuer=params.issuer,
        token_endpoint_auth_method="none" if params.client_secret is None else params.token_endpoint_auth_method,
    )


def _challenge(response: httpx2.Response) -> Challenge | None:
    header = response.headers.get("WWW-Authenticate", "")
    wider = response.status_code == 403 and "insufficient_scope" in header
    return Challenge(status=response.status_code, header=header) if response.status_code == 401 or wider else None


def _check_secure(url: str) -> None:
    if not is_secure(url):
        shown = printable(url.partition("?")[0])[:_MESSAGE_LENGTH]
        raise SignInError(f"refusing to sign in over plain HTTP: {shown}")
