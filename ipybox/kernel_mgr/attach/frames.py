"""Encodes and decodes Jupyter messages as JSON, the format between the relay and a person's client.

All Jupyter clients support it, and Jupyter Server uses nothing else for gateway kernels. It has no binary buffers.
https://jupyter-server.readthedocs.io/en/latest/developers/websocket-protocols.html
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

CHANNELS = ("shell", "control", "stdin")

_HEADER = ("msg_id", "msg_type", "session", "username", "date", "version", "subshell_id")

#: Maximum characters of a message id or type.
_MAX_NAME = 200


@dataclass(frozen=True)
class ClientMessage:
    """A client's message: a request or a reply."""

    id: str
    type: str
    channel: str
    header: dict[str, Any]
    parent_header: dict[str, Any]
    content: dict[str, Any]


def decode_frame(text: str) -> ClientMessage:
    """Returns the client's message in a WebSocket frame.

    Raises:
        ValueError: If the text is not a message.
    """
    try:
        frame: object = json.loads(text)
    except RecursionError as exc:
        raise ValueError("the JSON is nested too deeply") from exc
    if not isinstance(frame, dict):
        raise ValueError("not a JSON object")
    fields = cast(dict[str, Any], frame)
    header, parent, content = (_object(fields.get(name)) for name in ("header", "parent_header", "content"))
    for name in ("msg_id", "msg_type"):
        if not isinstance(header.get(name), str) or not 0 < len(header[name]) <= _MAX_NAME:
            raise ValueError(f"the header has no valid {name}")
    channel = fields.get("channel") or "shell"
    if channel not in CHANNELS:
        raise ValueError("unknown channel")
    return ClientMessage(header["msg_id"], header["msg_type"], channel, header, parent, content)


def _object(value: object) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise ValueError("part of the message is not a JSON object")
    return cast(dict[str, Any], value or {})


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
