"""Runs a batch: calls of one tool that are decided on together, with one request to an approver that accepts batches.

The calls that are decided on are the ones that run: the list that the kernel sent never leaves the application. Each
call is made at most once. If the batch is cancelled, no further call starts.
"""

import asyncio
from collections.abc import Sequence

from ipybox.audit.records import MAX_NAME, new_id
from ipybox.guest.tools.protocol import RunManyRequest, RunReply, RunRequest
from ipybox.support.printable import printable
from ipybox.support.sizes import format_bytes
from ipybox.tool_exec.approval.request import ApprovalDecision
from ipybox.tool_exec.dispatch import ToolCaller, encoded, record_as_not_made, run_call

#: Maximum concurrent calls of a tool that only reads, unless the kernel asks for another number.
CONCURRENT_READS = 8

#: Maximum bytes of the results of a batch, which stay in memory until its last call.
MAX_RESULT_BYTES = 256 << 20

OMITTED = "its answer is omitted, because those of the batch exceed {}: don't repeat the call if it writes"


async def run_batch(batch: RunManyRequest, caller: ToolCaller, *, large: bool) -> list[bytes]:
    """Decides on the calls, makes those that are accepted, and returns the encoded replies in the order of the calls.

    `large` arguments are recorded in threads.
    """
    return await _Batch(batch, caller, large).run()


class _Batch:
    def __init__(self, batch: RunManyRequest, caller: ToolCaller, large: bool):
        self._calls = [
            RunRequest(
                server_name=batch["server_name"],
                server_params=batch["server_params"],
                seal=batch["seal"],
                tool_name=batch["tool_name"],
                tool_args=arguments,
                output_mark=batch["output_mark"],
            )
            for arguments in batch["params_list"]
        ]
        reads = bool(self._calls) and not caller.may_write(self._calls[0])
        self._concurrency = batch["concurrency"] or (CONCURRENT_READS if reads else 1)
        self._caller, self._large = caller, large
        self._name = printable(f"{batch['server_name'][:MAX_NAME]}.{batch['tool_name'][:MAX_NAME]}")
        self._id = new_id()
        #: The indexes of the calls that have not started.
        self._left = iter(range(len(self._calls)))
        self._decisions: Sequence[ApprovalDecision | None] = ()
        self._replies = [b""] * len(self._calls)
        self._done = self._bytes = 0

    async def run(self) -> list[bytes]:
        caller = self._caller
        try:
            self._decisions = await caller.approvals.decide_many(self._calls, caller)
            async with asyncio.TaskGroup() as workers:
                for _ in range(min(self._concurrency, len(self._calls))):
                    workers.create_task(self._work())
        finally:
            caller.batches.pop(self._id, None)
            for index in self._left:  # none, unless the batch was cancelled
                await record_as_not_made(self._calls[index], caller, large=self._large, batch_id=self._id)
                await asyncio.sleep(0)  # there can be many
        return self._replies

    async def _work(self) -> None:
        for index in self._left:
            call, decided = self._calls[index], self._decisions[index]
            self._caller.batches[self._id] = f"{self._name}: {self._done:,} of {len(self._calls):,} calls are done"
            reply = await run_call(call, self._caller, large=self._large, batch_id=self._id, decided=decided)
            self._replies[index] = self._bounded(encoded(reply))
            self._done += 1
            await asyncio.sleep(0)  # rules may reject thousands of calls without waiting for anything

    def _bounded(self, reply: bytes) -> bytes:
        if self._bytes + len(reply) > MAX_RESULT_BYTES:
            most = format_bytes(MAX_RESULT_BYTES)
            reply = encoded(RunReply(error=f"{self._name} was called, but {OMITTED.format(most)}"))
        self._bytes += len(reply)
        return reply
