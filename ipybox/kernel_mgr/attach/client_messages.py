"""What a person's Jupyter client sends and receives: a kernel's messages as JSON, and the REST responses about it.

A Jupyter front end runs JavaScript in outputs with the person's permissions, outside of any sandbox. Sandboxed code
could therefore escape as soon as the person views its output. From a confined kernel, a client receives only what front
ends show without executing it: text and raster images.
https://jupyter-server.readthedocs.io/en/latest/developers/websocket-protocols.html
https://jupyter-server.readthedocs.io/en/latest/developers/rest-api.html
"""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, cast

from ipybox.kernel_mgr import messages
from ipybox.kernel_mgr.display_forms import MAX_FORMS, as_object, pieces
from ipybox.kernel_mgr.messages import Message

_CHANNELS = ("shell", "control")

#: Requests that clients may send to the kernel. The others control the debugger, which opens a port, or end the kernel.
_REQUESTS = (
    *("comm_close", "comm_info_request", "comm_msg", "comm_open", "complete_request", "execute_request"),
    *("history_request", "inspect_request", "interrupt_request", "is_complete_request", "kernel_info_request"),
)

_HEADER = ("msg_id", "msg_type", "session", "username", "date", "version", "subshell_id")

#: Maximum bytes of a message's JSON content; larger content is not shown.
MAX_SHOWN_BYTES = 16 << 20

_SHOWN_FORMS = ("text/plain", "image/png", "image/jpeg", "image/gif", "image/webp")

_DISPLAYS = ("display_data", "execute_result", "update_display_data")

#: The content fields that clients receive, by message type. Other messages, such as a widget's, are dropped.
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "status": ("execution_state",),
    "stream": ("name", "text"),
    "error": ("ename", "evalue", "traceback"),
    "clear_output": ("wait",),
    "execute_input": ("code", "execution_count"),
    "execute_reply": ("status", "execution_count", "ename", "evalue", "traceback", "payload"),
    "kernel_info_reply": (
        *("status", "protocol_version", "implementation", "implementation_version", "language_info", "banner"),
    ),
    "complete_reply": ("status", "matches", "cursor_start", "cursor_end"),
    "inspect_reply": ("status", "found", "data"),
    "is_complete_reply": ("status", "indent"),
    "history_reply": ("status", "history"),
    "comm_info_reply": ("status", "comms"),
    "interrupt_reply": ("status",),
    "display_data": ("data", "transient"),
    "update_display_data": ("data", "transient"),
    "execute_result": ("data", "transient", "execution_count"),
}

#: Control characters, except line ends, tabs, backspaces and color sequences; and characters that change the reading
#: order. All are in one set, because alternatives take ten times as long.
_CONTROL = re.compile(
    r"[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069](?!(?<=\x1b)\[[0-9;]*m)"
)

#: The states that are shown. The gateway sends no others, so any other is forged by code. A forged `dead` becomes true:
#: the application replaces the kernel.
_STATES = ("starting", "busy", "idle", "dead")


def models(kernel_id: str, name: str) -> dict[tuple[str, str], object]:
    """Returns the REST responses about one kernel, by method and path. Its session has the same id.

    Clients learn the kernel's state from its messages. `name` is the name that they show.
    """
    started = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    activity: dict[str, Any] = {"last_activity": started, "connections": 1}
    spec: dict[str, Any] = {
        "argv": [],
        "env": {},
        "display_name": f"ipybox session {name}",
        "language": "python",
        "interrupt_mode": "signal",
        "metadata": {},
    }
    specification: dict[str, Any] = {"name": "python3", "spec": spec, "resources": {}}
    kernel = {"id": kernel_id, "name": "python3", "execution_state": "idle", **activity}
    path = {"path": f"ipybox-{name}", "name": f"ipybox-{name}"}
    # VS Code finds the kernel here.
    session: dict[str, Any] = {"id": kernel_id, **path, "type": "notebook", "kernel": kernel, "notebook": path}
    return {
        ("GET", "/api"): {"version": version("jupyter_server")},
        ("GET", "/api/status"): {"started": started, "kernels": 1, **activity},
        ("GET", "/api/kernelspecs"): {"default": "python3", "kernelspecs": {"python3": specification}},
        ("GET", "/api/kernelspecs/python3"): specification,
        ("GET", "/api/kernels"): [kernel],
        ("POST", "/api/kernels"): kernel,
        ("GET", f"/api/kernels/{kernel_id}"): kernel,
        ("GET", "/api/sessions"): [session],
        ("POST", "/api/sessions"): session,
        ("GET", f"/api/sessions/{kernel_id}"): session,
        ("PATCH", f"/api/sessions/{kernel_id}"): session,
    }


