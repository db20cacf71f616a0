"""The calls that wait for a person's decision, as commands are told of them."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from ipybox.mcp_server.approval_desk import ApprovalDesk
from ipybox.tool_exec.approval.request import ApprovalRequest
from tests.servers import WAIT

#: More than which all are looked at for each.
CALLS = 200


class Counting(dict[str, Any]):
    """Counts its entries that are looked at."""

    count = 0

    def __contains__(self, key: object) -> bool:
        self.count += 1
        return super().__contains__(key)

    def items(self) -> Any:
        self.count += len(self)
        return super().items()


@asynccontextmanager
async def command(desk: ApprovalDesk, **request: str) -> AsyncGenerator[asyncio.StreamReader]:
    """Yields what a command with this request reads."""
    (ours, writer), theirs = [await asyncio.open_connection(sock=end) for end in socket.socketpair()]
    answering = asyncio.create_task(desk.answer(request, *theirs))
    try:
        async with asyncio.timeout(WAIT):
            yield ours
    finally:
        answering.cancel()
        await asyncio.wait([answering])
        for each in (writer, theirs[1]):
            each.close()
            await each.wait_closed()


async def test_a_terminal_that_watches_is_told_of_each_change_without_a_look_at_all_calls(tmp_path: Path):
    desk = ApprovalDesk(tmp_path)
    desk._waiting = waiting = Counting()  # pyright: ignore[reportPrivateUsage]
    requests = [ApprovalRequest("s", "t", {}, None) for _ in range(CALLS)]
    async with command(desk, approvals="watch") as lines:
        await lines.readline()
        with ExitStack() as stack:
            for request in requests:
                stack.enter_context(desk.waiting(request, str))
                assert json.loads(await lines.readline())["id"] == request.id
        ended = [json.loads(await lines.readline())["ended"] for _ in requests]

    assert {*ended} == {request.id for request in requests}
    assert waiting.count < CALLS


async def test_a_decision_is_shown_only_the_calls_whose_ids_it_may_mean(tmp_path: Path):
    desk, shown = ApprovalDesk(tmp_path), list[str]()
    requests = [ApprovalRequest("s", "t", {}, None) for _ in range(CALLS)]
    with ExitStack() as stack:
        for request in requests:
            stack.enter_context(desk.waiting(request, lambda each=request: shown.append(each.id) or ""))
        async with command(desk, approvals="list", id=requests[7].id[:6]) as lines:
            assert json.loads(await lines.readline())["id"] == requests[7].id

    assert shown == [requests[7].id]
