"""Tracks one execution of a cell by its messages.

An execution has finished when both its `execute_reply` and its `status: idle` have arrived: they use different
channels, and output may still arrive after either one.
https://jupyter-client.readthedocs.io/en/stable/messaging.html#messages-on-the-iopub-pub-sub-channel
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ipybox.guest.protocol import VARIABLE_ERROR
from ipybox.kernel_mgr.display_forms import MAX_ERROR, plain, traceback_of
from ipybox.kernel_mgr.messages import Message
from ipybox.kernel_mgr.output_collector import OutputCollector
from ipybox.support.errors import ExecutionError, KernelDiedError, RaisedException, VariableError
from ipybox.support.outputs import ExecutionOutput


class Execution:
    """One execution: its request, its progress and its output.

    `KernelChannels` sends its request and passes its messages to it; `KernelClient` waits for its end. `fields` are
    ipybox's own fields of the request, see `ipybox.guest.protocol`.
    """

    def __init__(
        self,
        code: str,
        outputs: OutputCollector | None = None,
        fields: Mapping[str, Any] | None = None,
        buffers: Sequence[bytes] = (),
    ):
        self.code = code
        self.fields = fields or {}
        self.buffers = buffers
        self.outputs = outputs or OutputCollector()
        #: The id of the `execute_request`.
        self.msg_id = ""
        #: Set when the kernel has started running the code, or never will. Earlier interrupts have no effect.
        self.begun = asyncio.Event()
        #: Set when the execution has finished, or no more messages will arrive.
        self.ended = asyncio.Event()
        self._reply: Message | None = None
        self._idle = False
        #: Why no more messages arrive.
        self.death = ""

    @property
    def over(self) -> bool:
        """Whether the execution has finished and all its output has arrived."""
        return self._idle and self._reply is not None

    def on_message(self, message: Message) -> None:
        """Processes the next message."""
        if message.type == "execute_reply":
            self._reply = message
        elif message.type == "execute_input":
            self.begun.set()
        elif message.type == "status":
            self._idle = message.content.get("execution_state") == "idle"
        self.outputs.add(message)
        if self._idle and self._reply is not None:
            self.outputs.end(self._reply)
            self.on_end("")

    def on_end(self, reason: str) -> None:
        """Records that no more messages will arrive."""
        self.death = reason
        self.begun.set()
        self.ended.set()

    def check(self, output: ExecutionOutput | None) -> Message:
        """Returns the reply of a successful execution; errors include `output`.

        Raises:
            ExecutionError: If the code raised.
            KernelDiedError: If the kernel ended first.
            VariableError: If a variable could not be set or read.
        """
        if self._reply is None or not self._idle:
            raise KernelDiedError(self.death, output)
        content = self._reply.content
        if content.get("status", "ok") == "ok":
            return self._reply
        raised = _raised(content)
        if VARIABLE_ERROR in content:
            raise VariableError(raised.value)
        summary = f"{raised.name}: {raised.value or 'the kernel gave no reason'}"
        raise ExecutionError(raised.traceback or summary, output, raised)


def _raised(content: dict[str, Any]) -> RaisedException:
    # Any value may arrive, because code can send messages itself: the text of a deep one raises a RecursionError.
    texts = (text if isinstance(text := content.get(key), str) else "" for key in ("ename", "evalue"))
    name, value = (plain(text[:MAX_ERROR]) for text in texts)
    return RaisedException(name or "Error", value, plain(traceback_of(content)))
