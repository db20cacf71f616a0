"""The protocol between application and node, over the standard input and output of the engine's command.

1. The node prints one line: `PREAMBLE` and a JSON object with its versions. Anything that a login shell or a scheduler
   prints before that line is ignored. The application checks that both ends run the same ipybox.
2. Then both speak HTTP/2 (`connection`). The application is the client: only it makes requests, and so controls how
   many there are. The paths:

   - `/start`, the first request, sent once: starts the kernel gateway. Answered with `Ready`, and then with an
     `Exceeded` for each limit that kernels exceed.
   - `/gateway`: a byte stream to the kernel gateway's HTTP server.
   - `/tools`: a byte stream from a kernel to the application's tool server. The application makes some of these
     requests in advance; the node answers one when a kernel connects.
   - `/cell`: measures a cell until the application ends the request. Answered only if the cell exceeds its CPU time.
   - `/explain`: explains denials in a cell's output.
   - `/put`, `/read`: write and read files in a workspace that the two ends don't share.

   All except byte streams carry messages (`exchange`).

The node exits with all its kernels at end of file in either direction, or when the application, which sends a ping
every `PING_INTERVAL`, goes silent.

Both ends validate what they read. The node isn't trusted, because it runs untrusted code.
"""

import platform
import sys
import sysconfig
from importlib.metadata import version
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from ipybox.kernel_mgr.gateway import GatewaySetup
from ipybox.kernel_mgr.transfer.files import MAX_BYTES, PART

#: Marks the line with the node's versions.
PREAMBLE: Final = b"ipybox-node "

#: Version of this protocol.
PROTOCOL: Final = 3

#: Maximum bytes before the preamble, and of the preamble.
MAX_NOISE: Final = 64 << 10
MAX_PREAMBLE: Final = 1024

START: Final = "/start"
GATEWAY: Final = "/gateway"
TOOLS: Final = "/tools"
CELL: Final = "/cell"
EXPLAIN: Final = "/explain"
PUT: Final = "/put"
READ: Final = "/read"

#: Seconds between pings from the application.
PING_INTERVAL: Final = 2.0

#: Seconds of silence after which the application considers the node lost.
NODE_LOST_AFTER: Final = 10.0

#: Seconds of silence after which the node exits. Long, because an application may block its event loop.
APPLICATION_LOST_AFTER: Final = 120.0

#: Number of `/tools` requests made in advance.
SPARE_TOOL_STREAMS: Final = 8

#: Maximum bytes of a file sent to a node, and paths deleted by one `Put`.
MAX_PUSHED: Final = 256 << 20
MAX_REMOVED: Final = 500

#: Maximum bytes of the content after `Put` and `Content`: files as tar, or one file.
MAX_PUT: Final = MAX_PUSHED + 2 * PART
MAX_READ: Final = MAX_BYTES + PART

_Text = Annotated[str, StringConstraints(max_length=4096)]
_KernelId = Annotated[str, StringConstraints(max_length=100)]


class Message(BaseModel):
    """A request or an answer; without fields of its own, an answer that only confirms."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    #: Bytes of content after the message.
    size: Annotated[int, Field(ge=0)] = 0


class Versions(Message):
    """The versions of ipybox and this protocol at one end."""

    ipybox: Annotated[str, StringConstraints(max_length=100)]
    protocol: int


class Failed(Message):
    """The node can't do what was requested. Answers any request."""

    kind: Literal["sandbox", "gateway", "missing", "denied", "value", "other"]
    reason: Annotated[str, StringConstraints(max_length=32 << 10)]


class Start(Message):
    """Starts the kernel gateway."""

    workspace: str
    #: A file name in the workspace's ipybox directory. A node that can't find the file creates its own workspace.
    proof: str
    setup: GatewaySetup


class Ready(Message):
    """The kernel gateway is ready."""

    node: Annotated[str, StringConstraints(max_length=255)]
    #: The scheduler's job number; empty without a scheduler.
    job: Annotated[str, StringConstraints(pattern=r"^\d{0,18}$")] = ""
    #: Whether the node shares the application's workspace.
    shared: bool
    #: See `platform_name`.
    platform: Annotated[str, StringConstraints(max_length=255)]
    notices: Annotated[list[_Text], Field(max_length=20)]


class Exceeded(Message):
    """Kernels exceed a limit and are about to be killed; without kernels, a cell exceeds its CPU time."""

    #: Kernel ids; `UNATTRIBUTED` for processes whose kernel is unknown.
    kernels: Annotated[list[_KernelId], Field(max_length=1000)]
    message: _Text


class Cell(Message):
    """Measures the CPU time of a cell in a kernel."""

    kernel: str


class Explain(Message):
    """Asks to explain the denials at the end of a cell's output, except those in tool results."""

    text: str
    tool_texts: list[str]


class Explained(Message):
    """The explanations, one line each."""

    lines: Annotated[list[_Text], Field(max_length=10)]


class Put(Message):
    """Deletes files in the node's workspace, and writes others from the tar that follows."""

    removed: Annotated[list[_Text], Field(max_length=MAX_REMOVED)] = []


class Read(Message):
    """Asks for a file or directory in the node's workspace."""

    path: _Text


class Content(Message):
    """Announces the file, or the directory as tar."""

    tar: bool
    executable: bool = False
    #: Omitted files, with the reasons.
    omitted: Annotated[list[_Text], Field(max_length=100)] = []


def versions() -> Versions:
    """Returns the versions of this end."""
    return Versions(ipybox=version("ipybox"), protocol=PROTOCOL)


def platform_name() -> str:
    """Returns the platform that installed packages depend on, such as `CPython 3.11 on linux-x86_64 (glibc)`."""
    library = platform.libc_ver()[0]
    python = f"{platform.python_implementation()} {sys.version_info.major}.{sys.version_info.minor}"
    return f"{python} on {sysconfig.get_platform()}{f' ({library})' if library else ''}"
