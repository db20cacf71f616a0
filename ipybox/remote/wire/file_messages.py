"""Files between an application and a node that does not share its workspace. Each exchange has a stream of its own.

The application sends a request, and the node an answer. Each is a line of JSON, followed by the content that it
announces.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from ipybox.kernel_mgr.transfer.files import MAX_BYTES, PART
from ipybox.remote.wire.messages import InvalidMessageError
from ipybox.remote.wire.stream import Stream, StreamClosedError

#: Bytes of one line, and paths in it.
MAX_LINE: Final = 4 << 20
MAX_REMOVED: Final = 500

#: Bytes of one file that is sent to a node.
MAX_PUSHED: Final = 256 << 20

#: Bytes of the content of a request and of an answer: files as tar, or one file.
MAX_REQUEST: Final = MAX_PUSHED + 2 * PART
MAX_ANSWER: Final = MAX_BYTES + PART

_Text = Annotated[str, StringConstraints(max_length=4096)]


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    #: The bytes that follow.
    size: Annotated[int, Field(ge=0)] = 0


class Put(_Message):
    """Deletes files of the node's workspace, and writes others, from a tar that follows; answered by `Stored`."""

    type: Literal["put"] = "put"
    removed: Annotated[list[_Text], Field(max_length=MAX_REMOVED)] = []


class Read(_Message):
    """Asks for a file or directory of the node's workspace; answered by `Content`."""

    type: Literal["read"] = "read"
    path: _Text


class Stored(_Message):
    """The files were deleted and written."""

    type: Literal["stored"] = "stored"


class Content(_Message):
    """The file or directory follows.

    Attributes:
        tar: Whether it is a directory, as tar.
        executable: Whether the owner of the file can execute it.
        omitted: What is missing, with the reason.
    """

    type: Literal["content"] = "content"
    tar: bool
    executable: bool = False
    omitted: Annotated[list[_Text], Field(max_length=100)] = []


class Failed(_Message):
    """The node could not do it.

    Attributes:
        kind: The kind of the error.
        reason: The message of the error.
    """

    type: Literal["failed"] = "failed"
    kind: Literal["missing", "denied", "value", "other"]
    reason: _Text


Request = Put | Read
Answer = Stored | Content | Failed

REQUEST: Final[TypeAdapter[Request]] = TypeAdapter(Annotated[Request, Field(discriminator="type")])
ANSWER: Final[TypeAdapter[Answer]] = TypeAdapter(Annotated[Answer, Field(discriminator="type")])


async def send(stream: Stream, message: Request | Answer, content: bytes = b"") -> None:
    """Sends a message and its content, the last of this side.

    Raises:
        StreamClosedError: If the peer reads no more.
    """
    message = message.model_copy(update={"size": len(content)})
    await stream.send(message.model_dump_json().encode() + b"\n")
    await stream.send(content)
    stream.end()


async def receive(stream: Stream, messages: TypeAdapter[Any], limit: int) -> tuple[Any, bytes]:
    """Returns the message of the peer and its content.

    Args:
        stream: The stream.
        messages: Validates the message.
        limit: Bytes of the content.

    Raises:
        InvalidMessageError: If the peer sends something else.
        StreamClosedError: If the peer sends less than it announced.
    """
    buffer, searched = bytearray(), 0
    while (end := buffer.find(b"\n", searched)) < 0:
        searched = len(buffer)
        if searched > MAX_LINE:
            raise InvalidMessageError(f"a message about files larger than {MAX_LINE} bytes")
        buffer += await _more(stream)
    try:
        message = messages.validate_json(bytes(buffer[:end]))
    except ValidationError as exc:
        problem = exc.errors(include_url=False, include_input=False)[0]["msg"]
        raise InvalidMessageError(f"an invalid message about files: {problem}") from None
    if message.size > limit:
        raise InvalidMessageError(f"files of {message.size} bytes")
    del buffer[: end + 1]
    while len(buffer) < message.size:
        buffer += await _more(stream)
    return message, bytes(buffer[: message.size])


async def _more(stream: Stream) -> bytes:
    if not (data := await stream.receive()):
        raise StreamClosedError
    return data
