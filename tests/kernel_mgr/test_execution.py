import json
from typing import Any

import pytest

from ipybox.errors import ExecutionError, RaisedException
from ipybox.kernel_mgr.display_forms import text_of, text_of_all
from ipybox.kernel_mgr.execution import Execution
from ipybox.kernel_mgr.messages import Message
from ipybox.kernel_mgr.output_collector import OutputCollector


def message(type_: str, **content: Any) -> Message:
    return Message("iopub", {"msg_type": type_}, {}, json.dumps(content).encode())


@pytest.mark.parametrize("last", ["execute_reply", "status"])
def test_a_traceback_that_was_shown_is_output_also_if_the_reply_overtakes_it(last: str):
    shown, own = (message("error", traceback=[text]) for text in ("shown", "the cell's own"))
    reply = message("execute_reply", status="error", traceback=["the cell's own"])
    page = message("stream", name="stdout", text="printed\n")
    idle = message("status", execution_state="idle")
    orders = {"execute_reply": [page, shown, own, idle, reply], "status": [reply, page, shown, own, idle]}
    chunks: list[str] = []
    failed = Execution("", OutputCollector(lambda output, _: chunks.append(text_of(output))))
    for each in orders[last]:
        assert not failed.ended.is_set()
        failed.on_message(each)

    assert failed.over
    assert failed.ended.is_set()
    assert "".join(chunks) == "printed\nshown\n"
    assert text_of_all(failed.outputs.outputs()) == "printed\nshown"
    with pytest.raises(ExecutionError, match=r"^the cell's own$"):
        failed.check(None)


@pytest.mark.parametrize(
    ("reply", "failure", "raised"),
    [
        pytest.param(
            {"ename": "E", "evalue": "\x1b[1mv\ud800", "traceback": ["a", "\x1b[1mb"]},
            "a\nb",
            RaisedException("E", "v\N{REPLACEMENT CHARACTER}", "a\nb"),
            id="plain_text",
        ),
        pytest.param({"ename": "E", "evalue": "v"}, "E: v", RaisedException("E", "v", ""), id="no_traceback"),
        pytest.param(
            {"ename": "E", "evalue": {}, "traceback": 1},
            "E: the kernel gave no reason",
            RaisedException("E", "", ""),
            id="no_texts",
        ),
        pytest.param(
            {"ename": ["E"], "evalue": "v", "traceback": [1, "a"]},
            "a",
            RaisedException("Error", "v", "a"),
            id="no_name",
        ),
        pytest.param(
            {"status": "aborted"},
            "Error: the kernel gave no reason",
            RaisedException("Error", "", ""),
            id="aborted",
        ),
    ],
)
def test_an_error_has_its_parts_whatever_code_sends(reply: dict[str, Any], failure: str, raised: RaisedException):
    ended = Execution("")
    ended.on_message(message("status", execution_state="idle"))
    ended.on_message(message("execute_reply", **{"status": "error", **reply}))

    with pytest.raises(ExecutionError) as error:
        ended.check(None)
    assert (str(error.value), error.value.raised) == (failure, raised)


def test_an_execution_whose_messages_stop_has_ended_and_is_not_over():
    lost = Execution("")
    lost.on_message(message("execute_reply", status="ok"))
    assert not lost.begun.is_set()
    lost.on_end("the kernel died")

    assert lost.begun.is_set()
    assert lost.ended.is_set()
    assert not lost.over


def test_code_that_runs_has_begun():
    running = Execution("")
    running.on_message(message("status", execution_state="busy"))
    assert not running.begun.is_set()
    running.on_message(message("execute_input", code="1"))

    assert running.begun.is_set()
    assert not running.ended.is_set()
