import json
import tracemalloc
from datetime import UTC, datetime
from typing import Any

import pytest

from ipybox.kernel_mgr.messages import Message, decode, encode_execute_request
from ipybox.kernel_mgr.variables import value_in
from ipybox.support.errors import VariableError


def framed(*parts: bytes, count: int | None = None) -> bytes:
    """Returns the parts as a kernel's message; `count` may lie about the number of offsets."""
    position = 8 * (len(parts) + 2)
    offsets = [position]
    for part in parts:
        position += len(part)
        offsets.append(position)
    words = (len(offsets) if count is None else count, *offsets)
    return b"".join(word.to_bytes(8, "little") for word in words) + b"".join(parts)


def message(*, channel: bytes = b"iopub", header: Any = None, parent: Any = None, content: bytes = b"{}") -> bytes:
    return framed(channel, json.dumps(header or {}).encode(), json.dumps(parent or {}).encode(), b"{}", content)


def test_a_request_is_decoded_as_it_was_encoded():
    code, fields = "print('ä€\U0001f600\ud800')", {"nested": {"list": [1, None, True]}}
    msg_id, data = encode_execute_request(code, fields, session="session")
    decoded = decode(data)

    assert decoded.channel == "shell"
    assert decoded.type == "execute_request"
    sent = datetime.fromisoformat(decoded.header.pop("date"))
    assert decoded.header == {
        "msg_id": msg_id,
        "msg_type": "execute_request",
        "username": "",
        "session": "session",
        "version": "5.3",
    }
    assert sent.tzinfo == UTC
    assert abs(datetime.now(UTC) - sent).total_seconds() < 600
    assert decoded.parent_header == {}
    assert decoded.parent_id is None
    assert decoded.content == {
        "code": code,
        "silent": False,
        "store_history": False,
        "user_expressions": {},
        "allow_stdin": False,
        "stop_on_error": False,
        **fields,
    }


def test_requests_have_ids_of_their_own():
    ids = {encode_execute_request("", {}, session="s")[0] for _ in range(100)}

    assert len(ids) == 100


def test_a_message_names_its_request():
    decoded = decode(message(header={"msg_type": "stream"}, parent={"msg_id": "abc"}, content=b'{"text": "x"}'))

    assert (decoded.type, decoded.parent_id, decoded.content) == ("stream", "abc", {"text": "x"})


def test_buffers_after_the_content_are_ignored():
    decoded = decode(framed(b"iopub", b"{}", b"{}", b"{}", b'{"a": 1}', b"buffer", b""))

    assert decoded.content == {"a": 1}


def test_content_is_decoded_only_when_it_is_asked_for():
    assert decode(message(content=b"no JSON")).raw_content == b"no JSON"


def test_invalid_utf8_in_content_is_replaced():
    assert decode(message(content=b'{"text": "a\xffb"}')).content == {"text": "a\N{REPLACEMENT CHARACTER}b"}


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"no JSON", b"[" * 100_000, b'{"a":' * 100_000])
def test_content_that_is_no_object_is_empty(content: bytes):
    assert decode(message(content=content)).content == {}


@pytest.mark.parametrize("msg_id", [None, 1, [], {}, True])
def test_an_id_that_is_no_string_is_none(msg_id: object):
    assert decode(message(parent={"msg_id": msg_id})).parent_id is None


