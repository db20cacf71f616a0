"""HTTP and WebSocket clients for our components, over private sockets or over TCP with a token.

Imports aiohttp; `ipybox.guest` and what runs in the kernel do not.
"""

import socket
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest
from aiohttp.tracing import Trace

from ipybox.tokens import Kind, find_token

Dial = Callable[[], socket.socket]


class SocketConnector(aiohttp.BaseConnector):
    """Makes aiohttp's connections from sockets that `dial` returns connected."""

    def __init__(self, dial: Dial):
        super().__init__(limit=0)
        self._dial = dial

    async def _create_connection(
        self, req: ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        loop = self._loop
        _, protocol = await loop.create_connection(lambda: ResponseHandler(loop), sock=self._dial())
        return protocol


@dataclass(frozen=True)
class Endpoint:
    """Where a component is: behind `dial`, or else at a host and port."""

    kind: Kind
    host: str = "localhost"
    port: int | None = None
    token: str | None = None
    dial: Dial | None = None

    @property
    def url(self) -> str:
        """The base URL of requests."""
        if self.dial is not None:
            return "http://localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def session(self) -> aiohttp.ClientSession:
        """Returns a new HTTP session for this endpoint, which the caller closes.

        The session trusts no proxy settings of the environment: what it talks to is on this machine.
        """
        token = self.token
        if token is None and self.dial is None and self.port is not None:
            token = find_token(self.kind, self.port)
        return aiohttp.ClientSession(
            self.url,
            connector=SocketConnector(self.dial) if self.dial is not None else None,
            headers={"Authorization": f"token {token}"} if token else None,
            timeout=aiohttp.ClientTimeout(total=None),
        )
