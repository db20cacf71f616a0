"""Explains the errors of sockets that the sandbox denies."""

import re
from typing import Final

NO_SOCKET: Final = (
    "The sandbox refused a socket: it allows only TCP and UDP, no Unix or raw sockets. No setting opens them."
)
_SOCKET_CODE: Final = (
    "socket.socket(",
    "socket.socket.__init__(",
    "in socket.__init__",
    "AF_UNIX",
    "AF_PACKET",
    "SOCK_RAW",
    "open_unix_connection",
    "unix://",
)


#: Text in a line, in lower case, that may report a denied socket.
_NOT_PERMITTED: Final = "operation not permitted"


def is_denied_socket(line: str, context: str) -> bool:
    """Returns whether a line reports a denied socket, given the lines before it."""
    lowered = line.lower()
    if _NOT_PERMITTED not in lowered:
        return False
    if re.search(r"\bsocket(?:\(\d+, \d+, \d+\))?: operation not permitted", lowered):
        return True
    # Python's error does not mention the socket, but the code before it does.
    return line.endswith("PermissionError: [Errno 1] Operation not permitted") and any(
        code in context for code in _SOCKET_CODE
    )
