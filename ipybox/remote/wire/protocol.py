"""The protocol between application and node over standard input and output of the engine's command.

1. The node prints one line, `PREAMBLE` and a JSON object with its versions. Whatever a login shell or a scheduler
   prints before that line is ignored. The application checks that both ends have the same ipybox.
2. HTTP/2 (`connection`), in which the application is the client: only the application makes requests, so that it
   bounds them. Their paths:

   - `/start`, once, first: starts the kernel gateway. Answered by `Ready`, and then by an `Exceeded` for each limit
     that kernels exceed.
   - `/gateway`: a connection to the HTTP server of the kernel gateway, as bytes.
   - `/tools`: a connection of code in a kernel to the application's tool server, as bytes. The application makes some
     of these requests in advance; the node answers one when code connects.
   - `/cell`: measures a cell until the application ends the request. Answered only if the cell exceeds its CPU time.
   - `/explain`: explains denials in a cell's output.
   - `/put`, `/read`: write and read files of a workspace that the two ends don't share.

   All but connections are messages (`exchange`).

End of file in either direction ends the node with all its kernels. So does the silence of the application: it sends a
ping every `PING_INTERVAL`.

Both ends validate what they read: the node runs code that the application does not trust, so the node is not trusted.
"""

import platform
import sys
import sysconfig
from importlib.metadata import version
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from ipybox.kernel_mgr.gateway import GatewaySetup
from ipybox.kernel_mgr.transfer.files import MAX_BYTES, PART

#: Starts the line with the versions of the node.
PREAMBLE: Final = b"ipybox-node "

#: The version of this protocol.
PROTOCOL: Final = 3

#: Bytes that a command may print before the preamble, and bytes of the preamble.
MAX_NOISE: Final = 64 << 10
MAX_PREAMBLE: Final = 1024

START: Final = "/start"
GATEWAY: Final = "/gateway"
TOOLS: Final = "/tools"
CELL: Final = "/cell"
EXPLAIN: Final = "/explain"
PUT: Final = "/put"
READ: Final = "/read"

#: Seconds between two pings of the application.
PING_INTERVAL: Final = 2.0

#: Seconds of silence after which the application counts the node as lost.
NODE_LOST_AFTER: Final = 10.0

#: Seconds of silence after which the node ends. It is long, because an application may block its event loop.
APPLICATION_LOST_AFTER: Final = 120.0

#: Requests that the application makes in advance for connections of code to the tool server.
SPARE_TOOL_STREAMS: Final = 8

#: Bytes of one file that is sent to a node, and paths that one `Put` deletes.
MAX_PUSHED: Final = 256 << 20
MAX_REMOVED: Final = 500

#: Bytes of the content that follows `Put` and `Content`: files as tar, or one file.
MAX_PUT: Final = MAX_PUSHED + 2 * PART
MAX_READ: Final = MAX_BYTES + PART

_Text = Annotated[str, StringConstraints(max_length=4096)]
_KernelId = Annotated[str, StringConstraints(max_length=100)]


class Message(BaseModel):
    """One message."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    #: Bytes of content that follow the message.
    size: Annotated[int, Field(ge=0)] = 0


class Versions(Message):
    """The versions of ipybox and of this protocol at one end."""

    ipybox: Annotated[str, StringConstraints(max_length=100)]
    protocol: int


class Failed(Message):
    """The node can't do what was requested: an answer to any request."""

    kind: Literal["sandbox", "gateway", "missing", "denied", "value", "other"]
    reason: Annotated[str, StringConstraints(max_length=32 << 10)]


class Start(Message):
    """Starts the kernel gateway."""

    workspace: str
    #: The name of a file in the ipybox directory of the workspace. A node that does not find it creates a workspace.
    proof: str
    setup: GatewaySetup


class Ready(Message):
    """The kernel gateway answers."""

    node: Annotated[str, StringConstraints(max_length=255)]
    #: The number of the scheduler's job; empty without a scheduler.
    job: Annotated[str, StringConstraints(pattern=r"^\d{0,18}$")] = ""
    #: Whether application and node share the workspace.
    shared: bool
    #: As of `platform_name`.
    platform: Annotated[str, StringConstraints(max_length=255)]
    notices: Annotated[list[_Text], Field(max_length=20)]


class Exceeded(Message):
    """Kernels are about to be killed, because they exceed a limit."""

    #: Their ids, with `UNATTRIBUTED` for processes that left their kernel unseen.
    kernels: Annotated[list[_KernelId], Field(max_length=1000)]
    message: _Text


class Cell(Message):
    """Measures the CPU time of a cell in a kernel."""

    kernel: str


class CPUExceeded(Message):
    """The cell exceeds its CPU time."""

    message: _Text


class Explain(Message):
    """Asks for explanations of denials in the end of a cell's output, except those in texts that tools returned."""

    text: str
    tool_texts: list[str]


class Explained(Message):
    """One line for each explanation."""

    lines: Annotated[list[_Text], Field(max_length=10)]


class Put(Message):
    """Deletes files of the node's workspace, and writes others, from a tar that follows."""

    removed: Annotated[list[_Text], Field(max_length=MAX_REMOVED)] = []


class Stored(Message):
    """The files were deleted and written."""


class Read(Message):
    """Asks for a file or directory of the node's workspace."""

    path: _Text


class Content(Message):
    """The file, or the directory as tar, follows."""

    tar: bool
    executable: bool = False
    #: What is missing, with the reason.
    omitted: Annotated[list[_Text], Field(max_length=100)] = []


def versions() -> Versions:
    """Returns the versions of this end."""
    return Versions(ipybox=version("ipybox"), protocol=PROTOCOL)


def platform_name() -> str:
    """Returns what must be equal where the same packages are used, such as `CPython 3.11 on linux-x86_64 (glibc)`."""
    library = platform.libc_ver()[0]
    python = f"{platform.python_implementation()} {sys.version_info.major}.{sys.version_info.minor}"
    return f"{python} on {sysconfig.get_platform()}{f' ({library})' if library else ''}"
