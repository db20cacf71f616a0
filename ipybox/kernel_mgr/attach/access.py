"""Which requests a `KernelRelay` accepts: those with its token, and none of a web page."""

import hmac
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Middleware

from ipybox.support.listen import is_local

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def error(status: int, message: str) -> web.Response:
    """Returns an answer that Jupyter clients show."""
    return web.json_response({"message": message, "reason": message}, status=status)


def access_check(token: str) -> Middleware:
    """Returns a middleware that accepts requests with the token, as Jupyter clients send it.

    The header is `Authorization: token <token>`, or `Bearer`; clients without it add `?token=` to the address.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not is_local(request.host) or not _is_local_origin(request.headers.get("Origin")):
            return error(403, "requests from web pages are refused")
        presented = _presented(request).encode(errors="replace")
        if not hmac.compare_digest(presented, token.encode()):
            return error(401, "the token is missing or wrong")
        return await handler(request)

    return check


def _presented(request: web.Request) -> str:
    scheme, _, credentials = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() in ("token", "bearer"):
        return credentials.strip()
    return request.query.get("token", "")


def _is_local_origin(origin: str | None) -> bool:
    try:
        return origin is None or is_local(urlsplit(origin).netloc)
    except ValueError:
        return False
