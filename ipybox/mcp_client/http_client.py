"""The HTTP client for one remote MCP server. A failed request or an unreadable answer affects no other request.

If a POST fails, the SDK ends the connection or drops the reason. So failures are hidden from it: they are reported to
the connection, and the SDK gets an empty response. Answers are converted to messages that it can read (`messages.py`).
"""

import codecs
import html
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import urljoin, urlsplit

import anyio
import httpx2
from mcp_types import METHOD_NOT_FOUND, JSONRPCError, RequestId
from pydantic_core import from_json

from ipybox.mcp_client.http import BoundedStream, FewCookies, Reach, bounded, trusted_authorities
from ipybox.mcp_client.messages import Wire, encode, error_reply, read_answer, read_messages, validated
from ipybox.mcp_client.oauth import SignInError
from ipybox.mcp_client.params import RemoteParams, public_url

if TYPE_CHECKING:
    from ipybox.mcp_client.connection import ClientConnection

#: Maximum characters of an HTTP response that an error quotes.
MAX_REASON = 1000

#: Milliseconds to wait before an event stream is reopened, and maximum bytes of the event id that this repeats.
MIN_RETRY, MAX_RETRY = 100, 3_600_000
MAX_EVENT_ID = 1000

_WRITE_TIMEOUT = 30.0
# How long a server may take to acknowledge the end of an HTTP session.
_DELETE_TIMEOUT = 1.0
# How long the body of a response with an error status may take.
_REASON_TIMEOUT = 2.0
# Bytes at the start of a body that are searched for the reason.
_SEARCHED = 100_000

#: Hosts to which no proxy of the environment applies: it would look for the server on its own machine.
_UNPROXIED = {f"all://{host}": None for host in ("localhost", "127.0.0.1", "[::1]")}

_BEFORE_SENDING = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.LocalProtocolError,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
)

_SESSION = "mcp-session-id"
_LOOKS_LIKE_JSON = re.compile(rb"(?:\xef\xbb\xbf)?\s*+[\[{]")
_MARKUP = re.compile(r"<(?:script|style)\b[^<]*+|<[^<>]*+>?", re.IGNORECASE)


#: What is known about a failed request: it did not reach the server, the server may or may not have executed it, the
#: server refused it, or the server did not execute it because it no longer knows the session.
Outcome = Literal["unsent", "unknown", "refused", "expired"]


@dataclass(frozen=True)
class PostFailure:
    """Why a message could not be posted, or got no answer."""

    outcome: Outcome
    #: The status and the reason that the server gives, or the exception of the HTTP library.
    reason: str | Exception


