"""Creates and deletes the kernel that a gateway runs for a `KernelClient`, one kernel at a time.

On a reset, the gateway ends the old kernel while it starts or provides the new one. The new kernel gets no request, and
none of its messages is read, until all processes of the old kernel have ended.

A gateway that does not answer in time is probed before it counts as lost, because it may run other executors' kernels.
"""

import asyncio
import errno
import json
import logging
import re
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any, cast

import aiohttp

from ipybox.guest.protocol import (
    FAILS,
    IMPORTING,
    MAX_MESSAGE_BYTES,
    NOT_PRELOADED,
    OPENS_DESCRIPTORS,
    STARTS_THREADS,
)
from ipybox.kernel_mgr import messages, timeouts
from ipybox.kernel_mgr.display_forms import as_object
from ipybox.kernel_mgr.kernel_channels import KernelChannels
from ipybox.support.deadline import Deadline
from ipybox.support.endpoint import Endpoint, read_answer
from ipybox.support.errors import GatewayError
from ipybox.support.printable import printable

logger = logging.getLogger(__name__)

KERNEL_ID = re.compile(r"[\w-]{1,100}", re.ASCII)

_LATER = "kernels import it on first use instead"

_REASONS = {
    FAILS: "importing it failed; kernels try again on first use",
    STARTS_THREADS: f"importing it starts threads; {_LATER}",
    OPENS_DESCRIPTORS: f"importing it opens descriptors; {_LATER}",
    IMPORTING: "its import had not finished when this kernel started; this kernel imports it on first use",
}


