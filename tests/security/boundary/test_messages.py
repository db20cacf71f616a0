"""Messages that kernel code sends itself neither block nor fill the host."""

import re

import pytest

from tests.security.boundary.heart import LARGE, Heart
from tests.security.boundary.sides import Side
from tests.security.conftest import Row

pytestmark = pytest.mark.asyncio(loop_scope="module")

MESSAGES = "messages of the kernel"
MESSAGE_ATTACKS: dict[str, str] = {
    # Such output belongs to the running cell, as that of a thread does.
    "another cell's parent": "guests.publish('stream', {'name': 'stdout', 'text': 'LATE'}, parent={'msg_id': 'x'})",
    "a parent that is not text": "for id in (1, None, [], {}, 'x' * 10_000_000):\n"
    "    guests.publish('stream', {'name': 'stdout', 'text': 'LATE'}, parent={'msg_id': id, 'header': {}})",
    "the end of the kernel": "guests.publish('status', {'execution_state': 'dead'})",
    "the end of the cell": "guests.publish('status', {'execution_state': 'idle'})\n"
    "guests.reply('execute_reply', {'status': 'ok'})\nimport time\ntime.sleep(0.5)",
    "comms": "for kind in ('comm_open', 'comm_msg', 'comm_close'):\n"
    "    guests.publish(kind, {'comm_id': 'x', 'target_name': 'evil', 'data': {}})",
    "a request for input": "guests.publish('input_request', {'prompt': 'password?', 'password': True})",
    "contents of every kind": """
for content in (None, 1, "x", [], {"text": {}}, {"text": [1, None, {}]}, {"data": []}, {"data": {"image/png": {}}},
                {"data": {"image/png": "no image"}}, {"data": {"image/png": [1]}}, {"data": {"text/plain": {"a": 1}}},
                {"data": {"image/../../x": "AAAA", "image/png/../../../x": "AAAA"}}, {"transient": []},
                {"transient": {"display_id": {}}, "data": {"text/plain": "x"}}, {"wait": {}}, {"execution_state": []}):
    for kind in ("stream", "display_data", "execute_result", "update_display_data", "clear_output", "status", "error"):
        guests.publish(kind, json.dumps(content).encode())
""",
    "contents that are no JSON": """
for content in (b"", b"{", b"\\xff\\xfe", b"[" * 1_000_000, b'{"a":' * 100_000, b"9" * 1_000_000, b"NaN"):
    for kind in ("stream", "display_data", "status"):
        guests.publish(kind, content)
""",
    "JSON to show that is nested to any depth": """
for depth in range(900, 1000):
    guests.publish("display_data", b'{"data": {"application/json": ' + b"[" * depth + b"]" * depth + b"}}")
""",
    "replies of every kind": """
for content in ({}, {"status": "error"}, {"status": "error", "traceback": 1, "ename": [], "evalue": {}},
                {"status": "error", "traceback": ["x" * 1000] * 10_000}, {"status": {}}, {"payload": 1},
                {"payload": [1, {"source": "page"}, {"source": "page", "data": []}]}):
    guests.reply("execute_reply", content)
""",
    "images that are no images": """
import base64
for data in (b"", b"#!/bin/sh", b"<svg/>", os.urandom(1000), b"\\x89PNG\\r\\n"):
    display({"image/png": base64.b64encode(data).decode(), "image/jpeg": "!", "image/svg+xml": "<x>"}, raw=True)
""",
    "a control sequence without end": """
guests.publish("stream", {"name": "stdout", "text": "\\x1b["})
for _ in range(1000):
    guests.publish("stream", {"name": "stdout", "text": "0" * 65_536})
""",
    "a title for the terminal without end": """
guests.publish("stream", {"name": "stdout", "text": "\\x1b]"})
for _ in range(1000):
    guests.publish("stream", {"name": "stdout", "text": "0" * 65_536})
""",
    "ten million beginnings of control sequences": "print('\\x1b[' * 10_000_000, '\\x1b]0;' * 3_000_000)",
    "320 MiB of output": "import sys\nfor _ in range(320): sys.stdout.write('x' * (1 << 20))",
    "twenty thousand messages": "for _ in range(20_000): guests.publish('stream', {'name': 'stdout', 'text': 'x'})",
    "an image of 150 MiB": "display({'image/png': 'AAAA' * (50 << 20)}, raw=True)",
    "a message of 300 MiB": "print('x' * (300 << 20))",
    "a display of 500 places, each of which an update changes": """
for _ in range(500):
    guests.publish("display_data", {"data": {"text/plain": "x" * 1000}, "transient": {"display_id": "x"}})
for _ in range(500):
    guests.publish("update_display_data", {"data": {"text/plain": "y" * 100_000}, "transient": {"display_id": "x"}})
""",
    "JSON to show that has ten million values": "guests.publish('display_data',"
    " b'{\"data\": {\"application/json\": [' + b'[],' * 10_000_000 + b'[]]}}')",
    "a header of ten million values": "guests.publish('stream', {}, parent={'msg_id': [[]] * 10_000_000})",
}


@pytest.mark.parametrize("name", MESSAGE_ATTACKS)
async def test_messages_do_no_harm(name: str, sandboxed: Side, table: list[Row]) -> None:
    await sandboxed.works()
    async with Heart().beating() as heart:
        text = await sandboxed.run(MESSAGE_ATTACKS[name])
        assert "FORGED" not in text
        assert "RecursionError" not in text
        assert "SyntaxError" not in text
        del text
        await sandboxed.works()
    table.append(Row(MESSAGES, name, "an honest cell is answered", heart.check(large=name in LARGE)))
    for image in (sandboxed.workspace / "pictures").glob("[!.]*"):
        assert re.fullmatch(r"[0-9a-f]{32}\.(png|jpg)|[0-9a-f]{8}\.(svg|json)", image.name)
        image.unlink()
