"""Malformed messages of servers: every reply whose request is known ends it."""

import gc
import json
import re
import time
from typing import Any

import pytest

from ipybox.mcp_client.messages import (
    EXCERPT,
    MAX_BATCH,
    MAX_REPAIRED,
    TOOLS_CHANGED,
    encode,
    read_answer,
    read_messages,
    validated,
)

RESULT: dict[str, Any] = {"content": []}


def reply(**fields: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, **fields}


def raw(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def deep(levels: int) -> bytes:
    return b'{"jsonrpc":"2.0","id":7,"result":{"a":' + b"[" * levels + b"]" * levels + b"}}"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(raw(**reply(result=RESULT)), reply(result=RESULT), id="result"),
        pytest.param(raw(id=7, result=RESULT), reply(result=RESULT), id="no_jsonrpc"),
        pytest.param(raw(**reply(result=RESULT), error=None), reply(result=RESULT), id="null_error_beside_a_result"),
        pytest.param(raw(**reply(result=RESULT), method="tools/call"), reply(result=RESULT), id="method_repeated"),
        pytest.param(raw(jsonrpc="2.0", id=7.0, result=RESULT), reply(result=RESULT), id="id_with_a_fraction"),
        pytest.param(b"\xef\xbb\xbf" + raw(**reply(result=RESULT)), reply(result=RESULT), id="byte_order_mark"),
        pytest.param(b"Ready. " + raw(**reply(result=RESULT)), reply(result=RESULT), id="text_before_it"),
        pytest.param(rb'{"jsonrpc":"2.0","id":7,"result":{"a":"\ud83d"}}', reply(result={"a": "�"}), id="half_emoji"),
        pytest.param(
            rb'{"jsonrpc":"2.0","id":7,"result":{"\udc00":"\ud83d\ude00\ud83dx\\ud83d"}}',
            reply(result={"�": "😀�x\\ud83d"}),
            id="halves_and_a_whole",
        ),
        pytest.param(b'{"jsonrpc":"2.0","id":7,"result":{"a":"\xff"}}', reply(result={"a": "�"}), id="invalid_utf_8"),
        pytest.param(b'{"jsonrpc":"2.0","id":7,"result":{"a":"x\ty"}}', reply(result={"a": "x\ty"}), id="raw_tab"),
        pytest.param(b'[{"jsonrpc":"2.0","id":7,"result":{}}]', reply(result={}), id="batch_of_one"),
        pytest.param(
            raw(**reply(error={"code": -1, "message": "no", "data": [1]})),
            reply(error={"code": -1, "message": "no", "data": [1]}),
            id="error",
        ),
        pytest.param(
            raw(**reply(error="no quota")), reply(error={"code": -32603, "message": "no quota"}), id="error_is_text"
        ),
        pytest.param(
            raw(**reply(error={"code": "E_QUOTA", "message": "no quota"})),
            reply(error={"code": -32603, "message": "E_QUOTA: no quota"}),
            id="code_is_text",
        ),
        pytest.param(
            raw(**reply(error={"reason": "no quota"})),
            reply(error={"code": -32603, "message": '{"reason":"no quota"}'}),
            id="error_without_a_message",
        ),
        pytest.param(raw(**reply(error=[1])), reply(error={"code": -32603, "message": "[1]"}), id="error_is_a_list"),
    ],
)
def test_a_reply_whose_meaning_is_clear_is_repaired(data: bytes, message: dict[str, Any]):
    (read,) = read_messages(data)

    assert read == message
    assert json.loads(encode(read)) == message
    validated(read)


@pytest.mark.parametrize(
    ("unit", "reason"),
    [(rb"\ud83d", "surrogate"), (b"\x01", "control character"), (b"\xff", "invalid unicode")],
    ids=["surrogates", "controls", "invalid_utf_8"],
)
def test_a_large_reply_is_not_repaired_but_ends_its_request(unit: bytes, reason: str):
    text = unit * (MAX_REPAIRED // len(unit) + 1)
    (read,) = read_messages(b'{"jsonrpc":"2.0","id":7,"result":{"a":"%b"}}' % text)

    assert read["id"] == 7
    assert re.match(f"the server's response is not valid JSON .*{reason}", read["error"]["message"])
    assert len(read["error"]["message"]) < 3 * EXCERPT


@pytest.mark.parametrize(
    ("data", "text"),
    [
        pytest.param(
            raw(**reply(result=None)), 'contains no result: {"jsonrpc":"2.0","id":7,"result":null}', id="null"
        ),
        pytest.param(raw(**reply(result="done")), 'contains no result: .*"done"', id="text"),
        pytest.param(raw(**reply(result=[1])), "contains no result", id="list"),
        pytest.param(raw(**reply()), "contains no result", id="nothing"),
        pytest.param(deep(200), "not valid JSON .*recursion limit", id="200_levels"),
        pytest.param(deep(100_000), "not valid JSON .*recursion", id="100000_levels"),
        pytest.param(b'{"jsonrpc":"2.0","id":7,"result":{"a":1,}}', "not valid JSON", id="trailing_comma"),
        pytest.param(b'{"jsonrpc":"2.0","id":7,"result":{"a":"cut', 'not valid JSON .*"cut', id="truncated"),
        pytest.param(b'{"result":{"id":1,"a":undefined},"jsonrpc":"2.0","id":7}', "not valid JSON", id="id_at_the_end"),
        pytest.param(b'{"id" : "7", "jsonrpc":"2.0","error":{"id":1,"method":oops}}', "not valid JSON", id="id_first"),
        pytest.param(
            b'{"result":{"a":[' + b'"x",' * 400_000 + b'oops]},"jsonrpc":"2.0","id":7}', "not valid JSON", id="far_end"
        ),
    ],
)
def test_a_reply_that_can_not_be_repaired_is_an_error_of_its_request(data: bytes, text: str):
    (read,) = read_messages(data)

    error = validated(read).model_dump()
    assert str(error["id"]) == "7"
    assert len(error["error"]["message"]) < 800
    with pytest.raises(AssertionError, match=text):
        raise AssertionError(error["error"]["message"].replace("\n", " "))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"usage",
        b'{"jsonrpc": "2.0"}',
        b'{"level": 30, "id": 7, "msg": "listening"}',
        b'{"jsonrpc": "2.0", "id": null, "result": {}}',
        b'{"jsonrpc": "2.0", "id": true, "result": {}}',
        b'sent {"jsonrpc": "2.0", "id": 7, "method": "tools/call"}',
        b'{"jsonrpc": "2.0", "a": [{"id": 7}',
        b'<- {"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name": ...',
        b"[]",
        b"[7]",
        b"[" * 100_000,
    ],
)
def test_what_is_no_message_or_has_no_id_is_noise(data: bytes):
    with pytest.raises(ValueError):  # noqa: PT011 - of the parser
        read_messages(data)


