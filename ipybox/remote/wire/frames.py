"""Splits what is read from a pipe into complete HTTP/2 frames, for `h2`, which would buffer one of up to 16 MiB."""

from h2.exceptions import FrameTooLargeError

#: Bytes of what a client sends before its first frame (RFC 9113, 3.4), and of the head of a frame.
PREFACE = 24
HEAD = 9


class FrameSplitter:
    """Collects data until frames are complete.

    Args:
        max_frame: Bytes that a frame may have.
        preface: Bytes that precede the first frame.
    """

    def __init__(self, max_frame: int, preface: int):
        self._max_frame = max_frame
        self._skip = preface
        self._data = bytearray()

    def complete(self, data: bytes) -> bytes:
        """Returns all complete frames that have arrived.

        Raises:
            FrameTooLargeError: If the next frame is too large.
        """
        self._data += data
        end, total = self._skip, len(self._data)
        while total - end >= HEAD:
            length = int.from_bytes(self._data[end : end + 3])
            if length > self._max_frame:
                raise FrameTooLargeError(f"a frame of {length} bytes")
            if total - end < HEAD + length:
                break
            end += HEAD + length
        if end == self._skip:
            return b""
        self._skip = 0
        frames = bytes(self._data[:end])
        del self._data[:end]
        return frames