class MCPHTTPClient(httpx2.AsyncClient):
    """Sends the requests of the SDK's transports, and reports failures to the connection instead of to them."""

    def __init__(self, connection: "ClientConnection", server: RemoteParams):
        reach = Reach(server.url, trusted=server.oauth.issuer if server.oauth is not None else None)
        if not server.has_credentials:
            # Imported here, because only remote servers need its modules.
            from ipybox.mcp_client.oauth.authenticator import Authenticator

            connection.auth = Authenticator(server, connection.sign_in, connection.limits.paused, reach)
        super().__init__(
            headers=server.headers,
            # No limit on reading: the caller limits the time of a tool call, and an event stream may be idle.
            timeout=httpx2.Timeout(None, connect=connection.connect_timeout, write=_WRITE_TIMEOUT),
            auth=connection.auth,
            cookies=FewCookies(),
            event_hooks=bounded(
                reach,
                is_server=True,
                limit=connection.message_limit,
                on_excess=connection.mark_ended,
            ),
            verify=trusted_authorities(),
            mounts=_UNPROXIED,
        )
        self._connection = connection
        # Whether answers arrive in the response to a GET instead of the POST.
        self._sse = server.kind == "sse"

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Sends a request; all requests of the SDK pass through here."""
        if request.method == "POST":
            return await self._post(request, options)
        if request.method == "DELETE":
            request.extensions = {**request.extensions, "timeout": httpx2.Timeout(_DELETE_TIMEOUT).as_dict()}
        response = await super().send(request, **options)
        if response.is_error:
            await _read_reason(response)
        elif _media_type(response) == "text/event-stream":
            _rewrite_events(response, partial(self._read_event, str(request.url)))
        return response

    async def _post(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Response:
        request_id = _request_id(await request.aread())
        try:
            response = await super().send(request, **options)
            answer = await self._answer(request_id, request, response)
        except (*_BEFORE_SENDING, SignInError) as exc:
            answer = PostFailure("unsent", exc)
        except (httpx2.RequestError, OSError) as exc:
            answer = PostFailure("unknown", exc)
        if isinstance(answer, httpx2.Response):
            return answer
        if isinstance(answer, JSONRPCError):
            await self._connection.add_message(answer)
        elif request_id is not None:
            await self._connection.post_failed(request_id, answer)
        return httpx2.Response(202, request=request)

    async def _answer(
        self, request_id: RequestId | None, request: httpx2.Request, response: httpx2.Response
    ) -> httpx2.Response | JSONRPCError | PostFailure:
        """Returns a response that the SDK can read, or the failure."""
        if response.next_request is not None:
            return response  # the SDK follows redirects, or says why not
        if not response.is_success:
            return _refusal(request_id, request, response, await _read_reason(response))
        if request_id is None or self._sse or response.status_code == 202:
            return response
        if _media_type(response) == "text/event-stream":
            _rewrite_events(response, partial(self._read_answer_event, request_id))
            return response
        async with aclosing(response):
            body = await response.aread()
        if _media_type(response) != "application/json" and not _LOOKS_LIKE_JSON.match(body):
            answered = _media_type(response) or f"HTTP {response.status_code} without a content type"
            text = _reason(body) or "nothing more"
            return PostFailure("refused", f"not an MCP server: it responded with {answered}: {text}")
        reply = await self._pass_on(request_id, read_answer(body, request_id))
        if reply is None:
            reply = error_reply(request_id, "the server's response contains no reply")
        headers = {"Content-Type": "application/json"}
        if session := response.headers.get(_SESSION):
            headers[_SESSION] = session
        return httpx2.Response(200, headers=headers, content=encode(reply), request=request)

    async def _pass_on(self, request_id: RequestId | None, messages: Sequence[Wire]) -> Wire | None:
        """Passes messages to the session. If the last one is the reply to a request, returns another for the SDK.

        The SDK would parse and print them again. It gets an empty reply, which is late, to know that the request ended.
        """
        for message in messages:
            with suppress(ValueError):  # a request with parameters that are no object
                await self._connection.add_message(validated(message))
        replied = request_id is not None and messages and "method" not in messages[-1]
        return {"jsonrpc": "2.0", "id": request_id, "result": {}} if replied else None

    async def _read_event(self, url: str, data: bytes) -> bytes:
        """Returns an event of a stream that all requests share, in a form that the SDK can read."""
        event = Event(data)
        if event.name == b"endpoint" and self._sse:
            endpoint = urljoin(url, event.data.decode(errors="replace"))
            if urlsplit(endpoint)[:2] != urlsplit(url)[:2]:
                self._connection.mark_ended(
                    f"it asks for messages to be sent to {public_url(endpoint)}, whose origin differs from its own "
                    "URL's: correct the server's public address in its settings, or register it under that origin if "
                    "you can reach it there"
                )
            return data
        if not event.holds_message:
            return event.encoded()
        try:
            await self._pass_on(None, read_messages(event.data))
        except ValueError:
            self._connection.note_noise(event.data.decode(errors="replace"))
        return event.encoded()

    async def _read_answer_event(self, request_id: RequestId, data: bytes) -> bytes:
        """Returns an event in the answer to a request, in a form that the SDK can read."""
        event = Event(data)
        messages = read_answer(event.data, request_id) if event.holds_message else ()
        return event.encoded(await self._pass_on(request_id, messages))


def http_reason(response: httpx2.Response) -> str:
    """Returns the status of a response and the reason in its body, if that was read."""
    try:
        reason = _reason(response.content)
    except httpx2.ResponseNotRead:
        reason = ""
    status = f"HTTP {response.status_code}"
    return f"{status}: {reason}" if reason else f"{status} {response.reason_phrase}".rstrip()


def _rewrite_events(response: httpx2.Response, rewrite: Callable[[bytes], Awaitable[bytes]]) -> None:
    cast(BoundedStream, response.stream).rewrite = rewrite  # set by the event hooks


class Event:
    """An event of a stream. The SDK accepts any id and any delay, even a negative one, and so gets only usual ones."""

    def __init__(self, event: bytes):
        self.name = b""
        self._kept: dict[bytes, bytes] = {}
        data: list[bytes] = []
        for line in event.splitlines():
            field, _, value = line.removeprefix(codecs.BOM_UTF8).partition(b":")
            value = value.removeprefix(b" ")
            match field:
                case b"event":
                    self.name = value
                case b"data":
                    data.append(value)
                case b"id" if len(value) <= MAX_EVENT_ID:
                    self._kept[field] = value
                case b"retry" if value.isdigit():
                    digits = value.lstrip(b"0")[:8] or b"0"
                    self._kept[field] = b"%d" % min(max(int(digits), MIN_RETRY), MAX_RETRY)
                case _:
                    pass
        self.data = b"\n".join(data)

    @property
    def holds_message(self) -> bool:
        """Whether its data are an MCP message."""
        return bool(self.data) and (self.name in (b"", b"message") or b'"jsonrpc"' in self.data)

    def encoded(self, message: Wire | None = None) -> bytes:
        """Returns an event with a message as its data, or without data."""
        kept = [b"%b: %b\n" % item for item in self._kept.items()]
        return b"".join([*kept, b"data:", b"" if message is None else encode(message), b"\n\n"])


def _refusal(
    request_id: RequestId | None, request: httpx2.Request, response: httpx2.Response, body: bytes
) -> JSONRPCError | PostFailure:
    """Returns the server's reply in a response with an error status, or else the failure."""
    reason = http_reason(response)
    error = None
    if request_id is not None and _LOOKS_LIKE_JSON.match(body) and b'"jsonrpc"' in body:
        replies = read_answer(body, request_id)[-1:]
        message = validated(replies[0]) if replies and "error" in replies[0] else None
        error = message if isinstance(message, JSONRPCError) else None
    if _SESSION in request.headers and (
        # The specification demands 404. Other servers say it in words, such as the reference servers with 400.
        (response.status_code == HTTPStatus.NOT_FOUND and (error is None or error.error.code != METHOD_NOT_FOUND))
        or (response.is_client_error and "session" in reason.lower())
    ):
        return PostFailure("expired", reason)
    return error or PostFailure("refused", reason)


async def _read_reason(response: httpx2.Response) -> bytes:
    """Returns the body of a response with an error status; empty if it doesn't arrive in time."""
    async with aclosing(response):
        with suppress(httpx2.RequestError, OSError), anyio.move_on_after(_REASON_TIMEOUT):
            return await response.aread()
    return b""  # the status says enough


def _reason(body: bytes) -> str:
    """Returns the readable text of a body, which may be a page."""
    text = body[:_SEARCHED].decode(errors="replace").strip()
    if text.startswith("<"):
        with suppress(ValueError):  # it refers to a character by thousands of digits
            text = html.unescape(_MARKUP.sub(" ", text))
    text = " ".join(text.split())
    return text if len(text) <= MAX_REASON else f"{text[:MAX_REASON]}…"


def _media_type(response: httpx2.Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def _request_id(body: bytes) -> RequestId | None:
    """Returns the id of a request that is posted; None for a notification or a reply."""
    message = from_json(body)
    return message.get("id") if "method" in message else None