PROTOCOL = "not a message of the Jupyter WebSocket protocol v1"
LARGE = "message headers larger than 64 KiB"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"", f"{PROTOCOL}: bad offset count", id="nothing"),
        pytest.param(b"\0" * 8, f"{PROTOCOL}: bad offset count", id="no_offsets"),
        pytest.param(message(header={"x": "y" * (1 << 16)}), LARGE, id="a_large_header"),
        pytest.param(message(parent={"msg_id": [[]] * (1 << 16)}), LARGE, id="a_large_parent"),
        pytest.param(
            b"".join(n.to_bytes(8, "little") for n in (6, 56, 60, 58, 60, 60, 60)) + b"xxxx",
            f"{PROTOCOL}: bad offsets",
            id="offsets_back",
        ),
        pytest.param(b"\xff" * 64, f"{PROTOCOL}: bad offset count", id="too_many_offsets"),
        pytest.param(
            (1025).to_bytes(8, "little") + b"\0" * 8 * 1025, f"{PROTOCOL}: bad offset count", id="one_offset_too_many"
        ),
        pytest.param(
            b"garbage that is long enough to look like a few offsets or so",
            f"{PROTOCOL}: bad offset count",
            id="garbage",
        ),
        pytest.param(
            (6).to_bytes(8, "little") + b"\0" * 40, f"{PROTOCOL}: bad offset count", id="fewer_offsets_than_announced"
        ),
        pytest.param((6).to_bytes(8, "little") + b"\xff" * 48, f"{PROTOCOL}: bad offsets", id="offsets_beyond_the_end"),
        pytest.param(framed(b"iopub", b"{}", b"{}", b"{}"), f"{PROTOCOL}: bad offset count", id="a_part_is_missing"),
        pytest.param(message(channel=b"\xff"), "'utf-8' codec can't decode .*", id="the_channel_is_no_text"),
        pytest.param(
            framed(b"iopub", b"[]", b"{}", b"{}", b"{}"),
            "expected a JSON object, got list",
            id="the_header_is_no_object",
        ),
        pytest.param(framed(b"iopub", b"{", b"{}", b"{}", b"{}"), "Expecting .*", id="the_header_is_no_json"),
        pytest.param(
            framed(b"iopub", b"{}", b"1", b"{}", b"{}"), "expected a JSON object, got int", id="the_parent_is_no_object"
        ),
        pytest.param(
            framed(b"iopub", b"[" * 60_000, b"{}", b"{}", b"{}"),
            "a JSON object is nested too deeply",
            id="the_header_is_nested_too_deeply",
        ),
    ],
)
def test_what_is_no_message_is_a_value_error(data: bytes, reason: str):
    with pytest.raises(ValueError, match=f"^{reason}$"):
        decode(data)


def test_headers_may_be_so_large_and_no_larger():
    space = (1 << 16) - len(b'iopub{"x": ""}{}')
    assert decode(message(header={"x": "y" * space})).header == {"x": "y" * space}
    with pytest.raises(ValueError, match=LARGE):
        decode(message(header={"x": "y" * (space + 1)}))


def test_a_message_may_have_so_many_buffers():
    parts = [b"iopub", b"{}", b"{}", b"{}", b'{"a": 1}', *[b""] * 1018]

    assert decode(framed(*parts)).content == {"a": 1}


def test_offsets_that_the_message_ends_in_are_complete():
    assert decode(framed(b"", b"{}", b"{}", b"", b"")).raw_content == b""


def test_messages_without_a_type_have_an_empty_one():
    assert Message("iopub", {}, {}, b"{}").type == ""


@pytest.mark.parametrize(("content", "buffers"), [(b"{}", 1), (b'{"encoding": 5}', 1), (b'{"encoding": "json"}', 2)])
def test_reply_without_a_value_is_an_error(content: bytes, buffers: int):
    reply = Message("shell", {}, {}, content, (memoryview(b"1"),) * buffers)
    with pytest.raises(VariableError, match="the kernel did not return the variable x"):
        value_in(reply, "x")


@pytest.mark.parametrize(("unit", "around"), [('"{}": {{}}', "{}"), ('{{"a": [{}]}}', "[]"), ("{{}}", "[]")])
def test_values_count_as_the_memory_that_they_take(unit: str, around: str):
    values = ", ".join(map(unit.format, range(50_000)))
    content = f'{{"metadata": {around[0]}{values}{around[1]}}}'
    message = Message("iopub", {"msg_type": "display_data"}, {}, content.encode())
    tracemalloc.start()
    try:
        assert message.content
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert taken < 1.2 * message.value_bytes
