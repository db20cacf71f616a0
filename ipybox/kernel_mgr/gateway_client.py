"""Requests to the REST interface of a kernel gateway: each has a time limit, and each answer is checked.

`RemoteKernel` creates and deletes its kernel with it. A gateway that does not answer is probed before it counts as
lost, because it runs the kernels of other executors, too.
"""

import asyncio
import errno
import json
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any, cast

import aiohttp

from ipybox.kernel_mgr import timeouts
from ipybox.support.deadline import Deadline
from ipybox.support.endpoint import Endpoint, read_answer
from ipybox.support.errors import GatewayError
from ipybox.support.printable import printable


class GatewayClient:
    """Sends requests to one gateway, between `open` and `close`.

    Args:
        endpoint: The address of the gateway.
        on_lost: Called when a probe finds the gateway lost.
    """

    def __init__(self, endpoint: Endpoint, on_lost: Callable[[], object]):
        self.endpoint = endpoint
        self._on_lost = on_lost
        #: The HTTP session; None if there is none.
        self.session: aiohttp.ClientSession | None = None
        #: Whether the gateway did not answer: no request can succeed anymore.
        self.lost = False
        #: Set while a gateway that did not answer is probed, and when it is lost.
        self.silent = asyncio.Event()

    def open(self) -> None:
        """Starts an HTTP session. The session looks up the token later, because the gateway may not exist yet."""
        self.lost = False
        self.silent.clear()
        self.session = self.endpoint.session()

    async def close(self) -> None:
        """Closes the HTTP session, if there is one."""
        if self.session is not None:
            session, self.session = self.session, None
            await session.close()

    async def call(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        timeout: float | None = None,
        may_be_absent: bool = False,
    ) -> dict[str, Any]:
        """Sends a request and returns the JSON object in its answer; empty if the answer has no body.

        Args:
            method: The HTTP method.
            path: The path of the URL.
            body: A JSON object.
            timeout: In seconds, by default `GATEWAY_TIMEOUT`.
            may_be_absent: Whether the answer that there is no such thing is no error.

        Raises:
            GatewayError: If the answer is an error, is not that of a gateway, or does not arrive.
            aiohttp.ClientError, OSError: If there is no connection to the gateway.
        """
        assert self.session is not None
        timeout = timeouts.GATEWAY_TIMEOUT if timeout is None else timeout
        try:
            async with (
                Deadline(timeout).limit(),
                self.session.request(method, path, json=body, allow_redirects=False) as response,
            ):
                content = await read_answer(response)
        except TimeoutError as exc:
            await self.probe()
            raise GatewayError(f"{method} {path}: no response within {timeout:g} s") from exc
        except GatewayError:  # there is no connection
            await self.probe()
            raise
        if may_be_absent and response.status == HTTPStatus.NOT_FOUND:
            return {}
        if response.status >= 300:
            raise GatewayError(f"{method} {path}: HTTP {response.status} {response.reason} {_detail(content)}")
        try:
            answer: object = json.loads(content or b"{}")
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise GatewayError(f"{method} {path}: the response is not a JSON object")
        return cast(dict[str, Any], answer)

    async def probe(self) -> None:
        """Finds out whether a gateway that did not answer is lost, or only slow and still runs other kernels."""
        if self.lost or self.session is None:
            return
        self.silent.set()
        try:
            async with Deadline(timeouts.PROBE_TIMEOUT).limit(), self.session.get("/api", allow_redirects=False):
                pass
        except (TimeoutError, aiohttp.ClientError, OSError, GatewayError) as exc:
            if not is_shortage(exc):
                self.lost = True
                self._on_lost()
                return
        self.silent.clear()


def is_shortage(exc: BaseException) -> bool:
    """Returns whether an error means that this process lacks resources, and not that the gateway failed."""
    return isinstance(exc, OSError) and exc.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def _detail(content: bytes) -> str:
    """Returns the gateway's description of an error: of a traceback, the last line."""
    text = content.decode(errors="replace")
    with suppress(ValueError, RecursionError, KeyError, TypeError, AttributeError):
        answer = json.loads(text)
        text = str(answer.get("traceback") or answer["message"]).rstrip().rpartition("\n")[2]
    return printable(text[:500])
