"""Limits what a remote MCP server can make the host do over HTTP: where requests go, and what responses may cost.

A server's metadata name authorization servers, and those name further URLs. Requests to them may go no nearer to this
machine than the MCP server itself is (`Zone`, `Reach`). DNS may answer differently each time, so the address is checked
when a connection is made, before anything is sent over it. A proxy resolves names itself: behind one, only hosts that
are addresses can be checked.

Responses are decoded as UTF-8, whatever their headers say, because some of Python's codecs take minutes. The size of a
response or event, and its number of values, are checked before the SDK parses it. Compressed responses, which
nobody asked for, are decompressed here: httpx2 keeps whatever follows the end of the compressed content, without a
limit, and copies it for each chunk. Event streams are not, because 20 KB could contain millions of events.

Hooks of the HTTP library do this for every request, including those of sign-ins.
"""

import asyncio
import re
import socket
import ssl
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from http.cookiejar import CookieJar
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Any

import httpx2

from ipybox.support.bounded_json import MAX_MESSAGE_BYTES, ExcessError, MessageLimit

# IPv6 addresses that networks translate to the IPv4 address at their end: https://www.rfc-editor.org/rfc/rfc6052
_TRANSLATED = IPv6Network("64:ff9b::/96")

# The end of a line, and an empty line: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
_EVENT_END = re.compile(rb"(?>\r\n|\r|\n)(?>\r\n|\r|\n)")
_LONGEST_END = 4

#: Maximum bytes that are decompressed at once.
_DECODED = 1 << 20

#: How many small chunks a response or event may have, and bytes that allow another one: each takes 6 µs.
_MAX_CHUNKS, _CHUNK = 10_000, 100

#: Maximum number of cookies that a server sets. Each request sends all of them.
MAX_COOKIES = 100

#: Maximum number of lines in an event. In memory, lines take a hundred times as much as their bytes.
MAX_EVENT_LINES = 1_000_000


@cache
def trusted_authorities() -> ssl.SSLContext:
    """Returns httpx2's TLS settings, loaded once: httpx2 spends 20 ms on them for each client, even without TLS."""
    return httpx2.create_ssl_context()


class Zone(IntEnum):
    """The location of an address, from far to near; cloud metadata services are link-local."""

    INTERNET = 0
    PRIVATE = 1
    LINK_LOCAL = 2
    LOOPBACK = 3

    def __str__(self) -> str:
        return ("on the internet", "on a private network", "at a link-local address", "on this machine")[self]


class OutOfReachError(httpx2.ConnectError):
    """A request would go nearer to this machine than its MCP server is."""


class ExcessiveResponseError(httpx2.ReadError):
    """A response exceeds a limit."""


class Reach:
    """Decides where requests on behalf of one MCP server may go.

    Args:
        url: The server.
        trusted: A URL that the user has configured: requests may always go to its origin.
    """

    def __init__(self, url: str, trusted: str | None = None):
        self._host = httpx2.URL(url).host
        self._trusted = None if trusted is None else origin(httpx2.URL(trusted))
        # The farthest zone of any connection to the server.
        self._zone: Zone | None = None

    def learn(self, zone: Zone) -> None:
        """Records the zone of a connection to the server."""
        self._zone = zone if self._zone is None else min(zone, self._zone)

    async def check(self, url: httpx2.URL, zone: Zone | None = None) -> None:
        """Checks a request before it is sent, or once the zone of its connection is known.

        Raises:
            OutOfReachError: If the request must not go to the URL.
        """
        zone = _zone_of_name(url.host) if zone is None else zone
        if zone is None or zone is Zone.INTERNET or origin(url) == self._trusted:
            return
        own = await self._own_zone()
        if zone > own:
            raise OutOfReachError(f"{url.host} is {zone}, but the MCP server is {own}")

    async def _own_zone(self) -> Zone:
        """Returns the zone of the server, even before the first connection to it."""
        if self._zone is None:
            self._zone = _zone_of_name(self._host)
        if self._zone is None:
            try:
                found = await asyncio.get_running_loop().getaddrinfo(self._host, None, type=socket.SOCK_STREAM)
                self._zone = min(zone_of(str(address[0])) for *_, address in found)
            except OSError:
                return Zone.INTERNET  # a proxy may resolve the name
        return self._zone


def zone_of(address: str) -> Zone:
    """Returns the zone of an IP address.

    Raises:
        ValueError: If it is not an IP address.
    """
    ip = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv6Address):
        if ip.is_site_local:
            return Zone.PRIVATE
        translated = ip_address(int(ip) & 0xFFFF_FFFF) if ip in _TRANSLATED else None
        ip = ip.ipv4_mapped or ip.sixtofour or translated or ip
    if ip.is_loopback or ip.is_unspecified:
        return Zone.LOOPBACK
    if ip.is_link_local:
        return Zone.LINK_LOCAL
    return Zone.INTERNET if ip.is_global else Zone.PRIVATE


