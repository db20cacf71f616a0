"""The count of a cell's tool calls: its limits, and what it leaves out."""

from ipybox.audit.records import ExecutionRecord, ToolCallRecord
from ipybox.guest.tools.protocol import RunRequest
from ipybox.support.effects import MAX_ENTRIES, MAX_LISTED, MAX_NAME, ToolCallCount, summary


def call(name: str) -> RunRequest:
    return {"server_name": "s", "server_params": {}, "seal": None, "tool_name": name, "tool_args": {}, "output_mark": 0}


def test_many_and_long_calls_are_counted_within_limits():
    cell = ExecutionRecord({"session_id": "s"})
    for number in range(3 * MAX_ENTRIES):
        ToolCallRecord({}, call(f"{number}{'x' * 10_000}"), lambda _: True, cell).end()
    calls = cell.calls.counts()
    assert len(calls) == MAX_ENTRIES + 1
    assert calls[-1] == ToolCallCount("", "", "done", 2 * MAX_ENTRIES)
    (said,) = summary(calls)
    assert len(said) < (MAX_LISTED + 1) * (MAX_NAME + 20)
    assert said.endswith(f"{MAX_ENTRIES + 1 - MAX_LISTED} more kinds of calls.")


def test_calls_of_tools_that_only_read_are_not_counted():
    cells = [ExecutionRecord({"session_id": "s"}) for _ in range(2)]
    for cell, name in (cells[0], "read"), (cells[0], "write"), (cells[1], "read"):
        ToolCallRecord({}, call(name), lambda call: call["tool_name"] == "write", cell).end()

    assert [cell.calls.counts() for cell in cells] == [(ToolCallCount("s", "write", "done", 1),), ()]
