"""The application's half of the comm with a kernel of another Jupyter server; `ipybox.guest.comm.bridge` is the other.

Each order to the kernel is a `comm_msg` on the control channel. Its answer, if it has one, is a `comm_msg` on IOPub
with the order as its parent, followed by `idle` with the same parent. An order without an answer therefore means that
there is no bridge in the kernel, which has been restarted.
"""

import asyncio
import secrets
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ipybox.guest.tools.protocol import TOKEN_VARIABLE
from ipybox.jupyter_engine.calls import PART_BYTES, IncomingCalls
from ipybox.jupyter_engine.guest_files import Archive
from ipybox.kernel_mgr.display_forms import joined, object_of
from ipybox.kernel_mgr.kernel_channels import KernelChannels
from ipybox.kernel_mgr.messages import Message
from ipybox.support.deadline import Deadline
from ipybox.support.errors import ExecutionError, GatewayError, KernelDiedError
from ipybox.support.printable import printable

#: Seconds for the kernel's control channel to answer an order.
ORDER_TIMEOUT = 30.0

#: What `probe` has the kernel print: messages, and characters of each. By default, a Jupyter server drops output of
#: more than 3 MB in 3 s, and more than 3,000 messages. One large message exceeds the former however slow the server is.
PROBES = ((1, 3_200_000), (3_100, 1))

_SOURCE = Path(__file__).parents[1] / "guest" / "comm" / "bridge.py"


@dataclass(frozen=True)
class KernelInfo:
    """What a kernel has said about itself.

    Attributes:
        python: Its version of Python, such as (3, 12).
        host: The name of its machine.
        has_pydantic: Whether it can import pydantic.
    """

    python: tuple[int, ...]
    host: str
    has_pydantic: bool


class NoBridgeError(GatewayError):
    """The kernel has handled an order, and did not answer: it has no bridge."""


class _Order:
    """Waits for the answer to an order, or its end."""

    def __init__(self, comm_id: str) -> None:
        self._comm_id = comm_id
        self.answer: dict[str, Any] | None = None
        #: Characters of output that belong to the order.
        self.printed = 0
        #: Whether the kernel has handled the order.
        self.handled = False
        self.ended = asyncio.Event()

    def take(self, message: Message) -> None:
        """Processes the next message."""
        if message.type == "comm_msg" and message.content.get("comm_id") == self._comm_id:
            self.answer = object_of(message.content.get("data"))
        elif message.type == "stream" and message.content.get("name") == "stdout":
            self.printed += len(joined(message.content.get("text")))
        elif message.type == "status" and message.content.get("execution_state") == "idle":
            self.handled = True
            self.ended.set()

    def lose(self) -> None:
        """Notes that no more messages will arrive."""
        self.ended.set()


