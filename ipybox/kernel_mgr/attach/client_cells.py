"""The cells that clients of a person have sent to a kernel, so that cells of the application wait for them.

A kernel runs the cells of all its clients in order. A cell of the application that waited in the kernel could neither
be interrupted nor withdrawn at its time limit. So it waits here.
"""

import asyncio
from typing import TYPE_CHECKING

from ipybox.support.deadline import Deadline

if TYPE_CHECKING:
    from ipybox.kernel_mgr.kernel_channels import KernelChannels
    from ipybox.kernel_mgr.messages import Message


class ClientCells:
    """The cells of clients that a kernel runs, or has yet to run."""

    def __init__(self) -> None:
        #: Their message ids.
        self.pending: set[str] = set()
        self._none = asyncio.Event()
        self._none.set()

    def begin(self, channels: "KernelChannels", msg_id: str) -> None:
        """Notes that a client sends a cell.

        Args:
            channels: The application's own channels to the kernel, which say when the cell ends.
            msg_id: The id of the `execute_request`.
        """
        self.pending.add(msg_id)
        self._none.clear()
        channels.listen(msg_id, _CellEnd(self, channels, msg_id))

    def end(self, msg_id: str) -> None:
        """Notes that a cell has ended, or will never run."""
        self.pending.discard(msg_id)
        if not self.pending:
            self._none.set()

    async def until_none(self, deadline: Deadline) -> None:
        """Waits until there are no such cells.

        Raises:
            TimeoutError: At the deadline.
        """
        try:
            async with deadline.limit():
                await self._none.wait()
        except TimeoutError:
            raise deadline.not_begun("the person connected to the kernel is running a cell") from None


class _CellEnd:
    def __init__(self, cells: ClientCells, channels: "KernelChannels", msg_id: str):
        self._cells = cells
        self._channels = channels
        self._msg_id = msg_id

    def take(self, message: "Message") -> None:
        if message.type == "status" and message.content.get("execution_state") == "idle":
            self._channels.forget(self._msg_id)
            self.lose()

    def lose(self) -> None:
        self._cells.end(self._msg_id)
