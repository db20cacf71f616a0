"""What application and node say about files on one stream: lines of JSON, some with content after them.

The application asks, and the node answers each message with one of its own, in order. `FileStream` is either end.
"""

from typing import Annotated, Any, Final, Generic, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from ipybox.codeact.library import GENTOOLS, MCPPARSE, MCPTOOLS
from ipybox.guest.tools.files import FILES_DIR
from ipybox.kernel_mgr.transfer.files import MAX_BYTES
from ipybox.kernel_mgr.transfer.synced_state import Bounds, FileState
from ipybox.node.messages import InvalidMessageError
from ipybox.node.stream import Stream, StreamClosedError

#: Directories of the workspace that are synchronized, in the order in which their files are sent.
SYNCED: Final = (MCPTOOLS, MCPPARSE, GENTOOLS, FILES_DIR.name)

#: The directories that only the node sends: the application has no use for older images there.
IMAGES: Final = "images"
FROM_NODE_DIRECTORIES: Final = (*SYNCED, IMAGES)

#: How much of the installed packages is synchronized.
PACKAGE_BOUNDS: Final = Bounds(total=2 << 30, one=256 << 20, files=50_000)

#: Bytes of one line.
MAX_LINE: Final = 4 << 20

#: Files of one message.
MAX_CHANGES: Final = 2000

#: Paths in one message that are not reported, with the reason.
MAX_OMITTED: Final = 20

#: Bytes of the content of one message of the node and of the application: a file, or several as tar.
MAX_CONTENT: Final = MAX_BYTES + (16 << 20)
MAX_PUT: Final = PACKAGE_BOUNDS.one + (1 << 20)


def _checked(path: str) -> str:
    if any(name in ("", ".", "..") for name in path.split("/")) or "\0" in path:
        raise ValueError("a path leads out of the workspace")
    return path


_Path = Annotated[str, StringConstraints(max_length=1000), AfterValidator(_checked)]
_Text = Annotated[str, StringConstraints(max_length=4096)]
_Files = Annotated[dict[_Path, FileState], Field(max_length=MAX_CHANGES)]
_Paths = Annotated[list[_Path], Field(max_length=MAX_CHANGES)]
_Reasons = Annotated[dict[_Path, _Text], Field(max_length=MAX_CHANGES)]
_Size = Annotated[int, Field(ge=0, le=MAX_CONTENT)]

#: The files that a message is about: those of the workspace, or installed packages.
Tree = Literal["workspace", "packages"]


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Put(_Message):
    """Writes files on the node, from a tar that follows; answered by `Stored`.

    Attributes:
        tree: Where they are.
        files: The files.
        size: The bytes of the tar.
    """

    type: Literal["put"] = "put"
    tree: Tree
    files: _Files
    size: Annotated[int, Field(ge=0, le=MAX_PUT)]


class Remove(_Message):
    """Deletes files on the node; answered by `Stored`."""

    type: Literal["remove"] = "remove"
    tree: Tree
    paths: _Paths


class FindChanges(_Message):
    """Asks which files have changed on the node; answered by `Changes`.

    Attributes:
        everything: Whether the node forgets what it has reported.
        again: Files that it has reported, and that did not arrive.
    """

    type: Literal["find_changes"] = "find_changes"
    everything: bool = False
    again: _Paths = []


class Get(_Message):
    """Asks for files of the node; answered by `Content`."""

    type: Literal["get"] = "get"
    paths: _Paths


class Read(_Message):
    """Asks for any file or directory of the workspace on the node; answered by `Content` or `Failed`."""

    type: Literal["read"] = "read"
    path: _Text


class Stored(_Message):
    """Files were written or deleted.

    Attributes:
        conflicts: Those that had changed on the node.
        failed: Those that were not written or deleted, with the reason.
    """

    type: Literal["stored"] = "stored"
    conflicts: _Paths
    failed: _Reasons


class Changes(_Message):
    """The files that have changed on the node since it reported them, or got them from the application.

    Attributes:
        files: New and changed files.
        removed: Deleted files.
        omitted: The first files that are not reported, with the reason.
        more: Whether there are more, which the next question finds.
    """

    type: Literal["changes"] = "changes"
    files: _Files
    removed: _Paths
    omitted: Annotated[dict[_Path, _Text], Field(max_length=MAX_OMITTED)]
    more: bool


class Content(_Message):
    """Files, which follow.

    Attributes:
        tar: Whether they follow as tar, or one file as it is.
        executable: Whether the owner of the one file can execute it.
        size: The bytes that follow.
        omitted: What is missing, with the reason.
    """

    type: Literal["content"] = "content"
    tar: bool
    executable: bool = False
    size: _Size
    omitted: Annotated[list[_Text], Field(max_length=100)] = []


class Failed(_Message):
    """What was asked for can't be read.

    Attributes:
        kind: The kind of the error.
        reason: The message of the error.
    """

    type: Literal["failed"] = "failed"
    kind: Literal["missing", "denied", "value", "other"]
    reason: _Text


ToNode = Put | Remove | FindChanges | Get | Read
FromNode = Stored | Changes | Content | Failed

TO_NODE: Final[TypeAdapter[ToNode]] = TypeAdapter(Annotated[ToNode, Field(discriminator="type")])
FROM_NODE: Final[TypeAdapter[FromNode]] = TypeAdapter(Annotated[FromNode, Field(discriminator="type")])

Received = TypeVar("Received", ToNode, FromNode)


class FileStream(Generic[Received]):
    """Sends and receives messages about files.

    Args:
        stream: The stream.
        received: Validates the messages of the peer.
    """

    def __init__(self, stream: Stream, received: TypeAdapter[Received]):
        self._stream = stream
        self._received: TypeAdapter[Any] = received
        self._buffer = bytearray()

    async def send(self, message: ToNode | FromNode, content: bytes = b"") -> None:
        """Sends a message and its content.

        Raises:
            StreamClosedError: If the peer reads no more.
        """
        await self._stream.send(message.model_dump_json().encode() + b"\n")
        await self._stream.send(content)

    async def receive(self) -> Received:
        """Returns the next message.

        Raises:
            InvalidMessageError: If the peer sends something else.
            StreamClosedError: If the peer sends no more.
        """
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > MAX_LINE:
                raise InvalidMessageError(f"a message about files has more than {MAX_LINE} bytes")
            await self._more()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            return self._received.validate_json(line)
        except ValidationError as exc:
            problem = exc.errors(include_url=False, include_input=False)[0]["msg"]
            raise InvalidMessageError(f"an invalid message about files: {problem}") from None

    async def content(self, size: int) -> bytes:
        """Returns the content that follows the last message.

        Raises:
            StreamClosedError: If the peer sends no more.
        """
        while len(self._buffer) < size:
            await self._more()
        content = bytes(self._buffer[:size])
        del self._buffer[:size]
        return content

    async def _more(self) -> None:
        if not (data := await self._stream.receive()):
            raise StreamClosedError
        self._buffer += data