class KernelBridge:
    """Carries tool calls and files between one kernel and the application.

    Args:
        channels: The kernel's channels.
        accept: Passes a connection of the kernel to the tool server.
        token: The kernel's token there.
    """

    def __init__(self, channels: KernelChannels, accept: Callable[[socket.socket], object], token: str):
        self._channels = channels
        self._comm_id = secrets.token_hex(16)
        self._archive = ""
        self._ordering = asyncio.Lock()
        self.calls = IncomingCalls(accept, token, self._send)
        channels.on_comm = self._take

    async def close(self) -> None:
        """Cancels all tool calls of the kernel."""
        await self.calls.close()

    def installation(self) -> str:
        """Returns the code that starts the kernel's half."""
        source = _SOURCE.read_text()
        return (
            "import sys as _ipybox_sys, types as _ipybox_types\n"
            "_ipybox_sys.modules['ipybox_comm'] = _ipybox_types.ModuleType('ipybox_comm')\n"
            f"exec(compile({source!r}, '<ipybox>', 'exec'), vars(_ipybox_sys.modules['ipybox_comm']))\n"
            f"_ipybox_sys.modules['ipybox_comm'].install(get_ipython().kernel, {self._comm_id!r})\n"
            "del _ipybox_sys, _ipybox_types\n"
        )

    async def set_up(self, env: Mapping[str, str]) -> KernelInfo:
        """Sets environment variables of the kernel, and returns what it says about itself.

        Raises:
            GatewayError: If there is no valid answer.
            KernelDiedError: If the kernel ends.
        """
        answer = (await self._order({"op": "setup", "env": {TOKEN_VARIABLE: "comm", **env}})).answer or {}
        python, host = answer.get("python"), answer.get("host")
        parts = tuple(part for part in cast(list[object], python) if type(part) is int) if type(python) is list else ()
        if not parts:
            raise GatewayError("the kernel did not say which Python it has")
        name = printable(host[:100]) if isinstance(host, str) else ""
        return KernelInfo(parts, name, answer.get("pydantic") is True)

    async def send_files(self, archive: Archive) -> None:
        """Replaces the files that code in the kernel imports, unless it has these.

        Raises:
            ExecutionError: If they can't be replaced.
            GatewayError, KernelDiedError: As `set_up`.
        """
        async with self._ordering:
            if archive.sha256 == self._archive:
                return
            starts = range(0, len(archive.data), PART_BYTES)
            for number, start in enumerate(starts):
                order = {"op": "files", "n": number, "of": len(starts), "sha256": archive.sha256}
                await self._order(order, archive.data[start : start + PART_BYTES])
            self._archive = archive.sha256

    async def output_arrives(self) -> bool:
        """Returns whether the server passes on more output than its default limits let through.

        Raises:
            GatewayError, KernelDiedError: As `set_up`.
        """
        for count, characters in PROBES:
            order = await self._order({"op": "probe", "messages": count, "characters": characters})
            if order.printed != count * characters:
                return False
        return True

    async def has_state(self) -> bool:
        """Returns whether the kernel still is the one in which the bridge was installed, also if it does not answer.

        Raises:
            KernelDiedError: If the kernel ends.
        """
        for _ in range(2):  # a server that restores a connection may drop one message
            try:
                await self._order({"op": "ping"})
            except NoBridgeError:
                continue
            except GatewayError:  # it is busy, or the connection was lost again
                pass
            return True
        return False

    async def _order(self, data: dict[str, Any], buffer: bytes = b"") -> _Order:
        """Sends an order, and returns it when the kernel has handled it."""
        order = _Order(self._comm_id)
        content = {"comm_id": self._comm_id, "data": data}
        msg_id = ""
        try:
            async with Deadline(ORDER_TIMEOUT).limit():
                msg_id = await self._channels.request("comm_msg", content, order, [buffer], channel="control")
                await order.ended.wait()
        except TimeoutError:
            raise GatewayError(f"the kernel did not answer on its control channel within {ORDER_TIMEOUT:g} s") from None
        finally:
            self._channels.forget(msg_id)
        if order.answer is None and not self._channels.alive:
            raise KernelDiedError(self._channels.death)
        if not order.handled:
            raise GatewayError("the connection to the kernel was lost")
        if order.answer is None and data["op"] != "probe":
            raise NoBridgeError(
                "the kernel has no connection to this application: it was restarted, or code removed it"
            )
        if order.answer is not None and order.answer.get("op") == "failed":
            text = order.answer.get("text")
            raise ExecutionError(f"the kernel failed: {printable(text[:500]) if isinstance(text, str) else 'unknown'}")
        return order

    async def _send(self, data: dict[str, Any], buffer: bytes) -> None:
        """Sends a message that has no answer; if the connection is lost, `IncomingCalls.resend` is for later."""
        content = {"comm_id": self._comm_id, "data": data}
        try:
            await self._channels.send_control("comm_msg", content, [buffer])
        except KernelDiedError:
            return

    def _take(self, message: Message) -> None:
        """Handles a message of a comm; those of other comms, such as of widgets, are ignored."""
        if message.content.get("comm_id") != self._comm_id:
            return
        self.calls.take(object_of(message.content.get("data")), message.buffers)
