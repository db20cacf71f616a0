"""Runs tool calls: decides on each, calls the MCP server or function, and records both.

The calls of a batch are decided on together, with one request to an approver that accepts batches. The calls that are
decided on are the ones that run: the list that the kernel sent never leaves the application. Each call is made at most
once. If the batch is cancelled or its cell ends, no further call starts.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ipybox.audit.records import MAX_NAME, ToolCallRecord, WaitingCalls, new_id
from ipybox.guest.tools.protocol import RunManyRequest, RunReply, RunRequest
from ipybox.support.errors import AuditError, IpyboxError, ToolRunnerError
from ipybox.support.printable import printable
from ipybox.support.sizes import format_bytes
from ipybox.tool_exec.approval.request import ApprovalDecision, NoDecision, RequestKind

if TYPE_CHECKING:
    from ipybox.audit.recorder import SessionRecorder
    from ipybox.mcp_client.answers import ToolResult
    from ipybox.tool_exec.approval.approvals import Approvals
    from ipybox.tool_exec.function_tools import FunctionTools
    from ipybox.tool_exec.server_connections import ServerConnections
    from ipybox.workspace.registrations import PinnedTool
    from ipybox.workspace.seal import SealVerifier

#: The server name of the application's functions in generated packages, requests, policies and the audit log.
APP_SERVER = "app"

#: The parameters of that server: empty, unlike any MCP server's, because nothing is started.
APP_PARAMS: dict[str, Any] = {}

#: `on_text` receives at most this many characters, from the end of each text.
MAX_NOTED_TEXT = 64 * 1024

#: Maximum concurrent calls of a tool that only reads, unless the kernel asks for another number.
CONCURRENT_READS = 8

#: Maximum bytes of the results of a batch, which stay in memory until its last call.
MAX_RESULT_BYTES = 256 << 20

OMITTED = "its answer is omitted, because the batch's answers exceed {}: don't repeat the call if it writes"

NOT_MADE = "the batch was cancelled before this call"


@dataclass(frozen=True, kw_only=True)
class ToolCaller:
    """A source of tool calls (a kernel or the application), and what decides on, runs and records its calls."""

    #: The token that its requests carry.
    token: str
    approvals: "Approvals"
    recorder: "SessionRecorder"
    #: Called with each text that a tool returns, unless None.
    on_text: Callable[[str], None] | None = None
    #: Its MCP servers and the application's functions; the tool server adds both.
    connections: "ServerConnections | None" = None
    functions: "FunctionTools | None" = None
    #: The registrations of its MCP servers; without them, no call is sealed, and each may write.
    registrations: "SealVerifier | None" = None
    #: What its running batches have done, for people.
    batches: "dict[str, str]" = field(default_factory=dict[str, str])

    def pinned(self, call: RunRequest) -> "PinnedTool | None":
        """Returns a call's tool as its registration pinned it; None if its server is not registered."""
        return None if self.registrations is None else self.registrations.pinned(call)

    def may_write(self, call: RunRequest) -> bool:
        """Returns whether a call may write: unless its tool was registered as one that only reads."""
        pinned = self.pinned(call)
        return pinned is None or pinned.may_write


async def call_tool(call: RunRequest, caller: ToolCaller, definition: str | None) -> RunReply:
    """Calls a tool of an MCP server, or a function of the application, and returns the reply.

    If a `definition` is given, an MCP server's tool must still have it.

    Raises:
        IpyboxError, ValueError, OSError: If the call produces no result.
    """
    server_name, params, tool_name = call["server_name"], call["server_params"], call["tool_name"]
    if server_name == APP_SERVER and params == APP_PARAMS:
        if caller.functions is None:
            raise ToolRunnerError("the application provides no functions: pass them to CodeExecutor as `tools`")
        return await caller.functions.call(tool_name, call["tool_args"])
    assert caller.connections is not None
    result = await caller.connections.call(server_name, params, tool_name, call["tool_args"], definition)
    return _reply(result, f"{server_name}.{tool_name}")


