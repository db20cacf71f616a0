"""One execution of a cell, as its messages tell it.

A cell is over when both its `execute_reply` and its `status: idle` have arrived: they come on different channels, and
output may still be on its way after either one.
https://jupyter-client.readthedocs.io/en/stable/messaging.html#messages-on-the-iopub-pub-sub-channel
"""

from collections.abc import Callable
from typing import cast

from ipybox.backlog import Backlog
from ipybox.deadline import Deadline
from ipybox.errors import KernelDiedError
from ipybox.kernel_mgr.messages import Message
from ipybox.kernel_mgr.outputs import MAX_OUTPUT_BYTES, CellOutputs, plain

#: What a message that waits takes at least, however short it is.
MESSAGE_BYTES = 512


class MessageQueue(Backlog[Message | None]):
    """The messages of one request that nobody has taken yet; None says that there will be no more.

    Who takes them slowly has as many waiting as one cell can put out; then outputs are left out, as if there were too
    many of them.
    """

    def __init__(self) -> None:
        super().__init__(MAX_OUTPUT_BYTES)

    def add(self, message: Message) -> None:
        """Adds a message. Without the last ones a cell would not end: there is still room for them."""
        essential = message.type in ("status", "execute_reply")
        self.offer(message, len(message.raw_content) + MESSAGE_BYTES, essential=essential)


class Cell:
    """One execution: which of its messages have come, and what it has put out."""

    def __init__(self, msg_id: str, queue: MessageQueue):
        self.msg_id = msg_id
        self.queue = queue
        self.outputs = CellOutputs()
        self._reply: Message | None = None
        self._idle = False
        #: Whether the kernel has begun with it: an interrupt that comes before has no effect.
        self.begun = False

    @property
    def over(self) -> bool:
        """Whether the execution has ended and all its output is there."""
        return self._idle and self._reply is not None

    async def receive(self, deadline: Deadline, death_notice: Callable[[], str]) -> Message:
        """Returns the next message.

        Raises:
            TimeoutError: At the deadline.
            KernelDiedError: If there will be no more messages.
        """
        async with deadline.limit():
            message = await self.queue.get()
        if message is None:
            raise KernelDiedError(death_notice())
        return message

    def take(self, message: Message) -> str:
        """Takes the next message and returns the text that it shows."""
        self.outputs.leave_out(self.queue.take_left_out())
        if message.type == "execute_reply":
            self._reply = message
        elif message.type == "execute_input":
            self.begun = True
        elif message.type == "status":
            self._idle = message.content.get("execution_state") == "idle"
        return self.outputs.add(message)

    @property
    def failure(self) -> str | None:
        """The traceback of the error that the execution ended with, if any."""
        content = self._reply.content if self._reply is not None else {}
        if content.get("status", "ok") == "ok":
            return None
        lines = content.get("traceback")
        traceback = "\n".join(map(str, cast(list[object], lines))) if isinstance(lines, list) else ""
        summary = f"{content.get('ename', 'Error')}: {content.get('evalue', 'the kernel gave no reason')}"
        return plain(traceback or summary)
