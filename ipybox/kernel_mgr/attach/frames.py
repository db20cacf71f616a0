"""Jupyter messages as JSON texts, the form in which they travel between the relay and a person's client.

All Jupyter clients know it, and Jupyter Server uses nothing else for the kernels of a gateway. Binary buffers are not
part of it. https://jupyter-server.readthedocs.io/en/latest/developers/websocket-protocols.html
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from ipybox.kernel_mgr.messages import Message

CHANNELS = ("shell", "control", "stdin")

_HEADER = ("msg_id", "msg_type", "session", "username", "date", "version", "subshell_id")

#: The characters of the longest message id and message type.
_MAX_NAME = 200


@dataclass(frozen=True)
class ClientMessage:
    """A message of a client: a request, or the answer to one."""

    channel: str
    header: dict[str, Any]
    parent_header: dict[str, Any]
    content: dict[str, Any]

    @property
    def id(self) -> str:
        """The message id."""
        return str(self.header["msg_id"])

    @property
    def type(self) -> str:
        """The message type, for example `execute_request`."""
        return str(self.header["msg_type"])


def decode_frame(text: str) -> ClientMessage:
    """Returns the message of a client.

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
    return ClientMessage(channel, header, parent, content)


def _object(value: object) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise ValueError("part of the message is not a JSON object")
    return cast(dict[str, Any], value or {})


def encode_frame(
    channel: str, header: Mapping[str, Any], parent_header: Mapping[str, Any], content: Mapping[str, Any]
) -> str:
    """Returns the text of a message of the kernel.

    Raises:
        ValueError: If JSON can't represent it.
    """
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


def text_of_message(message: Message, content: Mapping[str, Any]) -> str:
    """Returns the text of a message of the kernel with this content, see `encode_frame`."""
    return encode_frame(message.channel, _known(message.header), _known(message.parent_header), content)


def _known(header: Mapping[str, Any]) -> dict[str, str]:
    """Returns the texts of a header that clients use."""
    return {name: value for name in _HEADER if isinstance(value := header.get(name), str)}
