"""The fuzzer would notice what it looks for."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from ipybox.kernel_mgr.packages.request import parse_request
from tests.mcp_fuzz.answers import Id, Requests, Secrets, parsed
from tests.mcp_fuzz.conversation import harmless
from tests.mcp_fuzz.messages import Message
from tests.mcp_fuzz.values import TEXTS

NOBODY: set[Id] = set()


def message(framed: bool = True, **members: Any) -> Message:
    return Message(json.dumps({"jsonrpc": "2.0", **members}).encode(), framed)


def answer(request_id: Any, **members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, **(members or {"result": {}})}


@pytest.mark.parametrize(
    ("messages", "unanswered"),
    [
        ([message(id=1, method="x")], {(int, 1)}),
        ([message(id="1", method=None)], {(str, "1")}),
        ([message(id=True, method="x"), message(id=1.5, method="x"), message(id=None, method="x")], NOBODY),
        ([message(id=1, result={}), message(id=1, method="x", error={})], NOBODY),
        ([message(method="x")], NOBODY),
        ([message(id=1, method="x", framed=False)], NOBODY),
        ([message(id=1, method="x"), message(method="notifications/cancelled", params={"requestId": "1"})], NOBODY),
    ],
    ids=["request", "malformed", "no id", "responses", "notification", "broken framing", "cancelled"],
)
def test_requests_must_be_answered(messages: Sequence[Message], unanswered: set[Id]) -> None:
    requests = Requests()
    requests.sent(messages)
    assert requests.unanswered == unanswered


def test_each_of_two_requests_with_the_same_id_is_answered() -> None:
    requests = Requests()
    requests.sent([message(id=1, method="x")] * 2)
    requests.answered(answer(1))
    assert requests.unanswered
    requests.answered(answer(1))
    assert not requests.unanswered


@pytest.mark.parametrize(
    "answers",
    [
        [answer(1), answer(1)],
        [answer("1")],
        [answer(1, result={}, error={})],
        [answer(1, error={"code": 0, "message": "KeyError"})],
        [answer(1, result={"content": [{"type": "text", "text": "Error executing tool reset"}]})],
        [answer(None)],
        [{"jsonrpc": "2.0", "id": 5, "method": "sampling/createMessage"}],
    ],
    ids=["twice", "nobody asked", "both", "exception", "exception of a tool", "to nobody", "question"],
)
def test_wrong_answers_are_noticed(answers: Sequence[dict[str, Any]]) -> None:
    requests = Requests()
    requests.sent([message(id=1, method="x")])
    *right, wrong = answers
    for one in right:
        requests.answered(one)
    with pytest.raises(AssertionError):
        requests.answered(wrong)


@pytest.mark.parametrize(
    "said", ["in /home/me/x", 'File "x.py", line 3', "Traceback (most recent call last):", "<X at 0x7f0123456789>"]
)
def test_secrets_and_traces_are_noticed(said: str) -> None:
    with pytest.raises(AssertionError):
        Secrets("/home/me").check(said)


def test_answers_must_be_json() -> None:
    with pytest.raises(AssertionError):
        parsed(b'{"a": NaN}')


@pytest.mark.parametrize("text", [*TEXTS, "requests", "./package"], ids=lambda text: repr(text)[:20])
def test_nothing_is_installed(text: str, tmp_path: Any) -> None:
    with pytest.raises(ValueError, match="is not a package"):
        parse_request(harmless({"package_name": text})["package_name"], tmp_path)


def test_nothing_is_run() -> None:
    tree = {"params": [{"code": "import os", "command": "sh", "url": "http://example.com", "other": ["sh"]}]}
    assert harmless(tree) == {
        "params": [{"code": "1", "command": "/no/such", "url": "http://127.0.0.1:9/mcp", "other": ["sh"]}]
    }