def bounded(
    reach: Reach,
    *,
    is_server: bool,
    max_bytes: int = MAX_MESSAGE_BYTES,
    limit: MessageLimit | None = None,
    on_excess: Callable[[ExcessError], None] = lambda exc: None,
) -> dict[str, list[Callable[..., Any]]]:
    """Returns hooks that limit an `httpx2.AsyncClient` (its `event_hooks`).

    Args:
        reach: Where requests may go.
        is_server: Whether they go to the MCP server itself, whose address then defines the reach.
        max_bytes: Maximum bytes of a response, or of an event in an event stream.
        limit: The limit of each response or event, which is checked before it is parsed.
        on_excess: Called if a response exceeds a limit; its request fails.
    """

    async def before(request: httpx2.Request) -> None:
        await reach.check(request.url)
        request.headers["Accept-Encoding"] = "identity"
        request.extensions = {**request.extensions, "trace": trace(request)}

    def trace(request: httpx2.Request) -> Callable[[str, dict[str, Any]], Any]:
        host = ""

        async def observe(event: str, info: dict[str, Any]) -> None:
            # https://www.encode.io/httpcore/extensions/#trace
            nonlocal host
            if event == "connection.connect_tcp.started":
                host = info["host"]
            # Otherwise it is the connection to a proxy.
            elif event == "connection.connect_tcp.complete" and host == request.url.raw_host.decode("ascii"):
                stream = info["return_value"]
                zone = zone_of(stream.get_extra_info("server_addr")[0])
                if is_server:
                    reach.learn(zone)
                try:
                    await reach.check(request.url, zone)
                except OutOfReachError:
                    await stream.aclose()
                    raise

        return observe

    async def after(response: httpx2.Response) -> None:
        response.encoding = "utf-8"
        events = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        encoding = response.headers.pop("content-encoding", "identity").strip().lower()
        if encoding not in ("identity", "") and (events or encoding != "gzip"):
            what = "an event stream" if events else "a response"
            raise httpx2.DecodingError(f"{what} with the content encoding {encoding[:100]!r} is not supported")
        received = httpx2.Response(200, stream=response.stream, request=response.request)
        response.stream = BoundedStream(
            received, max_bytes, limit or MessageLimit(), events, encoding == "gzip", on_excess
        )

    return {"request": [before], "response": [after]}


@dataclass(eq=False)
class BoundedStream(httpx2.AsyncByteStream):
    """A response's body, in checked pieces: single events, or all of it; see `bounded`."""

    response: httpx2.Response
    max_bytes: int
    limit: MessageLimit
    events: bool
    gzip: bool
    on_excess: Callable[[ExcessError], None]
    #: Returns the replacement for an event.
    rewrite: Callable[[bytes], Awaitable[bytes]] | None = None

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        try:
            async with aclosing(self._pieces()) as pieces:
                async for piece, is_event in pieces:
                    await self.limit.check(piece)
                    if self.events and piece.count(b"\n") + piece.count(b"\r") > MAX_EVENT_LINES:
                        raise ExcessError(f"{MAX_EVENT_LINES:,} lines")
                    yield await self.rewrite(piece) if is_event and self.rewrite is not None else piece
                    await asyncio.sleep(0)  # a chunk can contain thousands of events, which take half a second
        except ExcessError as exc:
            self.on_excess(exc)
            raise ExcessiveResponseError(str(exc)) from None

    async def aclose(self) -> None:
        """Closes the response."""
        await self.response.aclose()

    async def _pieces(self) -> AsyncGenerator[tuple[bytes, bool]]:
        pending, chunks = bytearray(), 0
        async with aclosing(self._decoded()) as decoded:
            async for data in decoded:
                chunks += 1
                searched = max(len(pending) - _LONGEST_END, 0)
                pending += data
                start = 0
                for end in [found.end() for found in _EVENT_END.finditer(pending, searched)] if self.events else ():
                    yield bytes(pending[start:end]), True
                    start, chunks = end, 0
                del pending[:start]
                if len(pending) > self.max_bytes:
                    raise ExcessError(f"{self.max_bytes:,} bytes")
                if chunks > _MAX_CHUNKS + len(pending) // _CHUNK:
                    raise ExcessError(f"{_MAX_CHUNKS:,} small chunks")
        yield bytes(pending), False

    async def _decoded(self) -> AsyncGenerator[bytes]:
        """Yields the content as it arrives; what follows the end of compressed content is not read."""
        decoder, chunks = zlib.decompressobj(zlib.MAX_WBITS | 16), 0
        async with aclosing(self.response.aiter_raw()) as received:
            async for data in received:
                chunks += 1
                if chunks % _CHUNK == 0:
                    await asyncio.sleep(0)  # many arrive at once
                while data and self.gzip and not decoder.eof:
                    try:
                        yield decoder.decompress(data, _DECODED)
                    except zlib.error as exc:
                        raise httpx2.DecodingError(str(exc)) from exc
                    data = decoder.unconsumed_tail
                    await asyncio.sleep(0)
                if decoder.eof:
                    return
                if not self.gzip:
                    yield data


class FewCookies(CookieJar):
    """The cookies of a server, which are forgotten if there are too many."""

    def extract_cookies(self, response: Any, request: Any) -> None:
        """Adds the cookies of a response."""
        if len(response.info().get_all("Set-Cookie", [])) <= MAX_COOKIES:
            super().extract_cookies(response, request)
        if len(self) > MAX_COOKIES:
            self.clear()


def _zone_of_name(host: str) -> Zone | None:
    """Returns the zone of a host, if its name implies one."""
    host = host.removesuffix(".")
    if host == "localhost" or host.endswith(".localhost"):
        return Zone.LOOPBACK
    with suppress(ValueError):
        return zone_of(host)
    with suppress(OSError, ValueError):  # another form of an IPv4 address, such as 127.1 or 0x7f000001
        return zone_of(socket.inet_ntoa(socket.inet_aton(host)))
    return None


def origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    """Returns the origin of a URL: scheme, host, and port, which is None for the scheme's default."""
    return url.scheme, url.host, url.port
