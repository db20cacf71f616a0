"""JSON from others, who could make its values take twenty times the memory of its text, and seconds to build."""

#: More values than honest JSON has. Building as many takes about half a second and 300 MB.
MAX_VALUES = 3_000_000

#: Bytes of a message from an MCP server: a file of 64 MiB in base64, and more.
MAX_MESSAGE_BYTES = 128 << 20


class ExcessError(Exception):
    """A message from an MCP server has more of something than it may have.

    Args:
        limit: What it may have at most.
    """

    def __init__(self, limit: str):
        super().__init__(f"it sent a message of more than {limit}, which is the limit")


def check_message(data: bytes) -> None:
    """Checks a message from an MCP server before it is parsed.

    Raises:
        ExcessError: If it costs too much to parse.
    """
    if costs_too_much(data):
        raise ExcessError(f"{MAX_VALUES:,} values")


def costs_too_much(data: bytes) -> bool:
    """Tells whether JSON holds more than `MAX_VALUES` values, or about as many."""
    if len(data) <= MAX_VALUES or _separators(data) <= MAX_VALUES:
        return False
    # Text has commas and brackets, too: only those outside of strings count.
    unescaped = data.replace(rb"\\", b"").replace(rb"\"", b"")
    if unescaped.count(b'"') > 2 * MAX_VALUES:
        return True
    return _separators(b"".join(unescaped.split(b'"')[::2])) > MAX_VALUES


def _separators(data: bytes) -> int:
    # Each value but the first of an array or object follows a comma.
    return sum(map(data.count, (b",", b"[", b"{")))
