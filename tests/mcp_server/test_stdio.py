"""Lines that are no messages are answered, whatever they are."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from anyio import CancelScope
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, PARSE_ERROR, JSONRPCResponse

from ipybox.mcp_server.stdio import MAX_LINE, AnswerStream, InvalidMessageError, MessageStream, parse_line

PING = b'{"jsonrpc":"2.0","id":"honest","method":"ping"}\n'


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}',
        b' {"method": "x", "params": {"b": NaN}, "id": "a", "jsonrpc": "2.0"} \r\n',
        b'{"jsonrpc": "2.0", "method": "notifications/x"}',
        b'{"jsonrpc": "2.0", "id": 1, "result": {}}',
        b'{"jsonrpc": "2.0", "id": null, "error": {"code": 1, "message": ""}}',
    ],
    ids=["request", "odd request", "notification", "response", "error"],
)
def test_messages_are_parsed(line: bytes) -> None:
    assert parse_line(line) is not None


@pytest.mark.parametrize(
    ("line", "code", "request_id"),
    [
        (b"{", PARSE_ERROR, None),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "\xff"}', PARSE_ERROR, None),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "\\ud800"}', PARSE_ERROR, 1),
        (b'{"jsonrpc": "2.0", "id": "\\ud800", "method": "ping"}', PARSE_ERROR, None),
        (b"[" * 100_000, PARSE_ERROR, None),
        (b"9" * 5000, PARSE_ERROR, None),
        (b"1", INVALID_REQUEST, None),
        (b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', INVALID_REQUEST, None),
        (b'{"id": 1, "method": "ping"}', INVALID_REQUEST, 1),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}', INVALID_REQUEST, 1),
        (b'{"jsonrpc": "2.0", "id": "a", "method": null}', INVALID_REQUEST, "a"),
        (b'{"jsonrpc": "2.0", "id": true, "method": null}', INVALID_REQUEST, None),
        (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', INVALID_REQUEST, None),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', INVALID_REQUEST, None),
        (b'{"jsonrpc": "2.0", "id": 1}', INVALID_REQUEST, None),
        (b"[" + b"1," * 4_000_000 + b"1]", INVALID_REQUEST, None),
    ],
    ids=lambda value: str(value)[:50],
)
def test_what_is_no_message_is_answered(line: bytes, code: int, request_id: Any) -> None:
    with pytest.raises(InvalidMessageError) as raised:
        parse_line(line)
    answer = raised.value.answer
    assert (answer.error.code, answer.id) == (code, request_id)


@pytest.mark.parametrize(
    "line", [b"\n", b" \r\n", b'{"id": 1, "result": "of nothing"}', b'{"id": 1, "error": {}}'], ids=repr
)
def test_nobody_waits_for_an_answer_to_blank_lines_and_responses(line: bytes) -> None:
    assert parse_line(line) is None


@pytest.mark.parametrize("size", [1, 5, 1 << 16], ids=["byte by byte", "in pieces", "at once"])
async def test_line_that_is_too_long_is_skipped(size: int) -> None:
    stdin = io.BytesIO(b"12345678\n123456789\n\n" + b"1" * 50 + b"\n2\n123456789")

    async def read() -> bytes:
        return stdin.read(size)

    lines = MessageStream(read, AnswerStream(1, CancelScope()), 8)
    assert await lines.next_line() == b"12345678\n"
    for following in (b"\n", b"2\n", b""):
        with pytest.raises(InvalidMessageError, match="the message is larger than 8 bytes"):
            await lines.next_line()
        assert await lines.next_line() == following


async def test_result_of_a_request_that_was_answered_early_is_dropped_even_after_others(tmp_path: Path) -> None:
    with (tmp_path / "stdout").open("wb", buffering=0) as stdout:
        answers = AnswerStream(stdout.fileno(), CancelScope(), "early")
        for request_id in ("other", "early", "last"):
            await answers.send(SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=request_id, result={})))
    written = [json.loads(line)["id"] for line in (tmp_path / "stdout").read_text().splitlines()]
    assert written == ["other", "last"]


def test_server_goes_on_after_a_line_that_is_too_long(tmp_path: Path) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen(command(tmp_path), stdin=pipe, stdout=pipe) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * MAX_LINE + b'"}\n' + PING)
        server.stdin.flush()
        refused, answered = (json.loads(server.stdout.readline()) for _ in range(2))
        server.stdin.close()
    assert refused["error"]["code"] == INVALID_REQUEST
    assert answered == {"jsonrpc": "2.0", "id": "honest", "result": {}}


def test_last_line_needs_no_end(tmp_path: Path) -> None:
    (answer,) = serve(tmp_path, PING.rstrip())
    assert answer["id"] == "honest"


def command(workspace: Path) -> list[str]:
    return [sys.executable, "-m", "ipybox.mcp_server", "--workspace", str(workspace)]


def serve(workspace: Path, *lines: bytes) -> Sequence[dict[str, Any]]:
    """Returns what a server answers until stdin ends."""
    done = subprocess.run(
        command(workspace), input=b"".join(lines), capture_output=True, timeout=60, check=True, env=os.environ
    )
    assert done.stderr == b""
    return [json.loads(line) for line in done.stdout.splitlines()]
