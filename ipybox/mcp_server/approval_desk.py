"""The calls that wait for a person's decision, for `ipybox approvals` to show and decide from any terminal.

The command connects to the server's private socket (`attach_socket`) with one line of JSON:

{"approvals": "list", "id": "START"}                   one line per waiting call whose id starts so, then the end
{"approvals": "watch"}                                 one per call, then a line for each change, until the command ends
                                                       or sends nothing for `SILENCE`: a stopped one can't ask anybody
{"decide": ID, "accept": true, "reason": "because"}    a line with what happened
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from ipybox.support.tasks import until_one_ends
from ipybox.tool_exec.approval.request import ApprovalRequest

Result = TypeVar("Result")

#: Seconds after which a terminal that sends nothing no longer counts as watching.
SILENCE = 10.0


class ApprovalDesk:
    """The waiting calls of one MCP server's process. The first decision counts, whether a form's or a terminal's."""

    def __init__(self, workspace: Path):
        self._workspace = workspace
        self._waiting: dict[str, tuple[ApprovalRequest, Callable[[], str]]] = {}
        #: For each watching terminal, the ids of the calls that started or stopped waiting.
        self._watchers: set[asyncio.Queue[str]] = set()
        #: Set while no terminal watches.
        self._unwatched = asyncio.Event()
        self._unwatched.set()
        #: The deadlines of forms, with their seconds.
        self._deadlines: dict[asyncio.Timeout, float | None] = {}

    @property
    def watched(self) -> bool:
        """Whether a terminal shows calls as they arrive, so that they can wait without a form."""
        return bool(self._watchers)

    @contextmanager
    def waiting(self, request: ApprovalRequest, text: Callable[[], str]) -> Generator[None]:
        """Shows a call, as the text that `text` returns, to terminals during the context."""
        self._waiting[request.id] = request, text
        self._changed(request.id)
        try:
            yield
        finally:
            del self._waiting[request.id]
            self._changed(request.id)

    @asynccontextmanager
    async def timeout(self, seconds: float | None) -> AsyncGenerator[None]:
        """Like `asyncio.timeout`; while terminals watch, the seconds begin only when the last one stops watching."""
        async with asyncio.timeout(None) as deadline:
            self._deadlines[deadline] = seconds
            self._reschedule([deadline])
            try:
                yield
            finally:
                del self._deadlines[deadline]

    async def decided(self, request: ApprovalRequest) -> bool:
        """Waits until a call is decided, and returns True; returns False once no terminal watches."""
        await until_one_ends(request.decided(), self._unwatched.wait())
        return request.state != "pending"

    async def unless_decided(self, request: ApprovalRequest, form: Coroutine[Any, Any, Result]) -> Result | None:
        """Runs `form` and returns its result; cancels it and returns None if the call is decided elsewhere first."""
        asking, decided = asyncio.ensure_future(form), asyncio.ensure_future(request.decided())
        try:
            await asyncio.wait([asking, decided], return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else None
        finally:
            decided.cancel()
            if asking.cancel():
                await asyncio.wait([asking])

    async def decide(self, call_id: str, *, accept: bool, reason: str | None) -> str:
        """Decides on a waiting call; returns what happened. Raises a ValueError if the call does not wait."""
        if call_id not in self._waiting:
            raise ValueError(f"no call with the id {call_id} is waiting: it may have been decided, or has ended")
        request, by = self._waiting[call_id][0], "user"
        counts = await (request.accept(by=by, because=reason) if accept else request.reject(reason, by=by))
        return ("accepted" if accept else "declined") if counts else f"no effect: the call was already {request.state}"

    async def answer(self, request: object, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers a command's request; raises a ValueError if it is malformed or can't be answered."""
        match request:
            case {"approvals": "list", "id": str(start)}:
                for each in [each for call_id, each in self._waiting.items() if call_id.startswith(start)]:
                    await self._show(*each, writer)
            case {"approvals": "watch"}:
                await self._watch(reader, writer)
            case {"decide": str(call_id), "accept": bool(accept), "reason": str() | None as reason}:
                await send(writer, done=await self.decide(call_id, accept=accept, reason=reason))
            case _:
                raise ValueError("not a request about approvals")

    async def _watch(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        changes = asyncio.Queue[str]()
        for call_id in self._waiting:
            changes.put_nowait(call_id)
        self._watchers.add(changes)
        self._unwatched.clear()
        self._reschedule(self._deadlines)
        try:
            # Both at once, because a terminal that does not read blocks the first one.
            await until_one_ends(self._show_changes(changes, writer), silence(reader, SILENCE))
        finally:
            self._watchers.remove(changes)
            if not self._watchers:
                self._unwatched.set()
                self._reschedule(self._deadlines)

    async def _show_changes(self, changes: asyncio.Queue[str], writer: asyncio.StreamWriter) -> None:
        shown = dict[str, ApprovalRequest]()
        await send(writer, watching=str(self._workspace))
        while True:
            call_id = await changes.get()
            if call_id in shown:
                await send(writer, ended=call_id, state=shown.pop(call_id).state)
            elif (waiting := self._waiting.get(call_id)) is not None:
                shown[call_id] = waiting[0]
                await self._show(*waiting, writer)

    async def _show(self, request: ApprovalRequest, text: Callable[[], str], writer: asyncio.StreamWriter) -> None:
        await send(
            writer,
            id=request.id,
            workspace=str(self._workspace),
            call=await asyncio.to_thread(text),
            created_at=request.created_at.isoformat(),
            expires_at=request.expires_at and request.expires_at.isoformat(),
        )

    def _reschedule(self, deadlines: Iterable[asyncio.Timeout]) -> None:
        now = asyncio.get_running_loop().time()
        for deadline in deadlines:
            seconds = self._deadlines[deadline]
            if not deadline.expired():
                deadline.reschedule(None if self.watched or seconds is None else now + seconds)

    def _changed(self, call_id: str) -> None:
        for changes in self._watchers:
            changes.put_nowait(call_id)


async def silence(reader: asyncio.StreamReader, seconds: float | None) -> None:
    """Returns when a command has gone, or has sent nothing for some seconds. What it sends is dropped."""
    with suppress(OSError, TimeoutError):
        while await asyncio.wait_for(reader.read(1024), seconds):
            pass


async def send(writer: asyncio.StreamWriter, **fields: str | None) -> None:
    """Sends one line of JSON."""
    writer.write(json.dumps(fields).encode() + b"\n")
    await writer.drain()
