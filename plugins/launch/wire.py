"""JSON-RPC lines on pipes. Runs with Python 3.8 or later, like relay.py."""

from __future__ import annotations

import json
import os
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    Message = dict[str, Any]
else:
    Message = dict


class Lines:
    """Splits bytes into lines."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        """Returns the lines that these bytes complete."""
        lines: list[bytes] = []
        *ends, rest = data.split(b"\n")
        for end in ends:
            lines.append(self.pending + end)
            self._parts = []
        self._parts.append(rest)
        return lines

    @property
    def pending(self) -> bytes:
        """The beginning of an incomplete line."""
        return b"".join(self._parts)


def members(value: object) -> Message:
    """Returns a JSON value if it is an object, otherwise an empty object."""
    return cast("Message", value) if isinstance(value, dict) else {}


def encoded(message: Message) -> bytes:
    """Returns a message as a line."""
    return json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n"


def write(fd: int, data: bytes) -> None:
    """Writes all data."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def copy(source: int, target: IO[bytes], begin: bytes) -> None:
    """Writes buffered data, then copies the source to the target, and closes the target at the end."""
    try:
        write(target.fileno(), begin)
        while data := os.read(source, 1 << 16):
            write(target.fileno(), data)
    except OSError:  # the server is gone
        pass
    target.close()
