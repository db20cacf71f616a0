"""An HTTP server for callers with tokens, in which no caller can use up the connections of another.

A connection is unauthenticated until its first valid request. The number and lifetime of such connections are limited;
the oldest one makes room for a new one. Authenticated connections count towards their caller, which has a reserve.

`read_json` limits the size, duration and parsing cost of each request.
"""

import asyncio
import hmac
import json
import logging
import math
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from aiohttp import web

from ipybox.guest.tools.protocol import MAX_REQUEST_BYTES, RunReply
from ipybox.support.bounded_json import LARGE_BYTES, MAX_VALUES, exceeds_limit, loads, takes_long
from ipybox.support.limited_server import LimitedServer
from ipybox.support.listen import is_local
from ipybox.support.sizes import format_bytes
from ipybox.support.variables import MAX_INT_DIGITS
from ipybox.tool_exec.dispatch import ToolCaller

logger = logging.getLogger(__name__)

#: Maximum connections of all callers, and the number that each caller may open even if that maximum is reached.
MAX_CONNECTIONS = 256
CONNECTIONS_PER_CALLER = 32

#: Maximum unauthenticated connections, and the seconds until each is closed.
MAX_UNAUTHENTICATED = 256
AUTH_TIMEOUT = 10.0

#: Seconds until an idle connection is closed: long, because clients reuse their connections.
KEEPALIVE = 24 * 3600.0

#: Seconds for a whole request to arrive once the server starts reading it.
BODY_TIMEOUT = 60.0

#: Answers a caller's request, or raises a `DeniedError`.
Handler = Callable[[web.BaseRequest, ToolCaller], Awaitable[web.StreamResponse]]


class DeniedError(Exception):
    """The server refuses a request; the message says why."""

    def __init__(self, status: HTTPStatus, message: str):
        super().__init__(message)
        self.status = status


class HTTPAPI(LimitedServer):
    """Answers requests from callers with tokens, and refuses web pages. It has no listening socket.

    Args:
        callers: The callers by token; the mapping may change.
        handlers: The handlers of requests by method and path.
    """

    def __init__(self, callers: Mapping[str, ToolCaller], handlers: Mapping[tuple[str, str], Handler]):
        super().__init__(
            self._answer,
            MAX_UNAUTHENTICATED,
            AUTH_TIMEOUT,
            handler_cancellation=True,  # a disconnect cancels the call
            keepalive_timeout=KEEPALIVE,
            auto_decompress=False,
        )
        self._callers, self._handlers = callers, handlers
        #: The tokens of the authenticated connections.
        self._authenticated: dict[Any, str] = {}
        self._has_warned = False

    def connection_lost(self, handler: Any, exc: BaseException | None = None) -> None:
        """Removes a connection."""
        super().connection_lost(handler, exc)
        self._authenticated.pop(handler, None)

    def _admit(self, connection: Any, token: str) -> bool:
        """Returns whether a connection is within its caller's limit, and counts it."""
        if connection in self._authenticated:
            return True
        count = Counter(self._authenticated.values())[token]
        if count >= CONNECTIONS_PER_CALLER and len(self._authenticated) >= MAX_CONNECTIONS:
            if not self._has_warned:
                logger.warning("refused a connection of a kernel that has %d open; others are not logged", count)
                self._has_warned = True
            return False
        self.admit(connection)
        self._authenticated[connection] = token
        return True

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if "Origin" in request.headers or not is_local(request.host):
            return web.json_response(RunReply(error="requests from web pages are refused"), status=403)
        presented = request.headers.get("Authorization", "").encode(errors="replace")
        found = [token for token in self._callers if hmac.compare_digest(presented, f"token {token}".encode())]
        if not found:
            return web.json_response(RunReply(error="the request's token is missing or wrong"), status=401)
        if not self._admit(request.protocol, found[0]):
            problem = "the kernel has too many open connections to the tool server: use run_many for concurrent calls"
            error = RunReply(error=problem)
            return web.json_response(error, status=HTTPStatus.SERVICE_UNAVAILABLE, headers={"Connection": "close"})
        handler = self._handlers.get((request.method, request.path))
        if handler is None:
            return web.Response(status=404)
        caller = self._callers[found[0]]
        try:
            return await handler(request, caller)
        except DeniedError as exc:
            caller.recorder.denied("tool_server", [str(exc)])
            return web.json_response(RunReply(error=str(exc)), status=exc.status)


