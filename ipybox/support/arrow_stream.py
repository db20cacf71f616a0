"""Checks an untrusted Arrow IPC stream before pyarrow reads it.

pyarrow checks that a stream is well-formed. What is well-formed can still decompress to a thousand times its size, or
name an extension type, which a library of the reader has registered and which runs code of that library. So this module
reads the metadata of each message, and rejects both.
https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format
"""

from collections.abc import Iterator

_CONTINUATION = 0xFFFFFFFF
_PREFIX = 8

#: `MetadataVersion.V5`. Only an older version can name a compression elsewhere.
_V5 = 4

#: The start of the keys in a field's metadata that make its type an extension type.
_EXTENSION = b"ARROW:extension"

# `MessageHeader`, and the fields of its tables, by their place in Arrow's Message.fbs.
_SCHEMA, _DICTIONARY_BATCH, _RECORD_BATCH = 1, 2, 3
_MESSAGE_VERSION, _MESSAGE_TYPE, _MESSAGE_HEADER, _MESSAGE_BODY_LENGTH = 0, 1, 2, 3
_DICTIONARY_DATA = 1
_BATCH_COMPRESSION = 3


def check_stream(data: bytes) -> None:
    """Checks that a stream is neither compressed nor has extension types.

    Raises:
        ValueError: If it is or has, or is not such a stream; the message continues "it …".
    """
    for number, metadata in enumerate(_messages(data)):
        message = _Table(metadata, _uint(metadata, 0, 4))
        if message.number(_MESSAGE_VERSION, 2) != _V5:
            raise ValueError("is not in version 5 of Arrow's format")
        kind = message.number(_MESSAGE_TYPE, 1)
        if kind == _SCHEMA and number == 0:
            if _EXTENSION in metadata:
                raise ValueError("has a column of an extension type: convert it, for example to strings")
        elif number == 0 or kind not in (_DICTIONARY_BATCH, _RECORD_BATCH):
            raise ValueError("has a message in the wrong place")
        else:
            batch = message.table(_MESSAGE_HEADER)
            if kind == _DICTIONARY_BATCH:
                batch = batch.table(_DICTIONARY_DATA)
            if batch.place(_BATCH_COMPRESSION):
                raise ValueError("is compressed")


def _messages(data: bytes) -> Iterator[bytes]:
    """Yields the metadata of each message."""
    position = 0
    while position < len(data):
        if _uint(data, position, 4) != _CONTINUATION:
            raise ValueError("is not a stream of Arrow messages")
        length = _uint(data, position + 4, 4)
        if length == 0:  # the end of the stream
            return
        metadata = data[position + _PREFIX : position + _PREFIX + length]
        if len(metadata) < length:
            raise ValueError("is incomplete")
        yield metadata
        body = _Table(metadata, _uint(metadata, 0, 4)).number(_MESSAGE_BODY_LENGTH, 8)
        position += _PREFIX + length + body


class _Table:
    """A table of a FlatBuffer. https://flatbuffers.dev/internals/#tables"""

    def __init__(self, data: bytes, position: int):
        self._data = data
        self._position = position
        self._fields = position - int.from_bytes(_slice(data, position, 4), "little", signed=True)
        self._fields_size = _uint(data, self._fields, 2)

    def place(self, field: int) -> int:
        """Returns where a field is, or 0 if it has its default."""
        entry = 4 + 2 * field
        offset = _uint(self._data, self._fields + entry, 2) if entry + 2 <= self._fields_size else 0
        return self._position + offset if offset else 0

    def number(self, field: int, size: int) -> int:
        """Returns a field that is an unsigned number of `size` bytes."""
        place = self.place(field)
        return _uint(self._data, place, size) if place else 0

    def table(self, field: int) -> "_Table":
        """Returns a field that is a table."""
        place = self.place(field)
        if not place:
            raise ValueError("is not a stream of Arrow messages")
        return _Table(self._data, place + _uint(self._data, place, 4))


def _uint(data: bytes, position: int, size: int) -> int:
    return int.from_bytes(_slice(data, position, size), "little")


def _slice(data: bytes, position: int, size: int) -> bytes:
    if not 0 <= position <= len(data) - size:
        raise ValueError("is not a stream of Arrow messages")
    return data[position : position + size]
