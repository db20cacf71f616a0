"""HTTP and WebSocket clients for the kernel gateway and the tool server, over private sockets or TCP with a token.

For the application only: it imports aiohttp, which `ipybox.guest` and kernels do without.
"""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest
from aiohttp.tracing import Trace

from ipybox.support.tokens import Kind, find_token

Dial = Callable[[], socket.socket]

#: Maximum bytes of an answer.
MAX_ANSWER_BYTES = 1 << 20


class _FinalAnswers(ResponseHandler):
    """Closes a connection on which an answer announces another one: a hostile gateway could send them without end."""

    def feed_data(self, data: Any, size: int = 0) -> None:
        if data[0].code < HTTPStatus.OK and data[0].code != HTTPStatus.SWITCHING_PROTOCOLS:
            self.close()
        else:
            super().feed_data(data, size)


class SocketConnector(aiohttp.BaseConnector):
    """Creates aiohttp's connections from connected sockets that `dial` returns."""

    def __init__(self, dial: Dial):
        super().__init__(limit=0)
        self._dial = dial

    async def _create_connection(
        self, req: ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        loop = self._loop
        _, protocol = await loop.create_connection(partial(_FinalAnswers, loop), sock=self._dial())
        return protocol

    # Nothing can be closed after its event loop. aiohttp would print tracebacks; the executor reports it.

    @property
    def closed(self) -> bool:
        """Whether the connector, or its event loop, is closed."""
        return super().closed or self._loop.is_closed()

    def _release(self, *args: Any, **kwargs: Any) -> None:
        if not self.closed:
            super()._release(*args, **kwargs)

    def __del__(self, *args: Any) -> None:
        if not self.closed:
            super().__del__(*args)


@dataclass(frozen=True)
class Endpoint:
    """The address of a component: `dial`, which returns a connected socket, or else a host and port."""

    kind: Kind
    host: str = "localhost"
    port: int | None = None
    #: The token of requests; by default the one that the component has published on this machine.
    token: str | None = field(default=None, repr=False)
    dial: Dial | None = None
    #: Whether programs between this process and the component, such as `srun`, delay small messages.
    relayed: bool = False

    @property
    def url(self) -> str:
        """The URL that the paths of requests are appended to."""
        if self.dial is not None:
            return "http://localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def session(self) -> aiohttp.ClientSession:
        """Returns a new HTTP session for this endpoint, which the caller closes. Read answers with `read_answer`.

        It does not trust the component: it follows no redirects, which could lead anywhere, and decompresses nothing.
        """
        tracing = aiohttp.TraceConfig()
        if self.token or self.dial is None:
            tracing.on_request_start.append(self._authorize)
        tracing.on_request_redirect.append(_refuse_redirection)  # `ws_connect` has no parameter for that
        return aiohttp.ClientSession(
            self.url,
            connector=None if self.dial is None else SocketConnector(self.dial),
            headers={"Accept-Encoding": "identity"},
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
            trace_configs=[tracing],
        )

    async def _authorize(
        self, _session: aiohttp.ClientSession, _context: SimpleNamespace, params: aiohttp.TraceRequestStartParams
    ) -> None:
        """Adds the token to a request; looks it up each time, because a restarted component has a new one."""
        token = self.token
        if token is None and self.dial is None and self.port is not None:
            token = find_token(self.kind, self.port)
        if token:
            params.headers["Authorization"] = f"token {token}"


async def read_answer(response: aiohttp.ClientResponse) -> bytes:
    """Returns the body of an answer; raises a ClientPayloadError if it is larger than `MAX_ANSWER_BYTES`."""
    try:
        await response.content.readexactly(MAX_ANSWER_BYTES + 1)
    except asyncio.IncompleteReadError as exc:
        return exc.partial
    raise aiohttp.ClientPayloadError(f"the response is larger than {MAX_ANSWER_BYTES >> 20} MiB")


async def _refuse_redirection(
    _session: aiohttp.ClientSession, _context: SimpleNamespace, params: aiohttp.TraceRequestRedirectParams
) -> None:
    params.response.close()
    raise aiohttp.ClientPayloadError(f"{params.method} {params.url.path}: the response redirects elsewhere")
