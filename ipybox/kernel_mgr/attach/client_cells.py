"""Tracks the cells that a person's clients sent to a kernel; the application's cells wait for them.

A kernel runs the cells of all its clients in order. If the application's cell waited in the kernel, it could be neither
interrupted nor withdrawn at its time limit. So it waits here.
"""

import asyncio
from typing import TYPE_CHECKING

from ipybox.support.deadline import Deadline

if TYPE_CHECKING:
    from ipybox.kernel_mgr.kernel_channels import KernelChannels
    from ipybox.kernel_mgr.messages import Message


class ClientCells:
    """The clients' running and queued cells; listens for their end."""

    def __init__(self) -> None:
        #: By message id: the application's own channels to the kernel, which report when the cell ends.
        self.pending: dict[str, KernelChannels] = {}
        self._none = asyncio.Event()
        self._none.set()

    def begin(self, channels: "KernelChannels", msg_id: str) -> None:
        """Records a cell that a client is sending."""
        self.pending[msg_id] = channels
        self._none.clear()
        channels.listen(msg_id, self)

    def end(self, msg_id: str) -> None:
        """Records that a cell has ended, or will never run."""
        if (channels := self.pending.pop(msg_id, None)) is not None:
            channels.forget(msg_id)
        if not self.pending:
            self._none.set()

    def on_message(self, message: "Message") -> None:
        """Records the end of a cell when the kernel reports `idle`."""
        if message.type == "status" and message.content.get("execution_state") == "idle":
            self.end(message.parent_id or "")

    def on_end(self, reason: str) -> None:
        """Records that the kernel has ended, and all cells with it."""
        self.pending.clear()
        self._none.set()

    async def wait_until_none(self, deadline: Deadline) -> None:
        """Waits until there are no such cells.

        Raises:
            TimeoutError: At the deadline.
        """
        try:
            async with deadline.limit():
                await self._none.wait()
        except TimeoutError:
            raise deadline.not_started("the person connected to the kernel is running a cell") from None
