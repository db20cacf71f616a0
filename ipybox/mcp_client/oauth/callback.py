"""The address to which the browser returns after a sign-in: a server on the loopback interface, for one response.

https://www.rfc-editor.org/rfc/rfc8252#section-7.3
"""

import asyncio
import secrets
from collections.abc import Mapping
from typing import Self
from urllib.parse import parse_qs, urlsplit

from aiohttp import web
from mcp.shared.auth import AuthorizationCodeResult

from ipybox.mcp_client.oauth import SignInError
from ipybox.support.limited_server import LimitedServer
from ipybox.support.printable import printable

#: Seconds in which a person must sign in.
SIGN_IN_TIMEOUT = 300.0

# Seconds for the browser to receive the final page, before its connection is closed.
_PAGE_TIMEOUT = 1.0
_PATH = "/callback"

# Maximum open connections, and seconds for each: any program on this machine can connect.
_MAX_CONNECTIONS = 32
_CONNECTION_TIMEOUT = 10.0


class CallbackServer:
    """Waits for the response to one authorization request; listens while its context is open.

    Args:
        redirect_uri: An address on this machine, if the authorization server requires one; by default any free port.
    """

    def __init__(self, redirect_uri: str | None = None):
        parts = urlsplit(redirect_uri or f"http://127.0.0.1:0{_PATH}")
        self._host, self._port, self._path = parts.hostname or "127.0.0.1", parts.port or 0, parts.path or "/"
        self._given = redirect_uri
        self._state = secrets.token_urlsafe()  # matches no request until `expect`
        self._answer: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()
        server = LimitedServer(self._serve, _MAX_CONNECTIONS, _CONNECTION_TIMEOUT)
        self._runner = web.ServerRunner(server, shutdown_timeout=_PAGE_TIMEOUT)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port).start()
        except OSError as exc:
            await self._runner.cleanup()
            raise SignInError(f"can't listen on {self._given} for the sign-in: {exc.strerror}") from exc
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        self._answer.cancel()

    @property
    def uri(self) -> str:
        """The address to return to (`redirect_uri`)."""
        return self._given or f"http://127.0.0.1:{self._runner.addresses[0][1]}{_PATH}"

    def expect(self, authorization_url: str) -> None:
        """Accepts only responses to this authorization request, by their `state`."""
        states = parse_qs(urlsplit(authorization_url).query).get("state")
        if not states:
            raise SignInError("the authorization server's address for sign-ins has a fragment, which hides the request")
        self._state = states[-1]  # the SDK's: what the authorization server has in its address comes before it

    async def result(self) -> AuthorizationCodeResult:
        """Waits for the response.

        Raises:
            SignInError: If the user or the server declines, or after `SIGN_IN_TIMEOUT`.
        """
        try:
            async with asyncio.timeout(SIGN_IN_TIMEOUT):
                return await self._answer
        except TimeoutError:
            raise SignInError(f"nobody signed in within {SIGN_IN_TIMEOUT:g} s") from None

    async def _serve(self, request: web.BaseRequest) -> web.Response:
        if (request.method, request.path) != ("GET", self._path):
            return web.Response(status=404)
        status, text = self._handle_response(request.query)
        page = web.Response(
            status=status,
            text=f"<!doctype html><title>ipybox</title><p>{text}</p>",
            content_type="text/html",
            headers={"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"},
        )
        page.force_close()
        return page

    def _handle_response(self, query: Mapping[str, str]) -> tuple[int, str]:
        """Handles a response of the browser; returns the status and the text of the page."""
        if not secrets.compare_digest(query.get("state", "").encode(), self._state.encode()) or self._answer.done():
            return 400, "This doesn't belong to the sign-in that ipybox is waiting for."
        if query.get("code"):
            result = AuthorizationCodeResult(code=query["code"], state=query["state"], iss=query.get("iss") or None)
            self._answer.set_result(result)
            return 200, "You're signed in. You can close this page and return to ipybox."
        reason = ": ".join(printable(query[key])[:200] for key in ("error", "error_description") if query.get(key))
        self._answer.set_exception(SignInError(f"the sign-in was refused: {reason or 'no reason was given'}"))
        return 200, "You're not signed in. You can close this page."
