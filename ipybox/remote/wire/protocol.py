"""What application and node say to each other over standard input and output of the engine's command.

1. The node prints one line, `PREAMBLE` and a JSON object with its versions. Whatever a login shell or a scheduler
   prints before that line is ignored. The application checks that both ends have the same ipybox.
2. HTTP/2 (`connection`), in which the application is the client: only the application opens streams, so that it
   bounds them. A stream is one of:

   - `CONTROL`, once: messages in both directions, one JSON object on each line. The application sends `Start` first.
   - `GATEWAY`: a connection to the HTTP server of the kernel gateway, as bytes.
   - `TOOLS`: a connection of code in a kernel to the application's tool server. The application opens some in advance;
     the node answers one when code connects.
   - `FILES`: messages about files of a workspace that the two ends don't share (`ipybox.remote.wire.file_messages`).

End of file in either direction ends the node with all its kernels. So does the silence of the application: it sends a
ping every `PING_INTERVAL`.

Both ends validate what they read: the node runs code that the application does not trust, so the node is not trusted.
"""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter

from ipybox.kernel_mgr.limits.resource_limits import ResourceLimits
from ipybox.sandbox.settings import SandboxSettings

#: Starts the line with the versions of the node.
PREAMBLE: Final = b"ipybox-node "

#: The version of this protocol.
PROTOCOL: Final = 2

#: Bytes that a command may print before the preamble, and bytes of the preamble.
MAX_NOISE: Final = 64 << 10
MAX_PREAMBLE: Final = 1024

CONTROL: Final = "/control"
GATEWAY: Final = "/gateway"
TOOLS: Final = "/tools"
FILES: Final = "/files"

#: Seconds between two pings of the application.
PING_INTERVAL: Final = 2.0

#: Seconds of silence after which the application counts the node as lost.
NODE_LOST_AFTER: Final = 10.0

#: Seconds of silence after which the node ends. It is long, because an application may block its event loop.
APPLICATION_LOST_AFTER: Final = 120.0

#: Bytes of one control message.
MAX_MESSAGE_BYTES: Final = 4 << 20

#: Streams that the application opens in advance for connections of code to the tool server.
SPARE_TOOL_STREAMS: Final = 8

_Text = Annotated[str, StringConstraints(max_length=4096)]
_KernelId = Annotated[str, StringConstraints(max_length=100)]


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Versions(_Message):
    """The versions of one end.

    Attributes:
        ipybox: The version of ipybox.
        protocol: The version of this protocol.
    """

    ipybox: Annotated[str, StringConstraints(max_length=100)]
    protocol: int


class Start(_Message):
    """Starts the kernel gateway.

    Attributes:
        workspace: The working directory of the kernels, if application and node share it.
        proof: The name of a file in the ipybox directory of the workspace. If the node finds it, they do. Otherwise,
            the node creates a workspace.
        env: Environment variables for the kernels.
        sandbox: The sandbox settings; None without a sandbox.
        limits: The resource limits.
        default_memory: Whether the memory limit is half of the node's memory.
        log_level: Logging level of the gateway.
        preload: Modules that kernels have imported from their start.
        spare_kernel: Whether the gateway keeps a kernel ready for the next session or reset.
    """

    type: Literal["start"] = "start"
    workspace: str
    proof: str
    env: dict[str, str]
    sandbox: SandboxSettings | None
    limits: ResourceLimits
    default_memory: bool
    log_level: str
    preload: list[str]
    spare_kernel: bool


class CellStarted(_Message):
    """A cell starts in a kernel."""

    type: Literal["cell_started"] = "cell_started"
    kernel: str


class CellEnded(_Message):
    """The cell in a kernel has ended."""

    type: Literal["cell_ended"] = "cell_ended"
    kernel: str


class Explain(_Message):
    """Asks for explanations of denials in a cell's output, answered by `Explained` with the same number.

    Attributes:
        number: The number of the question.
        text: The end of the output.
        tool_texts: The ends of texts that tools returned.
    """

    type: Literal["explain"] = "explain"
    number: int
    text: str
    tool_texts: list[str]


class Ready(_Message):
    """The kernel gateway answers.

    Attributes:
        node: The name of the node.
        job: The number of the scheduler's job that runs the node; empty without a scheduler.
        shared: Whether application and node share the workspace.
        platform: For which Python and system packages must be (`ipybox.remote.wire.platform`).
        notices: Notices for the session.
    """

    type: Literal["ready"] = "ready"
    node: Annotated[str, StringConstraints(max_length=255)]
    job: Annotated[str, StringConstraints(pattern=r"^\d{0,18}$")] = ""
    shared: bool
    platform: Annotated[str, StringConstraints(max_length=255)]
    notices: Annotated[list[_Text], Field(max_length=20)]


class Failed(_Message):
    """The kernel gateway did not start.

    Attributes:
        kind: Whether the sandbox or something else is the reason.
        reason: The reason.
    """

    type: Literal["failed"] = "failed"
    kind: Literal["sandbox", "gateway"]
    reason: Annotated[str, StringConstraints(max_length=32 << 10)]


class Exceeded(_Message):
    """Kernels are about to be killed, because they exceed a limit.

    Attributes:
        kernels: Their ids. It contains `UNATTRIBUTED` for processes that left their kernel unseen.
        message: What was exceeded.
    """

    type: Literal["exceeded"] = "exceeded"
    kernels: Annotated[list[_KernelId], Field(max_length=1000)]
    message: _Text


class CPUExceeded(_Message):
    """The current cell of a kernel exceeds its CPU time."""

    type: Literal["cpu_exceeded"] = "cpu_exceeded"
    kernel: _KernelId
    message: _Text


class Explained(_Message):
    """The answer to `Explain`: one line for each explanation."""

    type: Literal["explained"] = "explained"
    number: int
    lines: Annotated[list[_Text], Field(max_length=10)]


ToNode = Start | CellStarted | CellEnded | Explain
FromNode = Ready | Failed | Exceeded | CPUExceeded | Explained

TO_NODE: Final[TypeAdapter[ToNode]] = TypeAdapter(Annotated[ToNode, Field(discriminator="type")])
FROM_NODE: Final[TypeAdapter[FromNode]] = TypeAdapter(Annotated[FromNode, Field(discriminator="type")])


def encoded(message: ToNode | FromNode) -> bytes:
    """Returns a message as a line."""
    return message.model_dump_json().encode() + b"\n"