def _denied(status: HTTPStatus, reason: str) -> DeniedError:
    return DeniedError(status, f"the tool server refused the call: {reason}")


class ByteBudget:
    """Limits the total bytes of concurrent requests, from before each is read until it is answered."""

    def __init__(self, limit: int):
        self._free = limit
        self._freed = asyncio.Event()
        self._turn = asyncio.Lock()  # held while waiting, to admit requests in order

    @asynccontextmanager
    async def hold(self, size: int) -> AsyncGenerator[None]:
        """Reserves `size` bytes for the context; waits until they are free."""
        async with self._turn:
            while size > self._free:
                self._freed.clear()
                await self._freed.wait()
            self._free -= size
        try:
            yield
        finally:
            self._free += size
            self._freed.set()


async def _read_body(request: web.BaseRequest, limit: int, what: str) -> bytearray:
    if "Content-Encoding" in request.headers:
        raise _denied(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the request is compressed")
    if request.content_length is None:
        raise _denied(HTTPStatus.LENGTH_REQUIRED, "the request does not state its length")
    if request.content_length > limit:
        size, most = format_bytes(request.content_length), format_bytes(limit)
        raise _denied(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"{what} {size}; the limit is {most}")
    body = bytearray(request.content_length)
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            position = 0
            async for chunk in request.content.iter_any():  # unlike `read`, without a second copy in chunks
                body[position : position + len(chunk)] = chunk
                position += len(chunk)
    except TimeoutError:
        reason = f"the request did not arrive within {BODY_TIMEOUT:g} s"
        raise _denied(HTTPStatus.REQUEST_TIMEOUT, reason) from None
    if len(body) > MAX_VALUES and await exceeds_limit(body):
        reason = f"the request contains more than {MAX_VALUES:,} values: pass them as text"
        raise _denied(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason)
    return body


async def read_json(request: web.BaseRequest, limit: int | None = None, *, what: str = "the request is") -> object:
    """Returns the JSON value in a request's body; None if it is not JSON.

    Raises:
        DeniedError: If the body is too large, compressed, late, of unknown length, or too expensive to parse, or if a
            number is not finite or too long.
    """
    body = await _read_body(request, limit or MAX_REQUEST_BYTES, what)
    try:
        # Not request.json(): the sender could choose a codec that takes minutes.
        takes_thread = len(body) > LARGE_BYTES and takes_long(body)
        text = body.decode()
        del body
        if takes_thread:
            value = await asyncio.to_thread(loads, text, parse_constant=_finite, parse_float=_finite)
        else:
            value = json.loads(text, parse_constant=_finite, parse_float=_finite)
        if "\\" in text and ("\\ud" in text or "\\uD" in text):  # one character is found twenty times as fast
            await asyncio.to_thread(_check_text, value)
        return value
    except (json.JSONDecodeError, UnicodeError, RecursionError):
        return None
    except ValueError:
        reason = f"a number has more than {MAX_INT_DIGITS:,} digits: pass it as text"
        raise _denied(HTTPStatus.BAD_REQUEST, reason) from None


def _check_text(value: object) -> None:
    """Raises a UnicodeError if a text contains half a surrogate pair: an exporter would lose all spans of its batch."""
    for piece in json.JSONEncoder(ensure_ascii=False).iterencode(value):  # in pieces, so that other threads can run
        piece.encode()


def _finite(number: str) -> float:
    # Python's parser accepts infinities and NaN, which rules can't compare.
    value = float(number)
    if not math.isfinite(value):
        raise _denied(HTTPStatus.BAD_REQUEST, f"{number[:20]} is not a finite number: pass it as text")
    return value
