"""Lines of JSON-RPC on pipes. Runs with Python 3.8 or later, as relay.py does."""

from __future__ import annotations

import json
import os
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    Message = dict[str, Any]
else:
    Message = dict

#: Bytes of a message, as in the server.
MAX_LINE = 128 << 20


class Lines:
    """Cuts bytes into lines; one that is too long is dropped."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes | None]:
        """Returns the lines that are complete with these bytes; None in place of one that is too long."""
        lines: list[bytes | None] = []
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._add(end)
            lines.append(None if self._size > MAX_LINE else self.pending)
            self._parts, self._size = [], 0
        self._add(rest)
        return lines

    @property
    def pending(self) -> bytes:
        """The beginning of a line that is not complete."""
        return b"".join(self._parts)

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > MAX_LINE:
            self._parts = []
        else:
            self._parts.append(part)


def members(value: object) -> Message:
    """Returns a value of JSON if it is an object, and else one without members."""
    return cast("Message", value) if isinstance(value, dict) else {}


def encoded(message: Message) -> bytes:
    """Returns a message as a line."""
    return json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n"


def write(fd: int, data: bytes) -> None:
    """Writes all of it."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def copy(source: int, target: IO[bytes], begin: bytes) -> None:
    """Writes buffered data, then all further data, and closes the target with the source."""
    try:
        write(target.fileno(), begin)
        while data := os.read(source, 1 << 16):
            write(target.fileno(), data)
    except OSError:  # the server is gone
        pass
    target.close()
