"""What a person's client gets of messages that code in the sandbox may have made up."""

import json
import threading
import time
from typing import Any

import pytest

from ipybox.kernel_mgr import messages
from ipybox.kernel_mgr.attach import client_messages as module
from ipybox.kernel_mgr.attach.client_messages import encode_frame, request_for_kernel, shown_content


def message(msg_type: str, content: dict[str, Any]) -> messages.Message:
    return messages.decode(messages.encode("iopub", {"msg_id": "1", "msg_type": msg_type}, {}, content))


@pytest.mark.parametrize("msg_type", ["display_data", "update_display_data", "execute_result", "inspect_reply"])
def test_no_form_that_a_front_end_executes_leaves_the_sandbox(msg_type: str):
    forms = {"text/html": "<script>", "image/svg+xml": "<svg>", "application/javascript": "x", "text/markdown": "x"}
    content: dict[str, Any] = {"data": forms | {"text/plain": "it", "image/png": "AA=="}, "metadata": {"text/html": {}}}

    shown = shown_content(message(msg_type, content), confined=True)

    assert shown is not None
    assert shown["data"] == {"text/plain": "it", "image/png": "AA=="}
    assert "text/html" not in json.dumps(shown)
    shown = shown_content(message(msg_type, {"data": forms}), confined=True)
    assert shown is not None
    assert [*shown["data"]] == ["text/plain"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mred\x1b[0m\r\n\t\b", "a\x1b[31mred\x1b[0m\r\n\t\b"),
        ("\x1b]0;title\x07", "\ufffd]0;title\ufffd"),
        ("\x1b[2J\x9b2J", "\ufffd[2J\ufffd2J"),
        ("a\u202eb\u2066c\u200fd", "a\ufffdb\ufffdc\ufffdd"),
    ],
)
def test_text_of_the_sandbox_controls_no_terminal_but_for_colors(text: str, shown: str):
    content = shown_content(message("stream", {"name": "stdout", "text": text}), confined=True)

    assert content == {"name": "stdout", "text": shown}


def test_a_reply_has_clients_show_pages_and_do_nothing_else():
    page = {"source": "page", "data": {"text/plain": "help", "text/html": "<script>"}, "start": 0}
    payload = [page, {"source": "edit_magic", "filename": "/etc/passwd"}, {"source": "ask_exit"}, 7]

    shown = shown_content(message("execute_reply", {"status": "ok", "payload": payload}), confined=True)

    assert shown == {"status": "ok", "payload": [page | {"data": {"text/plain": "help"}}]}


@pytest.mark.parametrize("state", ["restarting", "autorestarting", "unknown", 1, ["idle"], {}])
def test_a_state_that_no_kernel_reports_leaves_no_sandbox(state: object):
    assert shown_content(message("status", {"execution_state": state}), confined=True) is None
    assert shown_content(message("status", {"execution_state": "busy"}), confined=True) == {"execution_state": "busy"}


@pytest.mark.parametrize("msg_type", ["comm_open", "comm_msg", "debug_event", "unknown"])
def test_other_types_leave_no_sandbox(msg_type: str):
    assert shown_content(message(msg_type, {}), confined=True) is None
    assert shown_content(message(msg_type, {}), confined=False) == {}


def test_links_and_the_debugger_of_the_kernel_are_not_offered():
    links = [{"text": "Help", "url": "javascript:alert(1)"}]
    content = {"status": "ok", "help_links": links, "supported_features": ["debugger"], "debugger": True}

    shown = shown_content(message("kernel_info_reply", content), confined=True)
    assert shown == {"status": "ok", "help_links": []}
    shown = shown_content(message("kernel_info_reply", content), confined=False)
    assert shown == content | {"supported_features": [], "debugger": False}


def test_what_is_too_large_is_replaced(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MAX_SHOWN_BYTES", 100)
    large = {"name": "stdout", "text": "x" * 100, "data": {"text/plain": "x"}}

    for msg_type in ("stream", "display_data", "execute_reply"):
        shown = shown_content(message(msg_type, large), confined=False)
        assert shown is not None
        assert "x" * 100 not in json.dumps(shown)
    assert shown_content(message("comm_msg", large), confined=False) is None


def test_headers_have_only_what_clients_use():
    header = {"msg_id": "1", "msg_type": "status", "session": ["s"], "else": "e"}

    frame = json.loads(encode_frame("iopub", header, {"msg_id": "2", "x": 1}, {}))

    assert (frame["header"], frame["parent_header"]) == ({"msg_id": "1", "msg_type": "status"}, {"msg_id": "2"})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "[]",
        "[" * 100_000,
        '{"header": []}',
        '{"header": {"msg_id": "1"}}',
        '{"header": {"msg_id": "", "msg_type": "execute_request"}}',
        '{"header": {"msg_id": 1, "msg_type": "execute_request"}}',
        '{"header": {"msg_id": "1", "msg_type": "execute_request"}, "channel": "iopub"}',
        '{"header": {"msg_id": "1", "msg_type": "execute_request"}, "channel": ["shell"]}',
        '{"header": {"msg_id": "1", "msg_type": "execute_request"}, "content": "x"}',
        '{"header": {"msg_id": "1", "msg_type": ["execute_request"]}}',
        '{"header": {"msg_id": "1", "msg_type": "debug_request"}}',
        '{"header": {"msg_id": "1", "msg_type": "shutdown_request"}, "channel": "control"}',
    ],
)
def test_what_is_no_request_that_clients_may_send_is_refused(text: str):
    with pytest.raises(ValueError, match=r".+"):
        request_for_kernel(text)


def test_other_threads_run_while_a_long_text_is_made_safe():
    content, turns = b'{"history":"%b"}' % (b"\x7f" * (15 << 20)), 0
    reply = messages.Message("shell", {"msg_type": "history_reply"}, {}, content)
    thread = threading.Thread(target=shown_content, args=[reply], kwargs={"confined": True})
    thread.start()
    while thread.is_alive():
        time.sleep(0)
        turns += 1

    assert turns > 10  # each is a piece; otherwise, there are two or three
