"""An MCP server behind OAuth, with an authorization server beside it, on one port of the loopback interface.

Both are the SDK's, the memory of the authorization server is here. Whoever comes to sign in is signed in at once.
"""

import asyncio
import secrets
import socket
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    IdentityAssertionParams,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

#: Seconds for which an access token is good, unless a test says otherwise.
LIFETIME = 3600


@dataclass
class Guarded:
    """The authorization server, as a test sees and changes it."""

    url: str
    clients: dict[str, OAuthClientInformationFull] = field(default_factory=dict[str, OAuthClientInformationFull])
    codes: dict[str, AuthorizationCode] = field(default_factory=dict[str, AuthorizationCode])
    access: dict[str, AccessToken] = field(default_factory=dict[str, AccessToken])
    refresh: dict[str, RefreshToken] = field(default_factory=dict[str, RefreshToken])
    #: `expires_in` of the tokens to come.
    lifetime: int = LIFETIME
    #: Whether whoever is asked says no.
    denies: bool = False
    #: Whether the authorization server is down for refreshes.
    down: bool = False
    #: Whether requests are answered by an error that has their token.
    echoes: bool = False
    #: The scopes without which requests are refused.
    scopes: str = "read"
    #: Requests, as "METHOD /path".
    requests: list[str] = field(default_factory=list[str])
    authorizations: list[AuthorizationParams] = field(default_factory=list[AuthorizationParams])

    def expire(self) -> None:
        """Lets all access tokens end."""
        self.access.clear()

    def revoke(self) -> None:
        """Takes back all that was granted."""
        self.access.clear()
        self.refresh.clear()

    def count(self, request: str) -> int:
        """Returns how often this was requested."""
        return self.requests.count(request)

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        self.authorizations.append(params)
        uri = str(params.redirect_uri)
        if self.denies:
            return construct_redirect_uri(uri, error="access_denied", error_description="not today", state=params.state)
        code = AuthorizationCode(
            code=secrets.token_hex(16),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=True,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(uri, code=code.code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._issue(client.client_id, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        if self.down:
            raise RuntimeError("down")
        if self.refresh.pop(refresh_token.token, None) is None:  # it is good for once
            raise TokenError("invalid_grant", "it was used before")
        return self._issue(client.client_id, scopes, refresh_token.resource)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def exchange_identity_assertion(
        self, client: OAuthClientInformationFull, params: IdentityAssertionParams
    ) -> OAuthToken:
        raise NotImplementedError

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        raise NotImplementedError

    def _issue(self, client_id: str, scopes: list[str], resource: str | None) -> OAuthToken:
        access, refresh = f"access-{secrets.token_hex(16)}", f"refresh-{secrets.token_hex(16)}"
        until = int(time.time()) + LIFETIME
        self.access[access] = AccessToken(
            token=access, client_id=client_id, scopes=scopes, expires_at=until, resource=resource
        )
        self.refresh[refresh] = RefreshToken(token=refresh, client_id=client_id, scopes=scopes, resource=resource)
        return OAuthToken(
            access_token=access, refresh_token=refresh, expires_in=self.lifetime, scope=" ".join(scopes) or None
        )


@asynccontextmanager
async def guarded(path: str = "/mcp") -> AsyncGenerator[Guarded]:
    """Runs both; a path with /sse means SSE."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        origin = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = Guarded(f"{origin}{path}")
        async with _serving(_watched(_app(server, origin), server), listener):
            yield server


def _app(guarded: Guarded, origin: str) -> ASGIApp:
    server = MCPServer(
        "guarded",
        log_level="ERROR",
        auth_server_provider=guarded,
        auth=AuthSettings(
            issuer_url=AnyHttpUrl(origin),
            resource_server_url=AnyHttpUrl(guarded.url),
            validate_token_resource=True,
            required_scopes=["read"],
            client_registration_options=ClientRegistrationOptions(enabled=True, valid_scopes=["read", "more"]),
        ),
    )

    def greet(name: str) -> str:
        """Greets somebody."""
        return f"Hello, {name}!"

    server.tool(structured_output=False)(greet)
    return server.sse_app() if guarded.url.endswith("/sse") else server.streamable_http_app(json_response=True)


def _watched(app: ASGIApp, server: Guarded) -> ASGIApp:
    async def watch(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            server.requests.append(f"{scope['method']} {scope['path']}")
            token = dict(scope["headers"]).get(b"authorization", b"").decode().removeprefix("Bearer ")
            if server.echoes:
                error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": f"what is {token}?"}}
                return await JSONResponse(error, 500)(scope, receive, send)
            known = server.access.get(token)
            if known is not None and not set(server.scopes.split()) <= set(known.scopes):
                header = f'Bearer error="insufficient_scope", scope="{server.scopes}"'
                response = Response(status_code=403, headers={"WWW-Authenticate": header})
                return await response(scope, receive, send)
        return await app(scope, receive, send)

    return watch


class _Server(uvicorn.Server):
    """A server that leaves signals to the tests."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


@asynccontextmanager
async def _serving(app: ASGIApp, listener: socket.socket) -> AsyncGenerator[None]:
    config = uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1, lifespan="on")
    server = _Server(config)
    before = asyncio.all_tasks()
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        server.should_exit = True
        await task
        for left in asyncio.all_tasks() - before:
            if "sse_starlette" in repr(left):  # it watches for the end of the process
                left.cancel()
