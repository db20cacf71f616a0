"""The wait for a node: from the start of an engine's command until the node has said which ipybox it has."""

import asyncio
import logging
from collections.abc import Callable

from ipybox.remote.application.link import NodeLink
from ipybox.remote.application.process import EngineProcess
from ipybox.support.errors import GatewayError

logger = logging.getLogger(__name__)

#: Seconds between two looks at what the command has printed.
LOOK_INTERVAL = 2.0


class NodeWait:
    """Waits until a command has provided a node, which may take as long as a scheduler needs.

    Args:
        name: What messages call the engine.
        timeout: Seconds in which the command must provide a node.
        on_queued: Called when a job begins to wait in the queue of a scheduler, with its state.
    """

    def __init__(self, name: str, timeout: float, on_queued: Callable[[str], object]):
        self._name = name
        self._timeout = timeout
        self._on_queued = on_queued
        self._waiting = False
        #: What the scheduler says of the job, such as `job 17, PENDING (Resources)`; empty if it says nothing.
        self._state = ""
        #: Whether no node is wanted any more. The link is closed then, too.
        self.withdrawn = False

    @property
    def waits_for(self) -> str:
        """What is waited for, such as `the scheduler: job 17, PENDING (Resources)`; empty if there is no wait."""
        if not self._waiting:
            return ""
        return f"the scheduler: {self._state}" if self._state else f"a node of {self._name}"

    async def greeted(self, process: EngineProcess, link: NodeLink) -> None:
        """Returns when the node has greeted.

        Raises:
            GatewayError: If it does not, or has another ipybox, or the wait was withdrawn. The message says why.
        """
        self._waiting = True
        try:
            await self._until_decided(process, link)
        finally:
            self._waiting = False
            process.leave_queue()
        if link.greeted:
            return
        name = self._name
        waited = f": it was waiting for the scheduler: {self._state}" if self._state else ""
        if self.withdrawn:
            raise GatewayError(f"the wait for a node of {name} was cancelled{waited}")
        if link.problem is not None:
            raise GatewayError(f"{name} can't be used: {link.problem}{_printed(link)}{stderr_of(process)}")
        if link.closed.is_set():
            raise GatewayError(
                f"{name} did not provide a node: {await process.last_words()}{_printed(link)}{_hint(process)}"
            )
        raise GatewayError(
            f"{name} did not provide a node within {self._timeout:g} s (queue_timeout){waited}"
            f"{_printed(link)}{stderr_of(process)}"
        )

    async def _until_decided(self, process: EngineProcess, link: NodeLink) -> None:
        """Waits for a node until the timeout, and notes what a scheduler waits for."""
        deadline = asyncio.get_running_loop().time() + self._timeout
        while (left := deadline - asyncio.get_running_loop().time()) > 0 and not self.withdrawn:
            if await link.settled(min(left, LOOK_INTERVAL)):
                return
            if (state := await process.queue_state()) and state != self._state:
                if not self._state:
                    self._on_queued(state)
                self._state = state
                logger.warning("%s is waiting for %s", self._name, self.waits_for)


def stderr_of(process: EngineProcess) -> str:
    """Returns the last lines of a command's stderr, each on a line of its own."""
    return "".join(f"\n{line}" for line in process.stderr.last)


def _printed(link: NodeLink) -> str:
    return f"\nit printed: {link.noise}" if link.noise and not link.greeted else ""


def _hint(process: EngineProcess) -> str:
    if any("No module named" in line for line in process.stderr.last):
        return "\nInstall ipybox on the node, for the Python in the engine's command."
    return ""