def test_requests_and_the_notification_that_is_needed_are_read_and_others_dropped():
    batch = [{"method": TOOLS_CHANGED, "params": {"_meta": {"a": 1}}}, reply(method="ping", params={"a": 1})]
    others: list[Any] = [{"method": "notifications/progress", "params": {}}, {"method": "x", "params": 1}]

    read = read_messages(json.dumps(batch + others).encode())

    assert read == [{"jsonrpc": "2.0", "method": TOOLS_CHANGED}, batch[1]]
    assert len(read_messages(json.dumps(batch * MAX_BATCH).encode())) == MAX_BATCH
    assert read_messages(json.dumps(others).encode()) == read_answer(json.dumps(others).encode(), 7) == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(raw(jsonrpc="2.0", id=None, result=RESULT), reply(result=RESULT), id="null"),
        pytest.param(raw(jsonrpc="2.0", result=RESULT), reply(result=RESULT), id="none"),
        pytest.param(raw(jsonrpc="2.0", id=8, result=RESULT), reply(result=RESULT), id="another"),
        pytest.param(raw(jsonrpc="2.0", id="7", result=RESULT), reply(result=RESULT), id="text"),
        pytest.param(raw(jsonrpc="2.0", id={}, error="no"), reply(error={"code": -32603, "message": "no"}), id="wrong"),
        pytest.param(
            b'[{"jsonrpc":"2.0","id":8,"result":{}},{"jsonrpc":"2.0","id":7,"result":{"own":1}}]',
            reply(result={"own": 1}),
            id="batch",
        ),
    ],
)
def test_a_reply_in_the_answer_to_a_request_is_its_own(data: bytes, message: dict[str, Any]):
    assert read_answer(data, 7) == [message]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        pytest.param(b" \n", "is empty", id="empty"),
        pytest.param(b'{"message": "no quota"}', 'not an MCP message .*: {"message": "no quota"}', id="other_json"),
        pytest.param(b"<html>", "not an MCP message .*: <html>", id="html"),
        pytest.param(b'{"jsonrpc":"2.0","result":{"a":"cut', "not an MCP message", id="truncated"),
        pytest.param(deep(300), "recursion limit", id="deep"),
    ],
)
def test_an_answer_that_is_no_reply_is_an_error_of_its_request(data: bytes, text: str):
    (read,) = read_answer(data, 7)

    assert read["id"] == 7
    with pytest.raises(AssertionError, match=text):
        raise AssertionError(read["error"]["message"])


@pytest.mark.parametrize(
    "piece",
    [b'"', b'\\"', b"\\", b"{", b"}", b'"id"', b'"id":', b'"id":1', b"[]", rb"\ud83d", b'{"', b'"id":"'],
    ids=repr,
)
def test_reading_takes_linear_time(piece: bytes):
    def seconds(count: int) -> float:
        start = time.process_time()
        with pytest.raises(ValueError, match="not JSON"):
            read_messages(b'{{"jsonrpc"' + piece * count)
        return time.process_time() - start

    seconds(1000)
    assert seconds(300_000) < 100 * max(seconds(30_000), 0.005)


def test_a_large_message_is_parsed_without_garbage_collection():
    nested: Any = 1
    for _ in range(150):
        nested = [nested]
    data = raw(**reply(result={"a": [nested] * 1000}))
    collections: list[str] = []

    def note(phase: str, _: object) -> None:
        collections.append(phase)

    gc.callbacks.append(note)
    try:
        (message,) = read_messages(data)
        found = [*collections]
    finally:
        gc.callbacks.remove(note)
    assert len(message["result"]["a"]) == 1000
    assert len(found) < 10  # otherwise, hundreds
