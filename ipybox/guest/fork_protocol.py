"""The messages between the gateway and the template process, over a socket pair (`SOCK_SEQPACKET`).

- gateway → template: `FORK`, with one end of a stream socket pair.
- template → gateway, for each: a `ForkAnswer` as JSON, when the forked process is a child of the gateway.
- gateway → forked process, over the stream: a `KernelRequest` as JSON, up to end of file. Without a request it ends.
"""

import socket
from typing import TypedDict

SOCKET_TYPE = socket.SOCK_SEQPACKET
FORK = b"f"
MAX_ANSWER_BYTES = 4096


class ForkAnswer(TypedDict, total=False):
    """The result of a fork.

    Attributes:
        pid: The id of the forked process.
        error: Why the fork failed.
    """

    pid: int
    error: str


class KernelRequest(TypedDict):
    """What to start.

    Attributes:
        command: The command line that would start the kernel as a program.
        environment: The whole environment.
        directory: The working directory.
    """

    command: list[str]
    environment: dict[str, str]
    directory: str
