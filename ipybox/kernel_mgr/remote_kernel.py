"""Creates and deletes the kernel that a gateway runs for a `KernelClient`, one kernel at a time.

A reset has the gateway end the old kernel and start or provide the new one at the same time. The new one gets no
request, and none of its messages is read, before all processes of the old one have ended.
"""

import asyncio
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
from ipybox.kernel_mgr.gateway_client import GatewayClient, is_shortage
from ipybox.kernel_mgr.kernel_channels import KernelChannels
from ipybox.support.deadline import Deadline
from ipybox.support.endpoint import Endpoint
from ipybox.support.errors import GatewayError

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
        endpoint: The address of the gateway.
        env: Environment variables for the kernel.
        heartbeat: Seconds between pings that detect a lost gateway; None for no pings.
        init_timeout: Seconds in which a new kernel must answer.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        env: Mapping[str, str] | None,
        *,
        heartbeat: float | None,
        init_timeout: float,
    ):
        self.channels = KernelChannels(relayed=endpoint.relayed)
        self.gateway = GatewayClient(
            endpoint, on_lost=lambda: self.channels.fail("the kernel gateway is not responding")
        )
        #: The id of the running kernel; None if there is no kernel.
        self.id: str | None = None
        #: The gateway's description of the kernel.
        self.description: dict[str, Any] = {}
        self._specification: dict[str, Any] = {"name": "python3"} | ({"env": dict(env)} if env else {})
        self._heartbeat = heartbeat
        self._init_timeout = init_timeout
        #: Kernels that must be ended, because another one is used, or none.
        self._to_delete: list[str] = []
        #: Held while they are ended: a kernel that fails to start is ended while the one before it may still be ending.
        self._deletion = asyncio.Lock()
        #: Ends the kernel before the one that is being created; None at other times.
        self._ending: asyncio.Task[None] | None = None

    async def create(self) -> None:
        """Creates a kernel and returns when it answers.

        Raises:
            GatewayError: If the kernel does not start.
            aiohttp.ClientError, OSError: If there is no connection to the gateway.
        """
        # The gateway answers when it has started the process, not when the kernel is ready.
        self.description = await self.gateway.call("POST", "/api/kernels", self._specification)
        kernel_id = self.description.get("id")
        if not isinstance(kernel_id, str) or not KERNEL_ID.fullmatch(kernel_id):
            raise GatewayError("POST /api/kernels: the response contains no valid kernel id")
        self.id, jupyter_session = kernel_id, uuid.uuid4().hex
        self.channels.death = "the kernel died"
        try:
            deadline = Deadline(self._init_timeout + (0 if self._ending is None else timeouts.GATEWAY_TIMEOUT))
            async with deadline.limit():
                # The gateway accepts the connection when the kernel has answered it.
                self.channels.hold(await self.connect(jupyter_session), jupyter_session)
                if self._ending is not None:
                    await asyncio.shield(self._ending)
                    self._check_gateway()
                self.channels.open()
        except (TimeoutError, aiohttp.ClientError, OSError, GatewayError) as exc:
            await self.gateway.probe()
            await self.delete("the kernel did not start")
            raise GatewayError(f"the kernel did not start: {self._start_problem(exc)}") from exc

    async def connect(self, jupyter_session: str) -> aiohttp.ClientWebSocketResponse:
        """Returns a WebSocket with the kernel's channels, for a new Jupyter session.

        Raises:
            GatewayError, aiohttp.ClientError, OSError: If it can't be opened.
        """
        assert self.gateway.session is not None
        return await self.gateway.session.ws_connect(
            f"/api/kernels/{self.id}/channels",
            params={"session_id": jupyter_session},
            protocols=(messages.SUBPROTOCOL,),
            heartbeat=self._heartbeat,
            max_msg_size=MAX_MESSAGE_BYTES,
        )

    async def interrupt(self) -> None:
        """Interrupts the code that runs.

        Raises:
            GatewayError: If the gateway does not answer, or there is no kernel to interrupt.
            aiohttp.ClientError, OSError: If there is no connection to the gateway.
        """
        await self.gateway.call("POST", f"/api/kernels/{self.id}/interrupt", timeout=timeouts.ANSWER_GRACE)

    async def delete(self, reason: str) -> None:
        """Ends the kernel, if there is one; requests that wait for it fail with `reason`."""
        await self._leave(reason)
        try:
            await self._end_left()
        except (GatewayError, aiohttp.ClientError, OSError) as exc:
            logger.warning("a kernel may still be running: %s", exc)

    async def replace(self, reason: str) -> None:
        """Ends the kernel and creates another one; requests that wait for the old one fail with `reason`.

        Raises:
            GatewayError: If the new kernel does not start, the old one may still run, or the gateway does not answer.
            aiohttp.ClientError, OSError: If there is no connection to the gateway.
        """
        await self._leave(reason)
        self._check_gateway()
        self._ending = asyncio.create_task(self._end_left())
        self._ending.add_done_callback(lambda task: task.cancelled() or task.exception())  # raised below
        try:
            await self.create()
        except (GatewayError, aiohttp.ClientError, OSError) as exc:
            # The old kernel may have used up what the new one needs, such as processes.
            logger.debug("can't start a kernel while another one is shutting down: %s", exc)
            await self._ending
            self._check_gateway()
            await self.create()
        finally:
            ending, self._ending = self._ending, None
            await ending

    def _check_gateway(self) -> None:
        if self.gateway.lost:
            raise GatewayError("the kernel gateway is not responding")

    async def _leave(self, reason: str) -> None:
        """Closes the channels of the kernel, if there is one, and notes that it must be ended."""
        self.channels.death = reason
        if self.id is not None:
            self._to_delete.append(self.id)
            self.id = None
        with suppress(GatewayError, aiohttp.ClientError, OSError):
            if not await self.channels.close(timeouts.LOST_GRACE if self.gateway.lost else timeouts.ANSWER_GRACE):
                await self.gateway.probe()

    async def _end_left(self) -> None:
        """Ends the kernels that were left; returns when their processes have ended.

        Raises:
            GatewayError, aiohttp.ClientError, OSError: If one may still run. It stays among those that were left.
        """
        async with self._deletion:
            while self._to_delete and not self.gateway.lost:
                path = f"/api/kernels/{self._to_delete[0]}"
                try:
                    await self.gateway.call("DELETE", path, may_be_absent=True)
                except (GatewayError, aiohttp.ClientError, OSError) as exc:
                    if is_shortage(exc):
                        raise
                    await self.gateway.probe()
                    if self.gateway.lost:
                        return
                    logger.warning("retrying to shut down a kernel: %s", exc)
                    await self.gateway.call("DELETE", path, may_be_absent=True)
                self._to_delete.pop(0)

    def _start_problem(self, exc: Exception) -> str:
        if isinstance(exc, aiohttp.WSServerHandshakeError) and exc.status == HTTPStatus.GONE:
            return "its process exited"
        if isinstance(exc, TimeoutError):
            return f"it did not respond within {self._init_timeout:g} s"
        return str(exc) or type(exc).__name__


def preload_notices(preload: Sequence[str], kernel: Mapping[str, object]) -> list[str]:
    """Returns a sentence for each module that is not preloaded. Of the gateway's answer, only known words are believed.

    Args:
        preload: The modules that were to be preloaded.
        kernel: The gateway's description of a kernel.
    """
    problems = kernel.get(NOT_PRELOADED)
    if not isinstance(problems, dict):
        return []
    reasons = {module: cast(dict[object, object], problems).get(module) for module in preload}
    return [
        f"{module} is not preloaded, because {_REASONS[reason]}."
        for module, reason in reasons.items()
        if isinstance(reason, str) and reason in _REASONS
    ]
