"""Access control for `KernelRelay`: requests need its token, and web pages are refused."""

import hmac
from urllib.parse import urlsplit

from aiohttp import web

from ipybox.support.listen import is_local


def refusal(request: web.Request, token: str) -> tuple[int, str] | None:
    """Returns the HTTP status and reason for refusing a request; None if it is accepted.

    Clients send `Authorization: token <token>` (or `Bearer`), or add `?token=` to the URL.
    """
    if not is_local(request.host) or not _is_local_origin(request.headers.get("Origin")):
        return 403, "requests from web pages are refused"
    if not hmac.compare_digest(_presented(request).encode(errors="replace"), token.encode()):
        return 401, "the token is missing or wrong"
    return None


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