async def run_call(
    call: RunRequest,
    caller: ToolCaller,
    perform: Callable[[RunRequest, ToolCaller, str | None], Awaitable[RunReply]] = call_tool,
    *,
    kind: RequestKind = "tool",
    large: bool = False,
    batch_id: str | None = None,
    decided: ApprovalDecision | None = None,
) -> RunReply:
    """Asks for approval of a call unless it was decided, runs it, and returns the reply or error for the kernel.

    `large` arguments are recorded in a thread, outside the event loop.
    """
    async with caller.recorder.tool_call(call, caller.may_write, large=large, batch_id=batch_id) as recorded:
        if decided is None:
            decided = await caller.approvals.decide(call, kind, caller)
        refusal = await _recorded_refusal(decided, caller, recorded)
        if kind == "shell":
            recorded.success = "started"  # the kernel runs it
        if refusal is not None:
            what = "the shell command" if kind == "shell" else f"call to {call['server_name']}.{call['tool_name']}"
            return RunReply(error=f"{what} was {refusal}")
        try:
            reply = await perform(call, caller, decided.definition)
        except (IpyboxError, ValueError, OSError) as exc:
            recorded.fail(type(exc).__name__, str(exc))
            reply = RunReply(error=str(exc))
        else:
            if "error" in reply:
                recorded.fail("tool_error", reply["error"])
        if caller.on_text is not None:
            caller.on_text(reply.get("error", "")[-MAX_NOTED_TEXT:])
            for block in reply.get("content", []):
                if block["type"] == "text":
                    caller.on_text(block["text"][-MAX_NOTED_TEXT:])
        return reply


async def _recorded_refusal(decided: ApprovalDecision, caller: ToolCaller, recorded: ToolCallRecord) -> str | None:
    """Records a decision, and returns why the call is not made; None if it is."""
    try:
        await caller.recorder.decided(recorded, decided)
    except AuditError as exc:
        recorded.fail("AuditError", str(exc), outcome="rejected")
        return f"not made: {exc}"
    if decided.accepted:
        return None
    refusal = "not approved" if isinstance(decided, NoDecision) else "rejected"
    return refusal if decided.reason is None else f"{refusal}: {decided.reason}"


def encoded(reply: RunReply) -> bytes:
    """Returns a reply as JSON."""
    from pydantic_core import to_json  # not at startup; a tool call imports it anyway

    # Several times faster than Python's encoder, which would block the event loop on results of many megabytes.
    return to_json(reply)


def _reply(result: "ToolResult", name: str) -> RunReply:
    if not result.is_error:
        return RunReply(structured=result.structured_content, content=result.content)
    text = "\n".join(block["text"] for block in result.content if block["type"] == "text")
    if not text and result.structured_content is not None:
        text = json.dumps(result.structured_content, ensure_ascii=False)
    error = text or f"call to {name} failed; the server gave no reason"
    reply = RunReply(error=error)
    if beside := [block for block in result.content if block["type"] != "text"]:
        reply["content"] = beside
    if result.structured_content is not None:
        reply["structured"] = result.structured_content
    return reply


class Batch:
    """A kernel's calls of one tool. `large` arguments are recorded in threads."""

    def __init__(self, batch: RunManyRequest, caller: ToolCaller, *, large: bool):
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
        may_write = not self._calls or caller.may_write(self._calls[0])
        self._concurrency = batch["concurrency"] or (1 if may_write else CONCURRENT_READS)
        self._waiting = WaitingCalls(batch["server_name"], batch["tool_name"], lambda: may_write, len(self._calls))
        self._caller, self._large = caller, large
        self._name = printable(f"{batch['server_name'][:MAX_NAME]}.{batch['tool_name'][:MAX_NAME]}")
        self._id = new_id()
        #: The indexes of the calls that have not started.
        self._left = iter(range(len(self._calls)))
        self._decisions: Sequence[ApprovalDecision | None] = ()
        self._replies = [b""] * len(self._calls)
        self._done = self._bytes = self._epoch = 0

    async def run(self) -> list[bytes]:
        """Decides on the calls, makes the accepted ones, and returns the encoded replies in the order of the calls."""
        caller = self._caller
        self._epoch = caller.approvals.epoch
        caller.recorder.waiting(self._waiting)
        try:
            self._decisions = await caller.approvals.decide_many(self._calls, caller)
            async with asyncio.TaskGroup() as workers:
                for _ in range(min(self._concurrency, len(self._calls))):
                    workers.create_task(self._work())
        finally:
            caller.batches.pop(self._id, None)
            for index in self._left:  # none, unless the batch was cancelled or its cell has ended
                self._replies[index] = encoded(RunReply(error=f"call to {self._name} was not made: {NOT_MADE}"))
                await self._record_as_not_made(self._calls[index])
                await asyncio.sleep(0)  # there can be many
        return self._replies

    async def _record_as_not_made(self, call: RunRequest) -> None:
        recorder, may_write = self._caller.recorder, self._caller.may_write
        self._waiting.count -= 1
        async with recorder.tool_call(call, may_write, large=self._large, batch_id=self._id) as recorded:
            recorded.fail("CancelledError", NOT_MADE, outcome="cancelled")

    async def _work(self) -> None:
        # Code can make calls in a thread, which no interrupt ends.
        while self._caller.approvals.epoch == self._epoch and (index := next(self._left, None)) is not None:
            call, decided = self._calls[index], self._decisions[index]
            self._waiting.count -= 1
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
