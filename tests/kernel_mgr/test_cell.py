import json
from typing import Any

import pytest

from ipybox.deadline import Deadline
from ipybox.errors import KernelDiedError
from ipybox.kernel_mgr import cell
from ipybox.kernel_mgr.cell import MESSAGE_BYTES, Cell, MessageQueue
from ipybox.kernel_mgr.messages import Message


def message(type_: str, **content: Any) -> Message:
    return Message("iopub", {"msg_type": type_}, {}, json.dumps(content).encode())


async def test_who_takes_messages_slowly_gets_no_more_than_a_cell_can_put_out_and_the_cell_ends(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(cell, "MAX_OUTPUT_BYTES", 10 * (MESSAGE_BYTES + 100))
    queue = MessageQueue()
    slow = Cell("id", queue)
    for _ in range(100):
        queue.add(message("stream", name="stdout", text="x\n"))
    queue.add(message("execute_reply", status="ok"))
    queue.add(message("status", execution_state="idle"))
    queue.put(None)

    chunks = 0
    while not slow.over:
        chunks += bool(slow.take(await slow.receive(Deadline(None), lambda: "died")))
    (notice,) = slow.outputs.notices()

    assert (slow.outputs.text() or "").splitlines() == ["x"] * chunks
    assert 5 < chunks < 15
    assert " of output were left out" in notice
    with pytest.raises(KernelDiedError, match="died"):
        await slow.receive(Deadline(None), lambda: "died")


async def test_messages_that_a_cell_needs_to_end_are_bounded_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cell, "MAX_OUTPUT_BYTES", 10_000)
    queue = MessageQueue()
    for _ in range(1000):
        queue.add(message("status", execution_state="busy"))

    assert queue.take_left_out() > 900 * MESSAGE_BYTES