class RemoteKernel:
    """A kernel on a gateway. The owner calls one method at a time, and sends requests over `channels`.

    Args:
        heartbeat: Seconds between pings that detect a lost gateway; None for no pings.
        init_timeout: Seconds in which a new kernel must answer.
    """

    def __init__(
        self, endpoint: Endpoint, env: Mapping[str, str] | None, *, heartbeat: float | None, init_timeout: float
    ):
        self.endpoint = endpoint
        self.channels = KernelChannels(relayed=endpoint.relayed)
        #: The HTTP session, from `create` to `close`.
        self.session: aiohttp.ClientSession | None = None
        #: Whether the gateway stopped answering: no request can succeed anymore.
        self.lost = False
        #: Set while a gateway that did not answer is probed, and when it is lost.
        self.silent = asyncio.Event()
        #: The id of the running kernel; None if there is no kernel.
        self.id: str | None = None
        #: The gateway's description of the kernel.
        self.description: dict[str, Any] = {}
        self._specification: dict[str, Any] = {"name": "python3"} | ({"env": dict(env)} if env else {})
        self._heartbeat = heartbeat
        self._init_timeout = init_timeout
        #: The ids of kernels that are no longer used and must be ended.
        self._to_delete: list[str] = []
        #: Held while they are ended: when a kernel fails to start, the previous one may still be ending.
        self._deletion = asyncio.Lock()
        #: Ends the previous kernel while another one is created; None at other times.
        self._ending: asyncio.Task[None] | None = None

    async def create(self) -> None:
        """Creates a kernel and returns when it answers.

        Raises:
            GatewayError: If the kernel does not start.
            aiohttp.ClientError, OSError: If there is no connection to the gateway.
        """
        if self.session is None:
            self.lost = False
            self.silent.clear()
            self.session = self.endpoint.session()
        # The gateway answers when it has started the process, not when the kernel is ready.
        self.description = await self.call("POST", "/api/kernels", self._specification)
        kernel_id = self.description.get("id")
        if not isinstance(kernel_id, str) or not KERNEL_ID.fullmatch(kernel_id):
            raise GatewayError("POST /api/kernels: the response contains no valid kernel id")
        self.id, jupyter_session = kernel_id, uuid.uuid4().hex
        self.channels.death = "the kernel died"
        try:
            deadline = Deadline(self._init_timeout + (0 if self._ending is None else timeouts.GATEWAY_TIMEOUT))
            async with deadline.limit():
                # The gateway accepts the connection when the kernel has answered it.
                await self.channels.open(await self.connect(jupyter_session), jupyter_session, self._ending)
        except (TimeoutError, aiohttp.ClientError, OSError, GatewayError) as exc:
            await self.probe()
            await self.delete("the kernel did not start")
            raise GatewayError(f"the kernel did not start: {self._start_problem(exc)}") from exc

    async def connect(self, jupyter_session: str) -> aiohttp.ClientWebSocketResponse:
        """Returns a WebSocket with the kernel's channels, for a new Jupyter session; `next_data` reads it.

        Raises:
            GatewayError, aiohttp.ClientError, OSError: If it can't be opened.
        """
        assert self.session is not None
        return await self.session.ws_connect(
            f"/api/kernels/{self.id}/channels",
            params={"session_id": jupyter_session},
            protocols=(messages.SUBPROTOCOL,),
            heartbeat=self._heartbeat,
            autoping=False,
            max_msg_size=MAX_MESSAGE_BYTES,
        )

    async def interrupt(self) -> None:
        """Interrupts the running code. Raises the same errors as `call`."""
        await self.call("POST", f"/api/kernels/{self.id}/interrupt", timeout=timeouts.ANSWER_GRACE)

    async def delete(self, reason: str) -> None:
        """Ends the kernel, if there is one; pending requests fail with `reason`."""
        await self._disconnect(reason)
        try:
            await self._delete_pending()
        except (GatewayError, aiohttp.ClientError, OSError) as exc:
            if not self.lost:
                logger.warning("a kernel may still be running: %s", exc)

    async def replace(self, reason: str) -> None:
        """Ends the kernel and creates another one; pending requests fail with `reason`.

        Raises:
            GatewayError: If the new kernel does not start, the old one may still run, or the gateway does not answer.
            aiohttp.ClientError, OSError: If there is no connection to the gateway.
        """
        await self._disconnect(reason)
        ending = self._ending = asyncio.create_task(self._delete_pending())
        try:
            await self.create()
        except (GatewayError, aiohttp.ClientError, OSError) as exc:
            # The old kernel may have used up what the new one needs, such as processes.
            logger.debug("can't start a kernel while another one is shutting down: %s", exc)
            await ending
            await self.create()
        finally:
            self._ending = None
            await ending

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
        """Sends a request to the gateway and returns the JSON object in its answer; empty if the answer has no body.

        Args:
            timeout: In seconds, by default `GATEWAY_TIMEOUT`.
            may_be_absent: Whether to treat HTTP 404 as an empty answer instead of an error.

        Raises:
            GatewayError: If the answer is an error, is not from a gateway, or does not arrive.
            aiohttp.ClientError, OSError: If there is no connection to the gateway.
        """
        assert self.session is not None
        if self.lost:
            raise GatewayError("the kernel gateway is not responding")
        timeout = timeout or timeouts.GATEWAY_TIMEOUT
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
        """Checks whether a gateway that did not answer is lost, or slow but still running other kernels."""
        if self.lost or self.session is None:
            return
        self.silent.set()
        try:
            async with Deadline(timeouts.PROBE_TIMEOUT).limit(), self.session.get("/api", allow_redirects=False):
                pass
        except (TimeoutError, aiohttp.ClientError, OSError, GatewayError) as exc:
            if not is_shortage(exc):
                self.lost = True
                self.channels.fail("the kernel gateway is not responding")
                return
        self.silent.clear()

    async def _disconnect(self, reason: str) -> None:
        """Closes the channels of the kernel, if there is one, and schedules its end."""
        self.channels.death = reason
        if self.id is not None:
            self._to_delete.append(self.id)
            self.id = None
        with suppress(GatewayError, aiohttp.ClientError, OSError):
            if not await self.channels.close(timeouts.LOST_GRACE if self.lost else timeouts.ANSWER_GRACE):
                await self.probe()

    async def _delete_pending(self) -> None:
        """Ends the kernels in `_to_delete`; returns when their processes have ended.

        Raises:
            GatewayError, aiohttp.ClientError, OSError: If one may still be running. It stays in `_to_delete`.
        """
        async with self._deletion:
            while self._to_delete:
                path = f"/api/kernels/{self._to_delete[0]}"
                try:
                    await self.call("DELETE", path, may_be_absent=True)
                except (GatewayError, aiohttp.ClientError, OSError) as exc:
                    if is_shortage(exc):
                        raise
                    await self.probe()
                    if self.lost:
                        raise
                    logger.warning("retrying to shut down a kernel: %s", exc)
                    await self.call("DELETE", path, may_be_absent=True)
                self._to_delete.pop(0)

    def _start_problem(self, exc: Exception) -> str:
        if isinstance(exc, aiohttp.WSServerHandshakeError) and exc.status == HTTPStatus.GONE:
            return "its process exited"
        if isinstance(exc, TimeoutError):
            return f"it did not respond within {self._init_timeout:g} s"
        return str(exc) or type(exc).__name__


def is_shortage(exc: BaseException) -> bool:
    """Returns whether an error means that this process lacks resources, and not that the gateway failed."""
    return isinstance(exc, OSError) and exc.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def _detail(content: bytes) -> str:
    """Returns the gateway's description of an error, or the last line of its traceback."""
    text = content.decode(errors="replace")
    with suppress(ValueError, RecursionError, KeyError, TypeError, AttributeError):
        answer = json.loads(text)
        text = str(answer.get("traceback") or answer["message"]).rstrip().rpartition("\n")[2]
    return printable(text[:500])


def preload_notices(preload: Sequence[str], kernel: Mapping[str, object]) -> list[str]:
    """Returns a sentence for each module that is not preloaded.

    Accepts only known reasons from `kernel`, the gateway's description of a kernel.
    """
    problems = as_object(kernel.get(NOT_PRELOADED))
    return [
        f"{module} is not preloaded, because {_REASONS[reason]}."
        for module in preload
        if isinstance(reason := problems.get(module), str) and reason in _REASONS
    ]
