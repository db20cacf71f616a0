"""The outputs of a cell in order, with all forms of displays, whatever code sends."""

from pathlib import Path
from typing import Any

import pytest

from ipybox.kernel_mgr import output_collector
from ipybox.kernel_mgr.display_forms import text_of
from ipybox.kernel_mgr.messages import Message
from ipybox.support.outputs import Clear, Display, Result, Stream
from tests.kernel_mgr.test_output_collector import Collector, collected, display, message, png, stream


def stderr(text: str) -> Message:
    return message("stream", name="stderr", text=text)


def in_order(*messages: Message) -> tuple[Stream | Display, ...]:
    return tuple(collected(*messages).outputs())


def test_stdout_stderr_displays_and_the_result_are_in_order():
    chart = {"application/vnd.plotly.v1+json": {"data": [{"y": [1, 2]}]}, "text/html": "<div>", "text/plain": "Figure"}
    outputs = in_order(
        stream("a"),
        stream("b\n"),
        stderr("warn\n"),
        stream("c\n"),
        message("display_data", data=chart, metadata={"width": 3}, transient={}),
        stream("d"),
        message("execute_result", data={"text/plain": "42"}, metadata={}, execution_count=7),
    )

    assert outputs == (
        Stream("stdout", "ab\n"),
        Stream("stderr", "warn\n"),
        Stream("stdout", "c\n"),
        Display(chart, {"width": 3}),
        Stream("stdout", "d"),
        Result({"text/plain": "42"}, execution_count=7),
    )


def test_each_output_is_reported_as_it_arrives():
    outputs = Collector()
    for each in (stream("a"), stderr("b"), display(png(), "1"), display("new", "1", "update_display_data")):
        outputs.add(each)

    assert outputs.arrived == [
        Stream("stdout", "a"),
        Stream("stderr", "b"),
        Display(png(), display_id="1"),
        Display({"text/plain": "new"}, display_id="1"),
    ]


@pytest.mark.parametrize("shown", [stream("b"), display("b"), stderr("b")])
def test_a_clearing_is_reported_when_it_takes_effect(shown: Message):
    outputs = collected(stream("a"), message("clear_output", wait=True))
    assert outputs.arrived == [Stream("stdout", "a")]
    outputs.add(shown)
    assert outputs.arrived[1] == Clear()
    outputs.add(message("clear_output"))
    assert (outputs.arrived[3], len(outputs.arrived)) == (Clear(), 4)


def test_a_clearing_of_nothing_is_not_reported():
    cleared = [message("clear_output"), stream("a"), message("clear_output"), message("clear_output"), stream("b")]

    assert collected(*cleared).arrived == [Stream("stdout", "a"), Clear(), Stream("stdout", "b")]


def test_updates_and_clearings_count():
    cleared = [stream("gone"), display("gone", "1"), message("clear_output", wait=True)]
    updated = [display("a", "1"), stderr("b"), display("a", "1"), display("new", "1", "update_display_data")]
    new = Display({"text/plain": "new"}, display_id="1")

    assert in_order(*cleared, *updated) == (new, Stream("stderr", "b"), new)


def test_a_display_without_content_is_none_and_may_get_some():
    empty = display({}, "1")

    assert in_order(stream("a"), empty, stream("b")) == (Stream("stdout", "ab"),)
    assert in_order(empty, display("new", "1", "update_display_data")) == (
        Display({"text/plain": "new"}, display_id="1"),
    )


def test_the_files_of_a_display_are_at_the_display(tmp_path: Path):
    both = {**png(b"first"), "text/html": "<b>"}
    outputs = collected(display("no file"), display(both), stream("a"), display(png(b"second")))
    saved = outputs.save(tmp_path)
    text, first, _, second = saved.outputs

    assert isinstance(text, Display)
    assert isinstance(first, Display)
    assert isinstance(second, Display)
    assert [[path.read_bytes() for path in each.files] for each in (text, first, second)] == [
        [],
        [b"first", b"<b>"],
        [b"second"],
    ]
    assert [*first.files, *second.files] == [saved.images[0], *saved.files, saved.images[1]]


def test_text_that_was_held_back_stays_in_order():
    assert in_order(stream("a\x1b["), display("b"), stderr("31mc\x1b[")) == (
        Stream("stdout", "a"),
        Display({"text/plain": "b"}),
        Stream("stderr", "c\\u001b["),
    )


def test_tracebacks_that_were_shown_are_text_on_stderr():
    outputs = collected(stream("a"), message("error", traceback=["shown"]))
    outputs.end(message("execute_reply", status="ok"))

    assert outputs.outputs() == [Stream("stdout", "a"), Stream("stderr", "shown\n")]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param({"data": [], "metadata": []}, (), id="no_objects"),
        pytest.param({"data": {"text/plain": 1, "x": {}}}, (Display({"text/plain": "", "x": ""}),), id="no_texts"),
        pytest.param({"data": {"x": ["a", 1, "b"]}}, (Display({"x": "ab"}),), id="lines"),
        pytest.param({"data": {"a+json": None}}, (Display({"a+json": None}),), id="any_json"),
        pytest.param({"data": {"x": "\ud800"}}, (Display({"x": "\ud800"}),), id="a_lone_surrogate_as_it_was_sent"),
        pytest.param({"data": {"x": ""}, "metadata": 1}, (Display({"x": ""}),), id="metadata"),
        pytest.param({"data": {"x": ""}, "transient": {"display_id": 1}}, (Display({"x": ""}),), id="display_id"),
    ],
)
def test_whatever_code_sends_is_a_display_or_nothing(content: dict[str, Any], expected: tuple[Display, ...]):
    assert in_order(message("display_data", **content)) == expected


@pytest.mark.parametrize("count", ["1", None, True, 1.5])
def test_a_count_that_is_no_number_is_none(count: object):
    assert in_order(message("execute_result", data={"x": ""}, execution_count=count)) == (Result({"x": ""}),)


@pytest.mark.parametrize("name", ["stdin", None, ["stderr"]])
def test_a_stream_of_another_name_is_stdout(name: object):
    assert in_order(message("stream", name=name, text="a\ud800")) == (Stream("stdout", "a\N{REPLACEMENT CHARACTER}"),)


def test_json_that_is_nested_too_deeply_to_be_encoded_has_no_text():
    value: list[Any] = []
    for _ in range(100_000):  # more than any Python encodes
        value = [value]

    assert text_of(Display({"application/json": value, "text/plain": "<a.b object at 0x7f>"})) == ""


def test_values_of_json_count_what_they_take_in_memory():
    lists = [display({"a+json": [[]] * 1_000_000, "text/plain": "x"}) for _ in range(6)]
    outputs = collected(*lists)

    assert len(outputs.outputs()) == 2
    (notice,) = outputs.notices()
    assert "of output was discarded" in notice
    texts = collected(*[display("a,[{" * 1_000_000) for _ in range(6)])
    assert len(texts.outputs()) == 6, "text is no value"


def test_changes_between_the_streams_count(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(output_collector, "MAX_OUTPUT_BYTES", 10_000)
    changing = collected(*[stream("a"), stderr("b")] * 100)

    assert changing.notices() != []
    assert collected(*[stream("a"), stream("b")] * 100).notices() == []
