"""Tool calls over the comm, in place of `ipybox.guest.tools.http`, under whose name kernels of other servers have it.

It has the same classes: a "connection" is the kernel's own to its server.
"""

import asyncio
import sys
import threading
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ServerAddress:
    """The address of the tool server: that of this kernel's application, whatever is given."""

    host: str
    port: int
    token: str | None

    def __str__(self) -> str:
        return "the application"


class SyncConnectionPool:
    """Makes blocking requests; any thread may use it."""

    def __init__(self, address: ServerAddress):
        self._address = address

    def request(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """Makes a request and returns the status and body of the response."""
        _check(path)
        # An interrupt of `Event.wait` could leave the event's lock locked, for which the control thread would wait.
        done = threading.Lock()
        done.acquire()
        comm = _comm()
        call = comm.bridge.begin(body, done.release)
        try:
            while not done.acquire(timeout=comm.RESEND):
                if not call.acknowledged:
                    comm.bridge.transmit(call)
            return call.outcome()
        finally:
            comm.bridge.withdraw(call)


class AsyncConnectionPool:
    """Makes asynchronous requests, for the tasks of one event loop."""

    def __init__(self, address: ServerAddress):
        self._address = address

    async def request(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """Makes a request and returns the status and body of the response. Cancelling it cancels the request."""
        _check(path)
        loop = asyncio.get_running_loop()
        done = asyncio.Event()
        comm = _comm()
        call = comm.bridge.begin(body, lambda: loop.call_soon_threadsafe(done.set))
        waiting = asyncio.ensure_future(done.wait())
        try:
            while not (await asyncio.wait([waiting], timeout=comm.RESEND))[0]:
                if not call.acknowledged:
                    comm.bridge.transmit(call)
            return call.outcome()
        finally:
            waiting.cancel()
            comm.bridge.withdraw(call)


def _comm() -> Any:
    """Returns the module that `bridge` is in this kernel: another one after another application has taken over."""
    return sys.modules["ipybox_comm"]


def _check(path: str) -> None:
    if path != "/run":
        raise ConnectionError("a kernel of another Jupyter server can only call tools")
