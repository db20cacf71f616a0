"""Limits on the size, duration and parsing cost of kernels' requests."""

import asyncio
import json
import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from http import HTTPStatus

from aiohttp import StreamReader, web

from ipybox.guest.tools.protocol import MAX_REQUEST_BYTES
from ipybox.support.bounded_json import LARGE_BYTES, MAX_VALUES, exceeds_value_limit, loads
from ipybox.support.sizes import format_bytes
from ipybox.support.variables import MAX_INT_DIGITS

#: Seconds for a whole request to arrive once the server starts reading it.
BODY_TIMEOUT = 60.0


class DeniedError(Exception):
    """The server refuses a request; the message says why."""

    def __init__(self, status: HTTPStatus, message: str):
        super().__init__(message)
        self.status = status


def _refused(status: HTTPStatus, reason: str) -> DeniedError:
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


async def read_body(request: web.BaseRequest, limit: int | None = None, *, what: str = "the request is") -> bytearray:
    """Returns the body of a request that states its length.

    Raises:
        DeniedError: If the body is too large, compressed, late, of unknown length, or too expensive to parse.
    """
    if "Content-Encoding" in request.headers:
        raise _refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the request is compressed")
    if request.content_length is None:
        raise _refused(HTTPStatus.LENGTH_REQUIRED, "the request does not state its length")
    limit = limit or MAX_REQUEST_BYTES
    if request.content_length > limit:
        size, most = format_bytes(request.content_length), format_bytes(limit)
        raise _refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"{what} {size}; the limit is {most}")
    body = bytearray(request.content_length)
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            await _read_into(body, request.content)
    except TimeoutError:
        reason = f"the request did not arrive within {BODY_TIMEOUT:g} s"
        raise _refused(HTTPStatus.REQUEST_TIMEOUT, reason) from None
    if exceeds_value_limit(body):
        reason = f"the request contains more than {MAX_VALUES:,} values: pass them as text"
        raise _refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason)
    return body


async def _read_into(body: bytearray, content: StreamReader) -> None:
    """Fills a body: unlike `StreamReader.read`, without a second copy of it in chunks."""
    position = 0
    async for chunk in content.iter_any():
        body[position : position + len(chunk)] = chunk
        position += len(chunk)


async def read_json(request: web.BaseRequest, limit: int | None = None, *, what: str = "the request is") -> object:
    """Returns the JSON value in a request's body; None if it is not JSON.

    Raises:
        DeniedError: As in `read_body`, or if a number is not finite or too long.
    """
    body = await read_body(request, limit, what=what)
    try:
        # Not request.json(): the sender could choose a codec that takes minutes.
        if len(body) > LARGE_BYTES:
            text = body.decode(errors="surrogatepass")
            del body
            return await asyncio.to_thread(loads, text, parse_constant=_finite, parse_float=_finite)
        return json.loads(body, parse_constant=_finite, parse_float=_finite)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        return None
    except ValueError:
        reason = f"a number has more than {MAX_INT_DIGITS:,} digits: pass it as text"
        raise _refused(HTTPStatus.BAD_REQUEST, reason) from None


def _finite(number: str) -> float:
    # Python's parser accepts infinities and NaN, which rules can't compare.
    value = float(number)
    if not math.isfinite(value):
        raise _refused(HTTPStatus.BAD_REQUEST, f"{number[:20]} is not a finite number: pass it as text")
    return value
