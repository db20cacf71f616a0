"""The limits of what executors keep for notebooks."""

from ipybox.audit.notebook.session import MAX_CALLS, ExecutedCell, SessionHistory
from ipybox.audit.redaction import Redactor
from ipybox.support.outputs import Display, ExecutionOutput, Stream

KB = 1 << 10


def run(history: SessionHistory, *outputs: Stream | Display) -> None:
    end(history, history.new_cell("pass"), ExecutionOutput(None, [], outputs=outputs))


def end(history: SessionHistory, cell: ExecutedCell, output: ExecutionOutput | None = None) -> None:
    event = {"event": "cell", "cell_id": str(cell.number), "outcome": "ok"}
    history.end(cell, output, event)


def sizes(history: SessionHistory) -> tuple[str, list[int]]:
    """Returns the text of the notebook's first cell, and the number of outputs of each cell."""
    first, *rest = history.notebook()["cells"]
    return first["source"], [len(cell["outputs"]) for cell in rest]


def test_the_oldest_cells_are_dropped():
    history = SessionHistory(100 * KB, Redactor)
    for number in range(8):
        run(history, Stream("stdout", f"{number}" * 30 * KB))
    run(history, Display({"application/json": [{"a": 1}] * 50}))

    said, outputs = sizes(history)
    assert outputs == [1, 1, 1]
    assert "This notebook omits the first 6 cells" in said
    assert "`notebook_bytes`" in said
    assert history.notebook()["cells"][-1]["execution_count"] == 9


def test_a_cell_that_is_larger_than_the_limit_is_dropped_with_all_before_it():
    history = SessionHistory(100 * KB, Redactor)
    run(history, Stream("stdout", "x"))
    run(history, Display({"application/json": [[] for _ in range(1_000_000)]}))
    run(history, Stream("stdout", "x"))

    assert sizes(history)[1] == [1]


def test_the_calls_of_a_cell_are_bounded():
    history = SessionHistory(1000 * KB, Redactor)
    cell = history.new_cell("pass")
    for number in range(MAX_CALLS + 2):
        call = {"cell_id": "1", "tool_call_id": str(number)}
        history.add({"event": "decision", **call, "accepted": True, "by": "auto"})
        history.add({"event": "tool_call", **call, "arguments": {}, "outcome": "ok"})
    end(history, cell)

    assert (len(cell.tool_calls), cell.metadata["tool_calls_dropped"]) == (MAX_CALLS, 2)
    decision = {"accepted": True, "by": "auto"}
    assert cell.tool_calls[7] == {"tool_call_id": "7", "decision": decision, "arguments": {}, "outcome": "ok"}
