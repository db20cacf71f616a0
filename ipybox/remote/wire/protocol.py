"""The protocol between application and node, over the standard input and output of the engine's command.

1. The node prints one line: `PREAMBLE` and the version of its ipybox. Anything that a login shell or a scheduler prints
   before that line is ignored. The application checks that both ends run the same version.
2. Then both speak HTTP/2 (`connection`). The application is the client: only it makes requests, and so controls how
   many there are. The paths:

   - `/start`, the first request, sent once: starts the kernel gateway. Answered with `Ready`, and then with an
     `Exceeded` for each limit that kernels exceed.
   - `/gateway`: a byte stream to the kernel gateway's HTTP server.
   - `/tools`: a byte stream from a kernel to the application's tool server. The application makes some of these
     requests in advance; the node answers one when a kernel connects.
   - `/cell`: measures a cell until the application ends the request. Answered only if the cell exceeds its CPU time.
   - `/put`, `/read`: write and read files in a workspace that the two ends don't share.

   All except byte streams carry messages, each a line of JSON, followed by the content it announces (`Exchange`).

The node exits with all its kernels at end of file in either direction, or when the application, which sends a ping
every `PING_INTERVAL`, goes silent.

Both ends validate what they read. The node isn't trusted, because it runs untrusted code.
"""

import platform
import sys
import sysconfig
from collections.abc import Awaitable, Callable
from typing import Annotated, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from ipybox.kernel_mgr.gateway import GatewaySetup
from ipybox.kernel_mgr.transfer.files import MAX_BYTES, PART
from ipybox.remote.wire.stream import Stream, StreamClosedError
from ipybox.support.bounded_json import count_values
from ipybox.support.errors import GatewayError, IpyboxError, SandboxError
from ipybox.support.printable import printable

#: Marks the line with the node's version.
PREAMBLE: Final = b"ipybox-node "

#: Maximum bytes before the preamble, and of the preamble.
MAX_NOISE: Final = 64 << 10
MAX_PREAMBLE: Final = 1024

START: Final = "/start"
GATEWAY: Final = "/gateway"
TOOLS: Final = "/tools"
CELL: Final = "/cell"
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

#: Maximum bytes and values of a message. Validation reports each unknown field, at 300 times its size.
MAX_MESSAGE_BYTES: Final = 4 << 20
MAX_VALUES: Final = 10_000

#: The errors that `Failed` can report; the first class that matches is used.
ERRORS: Final[dict[str, type[Exception]]] = {
    "sandbox": SandboxError,
    "gateway": GatewayError,
    "missing": FileNotFoundError,
    "denied": PermissionError,
    "value": ValueError,
    "other": OSError,
}

#: Maximum characters of an error's reason.
MAX_REASON: Final = 32 << 10

_Text = Annotated[str, StringConstraints(max_length=4096)]
_KernelId = Annotated[str, StringConstraints(max_length=100)]


class Message(BaseModel):
    """A request or an answer; without fields of its own, an answer that only confirms."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    #: Bytes of content after the message.
    size: Annotated[int, Field(ge=0)] = 0


Expected = TypeVar("Expected", bound=Message)


class Failed(Message):
    """The node can't do what was requested. Answers any request."""

    kind: Literal["sandbox", "gateway", "missing", "denied", "value", "other"]
    reason: Annotated[str, StringConstraints(max_length=MAX_REASON)]


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


def platform_name() -> str:
    """Returns the platform that installed packages depend on, such as `CPython 3.11 on linux-x86_64 (glibc)`."""
    library = platform.libc_ver()[0]
    python = f"{platform.python_implementation()} {sys.version_info.major}.{sys.version_info.minor}"
    return f"{python} on {sysconfig.get_platform()}{f' ({library})' if library else ''}"


class InvalidMessageError(Exception):
    """The peer sent something that is not the expected message."""


class RefusedError(Exception):
    """The peer could not do what was requested."""

    def __init__(self, failed: Failed):
        super().__init__(failed.reason)
        self.kind = ERRORS[failed.kind]
        self.reason = failed.reason


class Exchange:
    """One request and its answers."""

    def __init__(self, stream: Stream):
        self.stream = stream
        self._buffer = bytearray()

    async def send(self, message: Message, content: bytes = b"") -> None:
        """Sends a message and its content; raises a StreamClosedError if the peer stops reading."""
        message = message.model_copy(update={"size": len(content)})
        await self.stream.send(message.model_dump_json().encode() + b"\n")
        await self.stream.send(content)

    async def receive(self, expected: type[Expected], limit: int = 0) -> tuple[Expected, bytes]:
        """Returns the peer's next message and its content.

        Args:
            limit: Maximum bytes of content.

        Raises:
            InvalidMessageError: If the peer sends anything else.
            RefusedError: If the peer sends `Failed`.
            StreamClosedError: If the stream ends before the message and its content are complete.
        """
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > MAX_MESSAGE_BYTES:
                raise InvalidMessageError(f"a message larger than {MAX_MESSAGE_BYTES} bytes")
            await self._read()
        message = _parsed(bytes(self._buffer[:end]), expected)
        if message.size > limit:
            raise InvalidMessageError(f"content of {message.size} bytes")
        del self._buffer[: end + 1]
        while len(self._buffer) < message.size:
            await self._read()
        content = bytes(self._buffer[: message.size])
        del self._buffer[: message.size]
        return message, content

    async def _read(self) -> None:
        if not (data := await self.stream.receive()):
            raise StreamClosedError
        self._buffer += data


async def answer(stream: Stream, handler: Callable[[Exchange], Awaitable[None]]) -> None:
    """Lets a handler answer a stream's request. Sends errors from ipybox and the operating system as the answer.

    Raises:
        InvalidMessageError: If the peer sends a message that the handler doesn't expect.
    """
    exchange = Exchange(stream)
    try:
        try:
            await handler(exchange)
        except (IpyboxError, OSError, ValueError) as exc:
            kind = next((kind for kind, error in ERRORS.items() if isinstance(exc, error)), "other")
            reason = printable(str(exc), lines=True)[:MAX_REASON]
            await exchange.send(Failed.model_validate({"kind": kind, "reason": reason}))
        stream.end()
    except StreamClosedError:
        pass
    finally:
        stream.reset()


def _parsed(line: bytes, expected: type[Expected]) -> Expected:
    if count_values(line, MAX_VALUES) > MAX_VALUES:
        raise InvalidMessageError(f"a message of more than {MAX_VALUES} values")
    try:
        return expected.model_validate_json(line)
    except ValidationError as exc:
        problem = exc.errors(include_url=False, include_input=False)[0]["msg"]
    try:
        failed = Failed.model_validate_json(line)
    except ValidationError:
        raise InvalidMessageError(f"an invalid message: {problem}") from None
    raise RefusedError(failed)
