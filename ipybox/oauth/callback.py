"""Where the browser returns to after a person has signed in: a server on the loopback interface, for one answer.

https://www.rfc-editor.org/rfc/rfc8252#section-7.3
"""

import asyncio
import secrets
from contextlib import suppress
from typing import Self
from urllib.parse import parse_qs, urlsplit

from mcp.shared.auth import AuthorizationCodeResult

from ipybox.oauth.errors import SignInError
from ipybox.printable import printable

#: Seconds that a person has to sign in.
SIGN_IN_TIMEOUT = 300.0

# Seconds until a request must have come, once there is a connection: browsers open some for later.
_REQUEST_TIMEOUT = 30.0
_PATH = "/callback"


class CallbackServer:
    """Waits for the answer to one request for authorization; listens while its context is open.

    Args:
        redirect_uri: An address of this machine, if the authorization server insists on one; else any free port.
    """

    def __init__(self, redirect_uri: str | None = None):
        parts = urlsplit(redirect_uri or f"http://127.0.0.1:0{_PATH}")
        self._host, self._port, self._path = parts.hostname or "127.0.0.1", parts.port or 0, parts.path or "/"
        self._given = redirect_uri
        self._state = secrets.token_urlsafe()  # of nobody, until it is known
        self._answer: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()
        self._connections: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        try:
            self._server = await asyncio.start_server(self._serve, self._host, self._port)
        except OSError as exc:
            raise SignInError(f"can't listen on {self._given} for the end of the sign-in: {exc.strerror}") from exc
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for connection in self._connections:
            connection.transport.abort()
        await self._server.wait_closed()
        self._answer.cancel()

    @property
    def uri(self) -> str:
        """The address to return to (`redirect_uri`)."""
        return self._given or f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}{_PATH}"

    def expect(self, authorization_url: str) -> None:
        """Takes an answer to this request for authorization only, which shows by its `state`."""
        self._state = parse_qs(urlsplit(authorization_url).query)["state"][0]

    async def result(self) -> AuthorizationCodeResult:
        """Waits for the answer.

        Raises:
            SignInError: It is a refusal, or the time is over.
        """
        try:
            async with asyncio.timeout(SIGN_IN_TIMEOUT):
                return await self._answer
        except TimeoutError:
            raise SignInError(f"nobody signed in within {SIGN_IN_TIMEOUT:g} s") from None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            with suppress(asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ConnectionError):
                async with asyncio.timeout(_REQUEST_TIMEOUT):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(_page(*self._take(head.decode("latin-1"))))
                    await writer.drain()
        finally:
            self._connections.discard(writer)
            writer.close()

    def _take(self, head: str) -> tuple[str, str]:
        """Takes what a request brings; returns the status and the text of the answer to it."""
        method, _, rest = head.partition(" ")
        target = urlsplit(rest.partition(" ")[0])
        if method != "GET" or target.path != self._path:
            return "404 Not Found", "There is nothing here."
        query = {name: values[0] for name, values in parse_qs(target.query).items()}
        if not secrets.compare_digest(query.get("state", "").encode(), self._state.encode()) or self._answer.done():
            return "400 Bad Request", "This is no answer to the sign-in that ipybox waits for."
        if "code" in query:
            result = AuthorizationCodeResult(code=query["code"], state=query.get("state"), iss=query.get("iss"))
            self._answer.set_result(result)
            return "200 OK", "You are signed in: you can close this page and return to ipybox."
        reason = ": ".join(printable(query[key])[:200] for key in ("error", "error_description") if key in query)
        self._answer.set_exception(SignInError(f"the sign-in was refused: {reason or 'no reason was given'}"))
        return "200 OK", "You are not signed in: you can close this page."


def _page(status: str, text: str) -> bytes:
    body = f"<!doctype html><title>ipybox</title><p>{text}</p>".encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
