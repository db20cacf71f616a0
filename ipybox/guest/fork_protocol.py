"""The messages between the gateway and the template process, over a socket pair (`SOCK_SEQPACKET`).

- template → gateway: `READY`, when it has imported its modules.
- gateway → template: a `ForkRequest` as JSON, with one end of a stream socket pair if it is one for a kernel.
- template → gateway, for each kernel: a `ForkAnswer` as JSON, when the forked process is a child of the gateway.
- gateway → forked process, over the stream: the descriptors of `LastOutput`, then a `KernelRequest` as a line of JSON.
  Without a request it ends.
- gateway → template, first of all, over a stream of its own: a `TemplateRequest` as JSON.

- gateway → spare kernel, over the same stream, when a session uses it: a `Handover` as a line of JSON. Without a
  handover it ends.
"""

import socket
from typing import Any, NotRequired, TypedDict

SOCKET_TYPE = socket.SOCK_SEQPACKET
READY = b"r"
MAX_BYTES = 1 << 16


class ForkRequest(TypedDict):
    """What to fork, or what to import anew.

    Attributes:
        command: The command line that would start the kernel as a program. The operating system shows it of the forked
            process when the gateway adopts that.
        modules: Instead of a fork, the modules to preload in a new template, which then answers by `READY`: their
            packages have changed.
    """

    command: list[str]
    modules: NotRequired[list[str]]


class ForkAnswer(TypedDict, total=False):
    """The result of a fork.

    Attributes:
        pid: The id of the forked process.
        error: Why the fork failed.
        not_preloaded: The modules that were to be preloaded and are not, with the reason (`ipybox.guest.protocol`).
    """

    pid: int
    error: str
    not_preloaded: dict[str, str]


class TemplateRequest(TypedDict):
    """What a process that was forked off the gateway becomes.

    Attributes:
        command: The command line that would start the template as a program.
        environment: The whole environment.
    """

    command: list[str]
    environment: dict[str, str]


class KernelRequest(TypedDict):
    """What to start.

    Attributes:
        connection: The kernel's ports, and the keys of its messages.
        environment: The whole environment.
        directory: The working directory.
        spare: Whether the kernel waits for a `Handover`.
    """

    connection: dict[str, Any]
    environment: dict[str, str]
    directory: str
    spare: bool


class Handover(TypedDict):
    """What a spare kernel gets when a session uses it. No process had it before.

    Attributes:
        environment: The variables that differ from session to session, such as the token for tool calls.
    """

    environment: dict[str, str]