def request_for_kernel(text: str) -> tuple[str, str, bytes]:
    """Returns the id and type of the request in a client's WebSocket frame, and the bytes to send to the kernel.

    Raises:
        ValueError: If it is not a request that clients may send.
    """
    try:
        frame = as_object(json.loads(text))
    except RecursionError as exc:
        raise ValueError("the JSON is nested too deeply") from exc
    channel = frame.get("channel") or "shell"
    parts: list[Any] = [frame.get(name) or {} for name in ("header", "parent_header", "content")]
    if channel not in _CHANNELS or not all(isinstance(part, dict) for part in parts):
        raise ValueError("not a Jupyter message")
    header, parent, content = parts
    msg_id, msg_type = header.get("msg_id"), header.get("msg_type")
    if not (msg_id and isinstance(msg_id, str) and msg_type in _REQUESTS):
        raise ValueError(f"not a request that clients may send: {msg_type!r}")
    return msg_id, msg_type, messages.encode(channel, header, parent, content)


def encode_frame(
    channel: str, header: Mapping[str, Any], parent_header: Mapping[str, Any], content: Mapping[str, Any]
) -> str:
    """Returns a kernel's message as JSON, with the header fields that clients use.

    Raises:
        ValueError: If JSON can't represent it.
    """
    header, parent_header = (
        {name: value for name in _HEADER if isinstance(value := each.get(name), str)}
        for each in (header, parent_header)
    )
    frame: dict[str, Any] = {
        "channel": channel,
        "msg_id": header.get("msg_id"),
        "msg_type": header.get("msg_type"),
        "header": header,
        "parent_header": parent_header,
        "metadata": {},
        "content": content,
        "buffers": [],
    }
    return json.dumps(frame, allow_nan=False, separators=(",", ":"))


def shown_content(message: Message, *, confined: bool) -> dict[str, Any] | None:
    """Returns the content of a kernel's message for a client; None if the client does not receive it."""
    if message.costly or len(message.raw_content) > MAX_SHOWN_BYTES:
        return _too_large(message)
    content = dict(message.content)
    if message.type == "kernel_info_reply":
        content["debugger"] = False
        content["supported_features"] = []
    if not confined:
        return content
    fields = _FIELDS.get(message.type)
    if fields is None or (message.type == "status" and content.get("execution_state") not in _STATES):
        return None
    shown = {name: content[name] for name in fields if name in content}
    if "data" in shown:
        shown["data"] = _shown_data(shown["data"])
    if message.type in _DISPLAYS:
        shown["metadata"] = {}
    if "payload" in shown:
        shown["payload"] = _shown_payload(shown["payload"])
    if message.type == "kernel_info_reply":
        shown["help_links"] = []
    return _plain(shown)


def _too_large(message: Message) -> dict[str, Any] | None:
    if message.type == "stream":
        return {"name": "stderr", "text": "[ipybox] This output is too large to show here.\n"}
    if message.type in _DISPLAYS:
        text = "[ipybox] This display is too large to show here."
        return {"data": {"text/plain": text}, "metadata": {}, "transient": {}, "execution_count": None}
    if message.type.endswith("_reply"):
        return {"status": "error", "ename": "TooLarge", "evalue": "the reply is too large to show", "traceback": []}
    return None


def _shown_data(data: object) -> dict[str, Any]:
    forms = as_object(data)
    shown = {form: value for form, value in forms.items() if form in _SHOWN_FORMS and isinstance(value, str)}
    if forms and not shown:
        return {"text/plain": "[ipybox] The sandbox blocks this display."}
    return shown


def _shown_payload(payload: object) -> list[dict[str, Any]]:
    """Returns only help pages. Other payloads would make the client edit a file or exit."""
    entries = map(as_object, cast(list[object], payload)[:MAX_FORMS] if isinstance(payload, list) else [])
    pages = [_shown_data(page.get("data")) for page in entries if page.get("source") == "page"]
    return [{"source": "page", "data": data, "start": 0} for data in pages]


def _plain(value: Any) -> Any:
    """Returns a JSON value with control characters and direction marks replaced, except for terminal colors."""
    if isinstance(value, str):
        return "".join(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", piece) for piece in pieces(value))
    if isinstance(value, list):
        return [_plain(item) for item in cast(list[Any], value)]
    if isinstance(value, dict):
        return {_plain(name): _plain(item) for name, item in cast(dict[str, Any], value).items()}
    return value
