"""Checks untrusted JSON before it is parsed, which can take seconds and twenty times the memory of its text.

Large JSON is parsed in a thread. Python's parser would hold the interpreter's lock until its end, so `loads` lets other
threads run between the values.
"""

import asyncio
import json
from json import decoder
from typing import Any

#: More values than legitimate JSON contains. Building this many takes about half a second and 300 MB.
MAX_VALUES = 3_000_000

#: Bytes of JSON above which parsing it may take long, and values above which it does, and `loads` lets other threads
#: run. Fewer values take at most 20 ms.
LARGE_BYTES = 1 << 18
MANY_VALUES = 100_000

#: Python's parsers of arrays and objects in Python code.
_STRUCTURES: Any = decoder

#: Members that are added to a dict at a time.
_MEMBERS = 10_000

#: Occurrences up to which a character counts as rare.
_RARE = 16

#: Bytes that are checked at once; a thread checks more: others run between pieces.
_PIECE = 1 << 20

#: Maximum bytes of a message from an MCP server: enough for a file of 64 MiB in base64.
MAX_MESSAGE_BYTES = 128 << 20

#: Maximum values of a message before a connection is established. Validation reports each wrong one, at 1 KB.
MAX_GREETING_VALUES = 50_000

#: Maximum bytes and values in all messages that an MCP server sends while it lists its tools. Checking and copying so
#: many values takes about a second.
MAX_LISTED_BYTES = 32 << 20
MAX_LISTED_VALUES = 500_000


class ExcessError(Exception):
    """A message from an MCP server exceeds a limit."""

    def __init__(self, limit: str):
        super().__init__(f"it sent a message larger than the limit of {limit}")


class MessageLimit:
    """Limits what an MCP server sends: each message, and all messages together while its tools are listed.

    Attributes:
        most: Maximum values of a message.
        listed: The bytes and values of the messages since the listing began; None if no tools are being listed.
    """

    most: int = MAX_GREETING_VALUES
    listed: tuple[int, int] | None = None

    async def check(self, data: bytes) -> None:
        """Raises an `ExcessError` if a message is too costly to parse."""
        if self.listed is None:
            if len(data) > self.most and await exceeds_limit(data, self.most):
                raise ExcessError(f"{self.most:,} values")
            return
        size = self.listed[0] + len(data)
        if size > MAX_LISTED_BYTES:
            raise ExcessError(f"{MAX_LISTED_BYTES:,} bytes for its tool list")
        values = self.listed[1] + count_values(data, 0)
        if values > MAX_LISTED_VALUES:
            raise ExcessError(f"{MAX_LISTED_VALUES:,} values for its tool list")
        self.listed = size, values


def exceeds_value_limit(data: bytes | bytearray, most: int = MAX_VALUES) -> bool:
    """Returns whether JSON contains more than about `most` values."""
    return len(data) > most and count_values(data, most) > most


def count_values(data: bytes | bytearray, enough: int, member: int = 0) -> int:
    """Returns about how many values JSON contains; up to `enough`, it counts separators in strings, which is faster.

    The name of a member counts as `member` values.
    """
    found = _separators(data) + member * data.count(b":")
    if found <= enough:
        return found
    # Only separators outside of strings count.
    values = quotes = 0
    escape = b""
    for start in range(0, len(data), _PIECE):
        piece = (escape + data[start : start + _PIECE]).replace(rb"\\", b"")
        escape = piece[-1:] if piece.endswith(b"\\") else b""
        parts = piece.removesuffix(b"\\").replace(rb"\"", b"").split(b'"')
        outside = b"".join(parts[quotes % 2 :: 2])
        values += _separators(outside) + member * outside.count(b":")
        quotes += len(parts) - 1
        if max(values, quotes // 2) > MAX_VALUES:
            break
    return max(values, quotes // 2 if quotes // 2 > MAX_VALUES else 0)


def takes_long(data: bytes | bytearray) -> bool:
    """Returns whether large JSON should be parsed in a thread. For few values in a long text, that only costs time."""
    return len(data) > _PIECE or count_values(data, MANY_VALUES) > MANY_VALUES


async def exceeds_limit(data: bytes | bytearray, most: int = MAX_VALUES) -> bool:
    """Returns what `exceeds_value_limit` does, from a thread if it takes long."""
    takes_long = len(data) > _PIECE
    return await asyncio.to_thread(exceeds_value_limit, data, most) if takes_long else exceeds_value_limit(data, most)


def loads(text: str, **hooks: Any) -> Any:
    """Returns the value of JSON text like `json.loads`. If it contains many values, other threads run meanwhile."""
    if sum(map(text.count, ",[{")) <= MANY_VALUES:
        return json.loads(text, parse_int=_int, **hooks)
    parser: Any = json.JSONDecoder(**hooks)
    scalar, keys = parser.scan_once, dict[str, str]()

    def scan(text: str, start: int) -> tuple[Any, int]:
        match text[start : start + 1]:
            case "[":
                return _STRUCTURES.JSONArray((text, start + 1), scan)
            case "{":
                return _STRUCTURES.JSONObject((text, start + 1), True, scan, None, _object, keys)
            case _:
                return scalar(text, start)

    parser.scan_once = scan
    return parser.decode(text)


def _int(digits: str) -> int:
    """Returns an integer. Other threads run between long ones, which take 50 µs each, because this is no C function."""
    return int(digits)


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for start in range(0, len(members), _MEMBERS):
        found.update(members[start : start + _MEMBERS])
    return found


def _separators(data: bytes | bytearray) -> int:
    """Returns how many separators there are: each value except the first of an array or object follows a comma.

    If a character is rare, as in a long text, `find` is much faster than `count`.
    """
    total = 0
    for character in (b",", b"[", b"{"):
        position = -1
        for _ in range(_RARE):
            position = data.find(character, position + 1)
            if position < 0:
                break
            total += 1
        else:
            total += data.count(character, position + 1)
    return total
