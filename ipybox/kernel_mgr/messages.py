"""Encodes and decodes Jupyter messages, without any I/O.

The format is Jupyter Server's WebSocket protocol `v1.kernel.websocket.jupyter.org`: a little-endian 64-bit count of
offsets, the offsets, the channel's name, and the message's parts as the kernel encoded them.
https://jupyter-server.readthedocs.io/en/latest/developers/websocket-protocols.html
"""

import json
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, cast

from ipybox.support.bounded_json import LARGE_BYTES, MAX_VALUES, count_values, loads

SUBPROTOCOL = "v1.kernel.websocket.jupyter.org"

#: Version of the Jupyter messaging protocol in requests.
PROTOCOL_VERSION = "5.3"

_WORD = 8

_JSON = json.JSONEncoder(separators=(",", ":"))

#: Bytes counted for each JSON value of a display, and values that a member of an object counts for beside its own, if
#: that exceeds the message: a decoded value can need many times the bytes of its text.
VALUE_BYTES, MEMBER = 64, 2

#: Larger headers can only be an attack.
MAX_HEADER_BYTES = 1 << 16

#: As can larger messages with printed text, which kernels send in pieces of four million characters.
MAX_STREAM_BYTES = 32 << 20


@dataclass(eq=False)
class Message:
    """A message from the kernel. Its content is decoded on first use; its buffers are not decoded.

    Attributes:
        type: The message type, for example `stream`.
        is_large: Whether decoding its content can take seconds, so that a thread should do it.
        parent_id: The id of the request that it belongs to.
    """

    channel: str
    header: dict[str, Any]
    parent_header: dict[str, Any]
    raw_content: bytes
    buffers: tuple[memoryview, ...] = ()

    def __post_init__(self) -> None:
        self.is_large = len(self.raw_content) > LARGE_BYTES
        self.type = str(self.header.get("msg_type", ""))
        msg_id = self.parent_header.get("msg_id")
        self.parent_id = msg_id if isinstance(msg_id, str) else None

    @cached_property
    def costly(self) -> bool:
        """Whether the content has too many values, or too much printed text, to be decoded."""
        too_long = self.type == "stream" and len(self.raw_content) > MAX_STREAM_BYTES
        return too_long or (len(self.raw_content) > MAX_VALUES and self.value_bytes > VALUE_BYTES * MAX_VALUES)

    @cached_property
    def value_bytes(self) -> int:
        """The bytes that the decoded values are counted as; less than the content's if they are few."""
        return VALUE_BYTES * count_values(self.raw_content, len(self.raw_content) // VALUE_BYTES, MEMBER)

    def prepare(self) -> None:
        """Decodes the content, and counts the values of displays, which can take seconds if it is large."""
        if self.content and self.type != "stream":
            _ = self.value_bytes

    @cached_property
    def content(self) -> dict[str, Any]:
        """The message's content; empty if it is costly or not a JSON object, because code can send messages itself."""
        try:
            return {} if self.costly else _decode_object(self.raw_content, loads if self.is_large else json.loads)
        except ValueError:
            return {}


def encode_execute_request(
    code: str, fields: Mapping[str, Any], *, session: str, buffers: Sequence[bytes] = ()
) -> tuple[str, bytes]:
    """Returns the id of a new request to run `code`, without an entry in the history, and its bytes.

    `fields` are ipybox's own, see `ipybox.guest.protocol`.
    """
    msg_id = uuid.uuid4().hex
    header = {
        "msg_id": msg_id,
        "msg_type": "execute_request",
        "username": "",
        "session": session,
        "date": datetime.now(UTC).isoformat(),
        "version": PROTOCOL_VERSION,
    }
    content: dict[str, Any] = {
        "code": code,
        "silent": False,
        "store_history": False,
        "user_expressions": {},
        "allow_stdin": False,
        "stop_on_error": False,
        **fields,
    }
    return msg_id, encode("shell", header, {}, content, buffers)


def encode(
    channel: str,
    header: Mapping[str, Any],
    parent_header: Mapping[str, Any],
    content: Mapping[str, Any],
    buffers: Sequence[bytes] = (),
) -> bytes:
    """Returns the bytes of a message without metadata."""
    texts = [channel, _JSON.encode(header), _JSON.encode(parent_header), "{}", _JSON.encode(content)]
    parts = [*map(str.encode, texts), *buffers]
    position = _WORD * (len(parts) + 2)
    offsets = [position]
    for part in parts:
        position += len(part)
        offsets.append(position)
    return b"".join([struct.pack(f"<{len(offsets) + 1}Q", len(offsets), *offsets), *parts])


def decode(data: bytes) -> Message:
    """Returns the message that `data` contains.

    Raises:
        ValueError: If `data` is not a valid message.
    """
    words = memoryview(data)
    count = int.from_bytes(words[:_WORD], "little")
    if not 6 <= count <= 1024 or len(data) < _WORD * (count + 1):
        raise ValueError("not a message of the Jupyter WebSocket protocol v1: bad offset count")
    offsets = [*struct.unpack_from(f"<{count}Q", data, _WORD)]
    if offsets != sorted(offsets) or offsets[-1] > len(data):
        raise ValueError("not a message of the Jupyter WebSocket protocol v1: bad offsets")
    if offsets[3] - offsets[0] > MAX_HEADER_BYTES:
        raise ValueError(f"message headers larger than {MAX_HEADER_BYTES >> 10} KiB")
    bounds = [*map(slice, offsets, offsets[1:])]
    channel, header, parent_header, _, content = map(data.__getitem__, bounds[:5])
    buffers = tuple(map(words.__getitem__, bounds[5:]))
    return Message(channel.decode(), _decode_object(header), _decode_object(parent_header), content, buffers)


def _decode_object(data: bytes, parse: Callable[[str], object] = json.loads) -> dict[str, Any]:
    try:
        value = parse(data.decode(errors="replace"))
    except RecursionError as exc:
        raise ValueError("a JSON object is nested too deeply") from exc
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {type(value).__name__}")
    return cast(dict[str, Any], value)
