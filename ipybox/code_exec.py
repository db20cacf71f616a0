"""The code executor: the one place where kernel, tool server and approvals are wired together.

Order of a start: gateway process, tool server (`ipybox.runtime`), kernel. What costs time loads meanwhile. A stop
goes the other way round. After a kernel or its gateway has died, the next execution starts what is missing.
"""

import asyncio
import enum
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from copy import copy
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ipybox.acceptor import AcceptedSocket
from ipybox.audit.trail import Trail
from ipybox.backlog import Backlog
from ipybox.deadline import Deadline, Turn
from ipybox.errors import (
    CodeExecutionError,
    ExecutionCancelledError,
    ExecutionError,
    ExecutionTimeoutError,
    GatewayError,
    KernelDiedError,
    SandboxError,
)
from ipybox.kernel_mgr.limits import Limits, default_memory_limit
from ipybox.kernel_mgr.server import KernelGateway
from ipybox.output import ExecutionOutput
from ipybox.runtime import Runtime
from ipybox.sandbox.settings import SandboxConfig, load_settings
from ipybox.tasks import TaskSet
from ipybox.tokens import new_token
from ipybox.tool_exec.protocol import TOKEN_VARIABLE
from ipybox.workspace.env_file import read_env_file
from ipybox.workspace.writable import WritablePlaces

if TYPE_CHECKING:
    from ipybox.audit.audit import Audit, Detail
    from ipybox.kernel_mgr.client import KernelClient
    from ipybox.tool_exec.approval.client import ApprovalCallback, ApprovalRequest
    from ipybox.tool_exec.approval.policy import Policy
    from ipybox.tool_exec.server import ToolServer
    from ipybox.transfer.workspace import Transferred, Workspace

logger = logging.getLogger(__name__)

STATE_LOST = (
    "The kernel had died and was replaced by a new one: variables, imports and definitions of earlier cells are lost."
)

CANCELLED = "the execution was cancelled"

#: Characters of output that wait for the consumer of a stream; the result has what is left out of it.
MAX_WAITING_CHUNKS = 64 << 20


@dataclass(frozen=True)
class CodeExecutionResult(ExecutionOutput):
    """The result of a successful execution: what the code printed and displayed."""


@dataclass(frozen=True)
class CodeExecutionChunk:
    """A part of the output, as it arrives.

    Attributes:
        text: The text of this part.
        notice: Whether it is a notice of ipybox, about output that is missing here, and no output of the code.
    """

    text: str
    notice: bool = False


class _State(enum.Enum):
    NEW = "has not been started: call start(), or use `async with`"
    STARTED = "is running"
    STOPPED = "has been stopped"


class CodeExecutor:
    """Executes code in an IPython kernel, where it can call the tools of MCP servers.

    Executions are stateful. They run one at a time: a second one waits for the first. Tool calls use the packages
    that `generate_mcp_sources` makes; they run outside of the kernel, each after it was accepted.

    Args:
        tool_server_host: Where the tool server listens if it has a port.
        tool_server_port: Port on which the tool server can be reached, too; by default there is none.
        kernel_gateway_host: Where the kernel gateway listens if it has a port.
        kernel_gateway_port: Port on which the kernel gateway can be reached, too; by default there is none.
        kernel_env: Environment variables for the kernel, which does not inherit those of this process.
        images_dir: Directory for images that code displays; `images` in the working directory by default.
        approval_timeout: Seconds until a tool call that is neither accepted nor rejected fails; None for never.
        connect_timeout: Seconds that an MCP server has to start and answer.
        sandbox: Whether the kernel runs inside Anthropic's sandbox-runtime. From the first start on, this process
            imports no module from places that code can write, such as the working directory.
        sandbox_config: A settings file for the sandbox, in the format of srt, or the name of a profile: `default` or
            `workspace` (`ipybox.sandbox.settings.load_settings`). A file is believed, wherever it is, and read only
            once, when the executor is made.
        log_level: Logging level of the gateway process.
        working_dir: The kernel's working directory, by default that of this process.
        memory_limit: Bytes of memory for the kernel and all that it starts together. By default, there is no limit,
            but in the sandbox it is half of what the machine has; 0 means none there, too.
        cpu_seconds: CPU time of one cell, over all its processes; None for no limit.
        process_limit: Processes that there may be at once, the kernel included; None for no limit.
        allowed_domains: Hosts that can be reached from the sandbox in addition to those of its settings, such as
            `example.org`, `*.example.org` or `example.org:443`.
        approval_policy: Rules for tool calls, or their file: what they allow runs, what they deny fails. What they
            ask about is for the consumer of `stream`, or the approver of `execute`.
        audit: What is written to the audit log of the working directory: code and arguments of tool calls without
            secrets (`full`), or only their hashes (`hash`). Or the log itself, which others may write to, too.
        variables: Values of `${VAR}` placeholders in the parameters of MCP servers, for those that are not in the
            environment of this process. What is not among them comes from the `.env` file of the working directory, as
            it is now.

    Raises:
        AuditError: If the audit log can't be written.
        PolicyError: If the policy can't be read or is wrong.
        SandboxError: If the settings of the sandbox can't be read or are wrong.
        ValueError: If there are settings for a sandbox that is not asked for, or a limit is so low that no kernel can
            run.
    """

    def __init__(
        self,
        tool_server_host: str = "localhost",
        tool_server_port: int | None = None,
        kernel_gateway_host: str = "localhost",
        kernel_gateway_port: int | None = None,
        kernel_env: dict[str, str] | None = None,
        images_dir: Path | None = None,
        approval_timeout: float | None = 60,
        connect_timeout: float = 30,
        sandbox: bool = False,
        sandbox_config: SandboxConfig | None = None,
        log_level: str = "WARNING",
        *,
        working_dir: Path | None = None,
        memory_limit: int | None = None,
        cpu_seconds: float | None = None,
        process_limit: int | None = None,
        allowed_domains: Sequence[str] = (),
        approval_policy: "Policy | Path | str | None" = None,
        audit: "Audit | Detail | None" = None,
        variables: Mapping[str, str] | None = None,
    ):
        self._tool_server_address = (tool_server_host, tool_server_port)
        self._approval_timeout = approval_timeout
        self._connect_timeout = connect_timeout
        workspace = working_dir or Path.cwd()
        self._workspace = workspace.resolve()
        self._policy = _policy(approval_policy, self._workspace)
        self._trail = Trail(_audit(audit, self._workspace, {**(variables or {}), **(kernel_env or {})}), "default")
        #: The workspace, if what runs there must get no further.
        self._sandboxed = self._workspace if sandbox else None
        self._settings = cache(partial(load_settings, sandbox_config, allowed_domains)) if sandbox else None
        self._variables = {**read_env_file(self._workspace), **(variables or {})}
        self._images_dir = images_dir if images_dir is not None else workspace / "images"
        self._guest_token = new_token()
        limits = Limits(
            memory=default_memory_limit() if sandbox and memory_limit is None else memory_limit or None,
            cpu_seconds=cpu_seconds,
            processes=process_limit,
        )

        def new_gateway(on_tool_connection: AcceptedSocket) -> KernelGateway:
            return KernelGateway(
                kernel_gateway_host,
                kernel_gateway_port,
                sandbox=sandbox,
                sandbox_config=self._settings or sandbox_config,
                allowed_domains=allowed_domains,
                log_level=log_level,
                env={TOKEN_VARIABLE: self._guest_token} | (kernel_env or {}),
                working_dir=working_dir,
                on_tool_connection=on_tool_connection,
                limits=limits,
                prespawn=True,
            )

        self._runtime = Runtime(new_gateway, self._new_tool_server)
        self._is_sibling = False
        self._begin()

    def _begin(self) -> None:
        """Sets what changes while an executor is used."""
        self._state = _State.NEW
        self._turn = Turn()
        self._resources = AsyncExitStack()
        self._tasks = TaskSet()
        #: Held while the executor starts or stops or gets another kernel, none of which stops half way.
        self._lifecycle = asyncio.Lock()
        self._reset_mcp_servers: Callable[[], Awaitable[None]] | None = None
        #: That which the kernel is in, or was in.
        self._gateway = self._runtime.gateway
        self._client: KernelClient | None = None
        #: That which the last code was executed in.
        self._kernel_id = ""
        #: That whose state the consumer counts on: with another one, state was lost that nobody has told of yet.
        self._expected_kernel_id = ""
        self._on_approval: ApprovalCallback | None = None
        #: That of the code that is being executed.
        self._deadline: Deadline | None = None
        #: Notices of this session, which come with its next result, whether it is a success, an error or a timeout.
        self._notices: list[str] = []

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def prepare(self) -> None:
        """Lets the gateway process and its first kernel start by themselves, so that `start` takes less time later.

        Raises:
            OSError, SandboxError: If it can't be started.
        """
        async with self._lifecycle:
            if self._state is _State.NEW:
                self._resources.push_async_callback(self._runtime.discard)
                await self._runtime.prepare()

    async def start(self) -> None:
        """Starts kernel gateway, tool server and kernel; returns when code can be executed.

        Raises:
            RuntimeError: If the executor is running.
            OSError: If a given port is taken.
            AuditError: If the audit log can't be written.
            GatewayError: If the kernel gateway or the kernel does not start.
            SandboxError: If what the sandbox needs is not there, or it can't start. Nothing ran without it.
        """
        await self._tasks.undo(self._start())

    async def stop(self) -> None:
        """Stops all that was started; code that is being executed fails. Stopping twice does nothing."""
        await self._tasks.finish(self._stop())

    async def reset(self) -> None:
        """Replaces the kernel by a fresh one and stops the MCP servers, which start again at their next call.

        Code that is being executed fails. The reset goes on if the caller is cancelled.

        Raises:
            RuntimeError: If the executor is not running.
            GatewayError: If there is no new kernel.
        """
        self._check_running()
        self._trail.session("reset")
        await self._tasks.finish(self._reset())

    def sibling(self, name: str | None = None) -> "CodeExecutor":
        """Returns another executor, for use beside this one: it has its own kernel, state, turns and MCP servers.

        It shares the gateway process, which costs much less than another one: about 36 MB of memory instead of 80, or
        150 with a sandbox. So siblings are in one sandbox, and have the limits together. They start and stop in any
        order.

        Args:
            name: What the audit log calls it.
        """
        sibling = copy(self)
        sibling._is_sibling = True
        sibling._trail = self._trail.named(name)
        sibling._guest_token = new_token()
        sibling._begin()
        return sibling

    def cancel(self) -> bool:
        """Interrupts the code that is being executed, and returns whether there was any. Any task may call it.

        The execution fails with `ExecutionCancelledError`, soon after; if the code does not yield, its kernel is
        restarted. Executions that wait for their turn come next. Cancelling twice does nothing more.
        """
        if self._deadline is None:
            return False
        self._deadline.expire(CANCELLED)
        return True

    async def execute(
        self, code: str, timeout: float | None = 120, *, approver: "ApprovalCallback | None" = None
    ) -> CodeExecutionResult:
        """Executes code and returns its result.

        Args:
            code: The code of one cell.
            timeout: Seconds until the execution is interrupted, its wait for an earlier one included; None for
                no limit.
            approver: Accepts or rejects each tool call that no policy decides on; it is cancelled when the request
                expires. By default all are accepted if there is no policy, and rejected if there is one.

        Raises:
            AuditError: If the audit log can't be written; the code did not run.
            CodeExecutionError: If the code raises, or its kernel dies; the message has the traceback, `notices` what
                the sandbox refused.
            ExecutionCancelledError: If it was cancelled by `cancel`.
            TimeoutError: If the time is over; the message says what became of the kernel. If the code ran, it is an
                `ExecutionTimeoutError`, which has what was put out until then, as `CodeExecutionError` has.
            RuntimeError: If the executor is not running.
        """
        if approver is None:
            approver = _accept if self._policy is None else _reject
        async with aclosing(self._run(code, Deadline(timeout), approver, [])) as items:
            async for item in items:
                if not isinstance(item, str):
                    return item
        raise AssertionError("unreachable: an execution ends with its result")

    async def stream(
        self, code: str, timeout: float | None = 120, chunks: bool = False
    ) -> AsyncGenerator["ApprovalRequest | CodeExecutionChunk | CodeExecutionResult"]:
        """Executes code; yields each tool call that no policy decides on for approval, and last the result.

        A tool call waits until its request is accepted or rejected, which may happen at any time and in any order.
        Leaving the iteration early interrupts the code.

        Args:
            code: The code of one cell.
            timeout: Seconds until the execution is interrupted, waits for approval and for an earlier execution
                included; None for no limit.
            chunks: Whether to yield output as it arrives, too. A consumer that is far too slow gets it with gaps, each
                with a notice.

        Raises:
            AuditError: If the audit log can't be written; the code did not run.
            CodeExecutionError: If the code raises, as it does after a rejected or expired approval or a failing
                tool if it does not handle that, or if its kernel dies; the message has the traceback.
            ExecutionCancelledError: If it was cancelled by `cancel`.
            TimeoutError: If the time is over; the message says what became of the kernel. If the code ran, it is an
                `ExecutionTimeoutError`, which has what was put out until then, as `CodeExecutionError` has.
            RuntimeError: If the executor is not running.
        """
        self._check_running()
        events: Backlog[ApprovalRequest | CodeExecutionResult | str | None] = Backlog(MAX_WAITING_CHUNKS)
        told: list[str] = []

        async def ask(request: "ApprovalRequest") -> None:
            if chunks and self._client is not None:
                await self._client.until_put_out(request.output_mark)
            events.put(request)

        async def run() -> None:
            try:
                async with aclosing(self._run(code, Deadline(timeout), ask, told)) as items:
                    async for item in items:
                        if not isinstance(item, str):
                            events.put(item)
                        elif chunks:
                            events.offer(item, len(item))
            finally:
                events.put(None)

        running = asyncio.create_task(run())
        try:
            while (event := await events.get()) is not None:
                if left_out := events.take_left_out():
                    yield CodeExecutionChunk(f"\n[ipybox] {left_out:,} characters were left out here.\n", notice=True)
                if isinstance(event, CodeExecutionResult):
                    told.clear()
                yield CodeExecutionChunk(event) if isinstance(event, str) else event
            told.clear()
            await running
        finally:
            running.cancel()
            await asyncio.wait([running])
            self._notices[:0] = dict.fromkeys(told)  # the consumer has left before the end

    async def upload_file(self, source: Path, destination: str | Path) -> "Transferred":
        """Copies a file or directory of the host into the working directory; the result says what was copied.

        A file is replaced at once. Into a directory that is there, files are copied beside and in place of those in it.
        Links and the like are left out, as are names that no code may write, such as `.git` and `.env`. At most 64 MiB
        are copied at once. Can be called at any time, also while code is executed, whatever that makes of its files.

        Args:
            source: A file or directory of the host.
            destination: Its new path, relative to the working directory.

        Raises:
            OSError: If `source` can't be read or `destination` can't be written, or is not in the working directory.
            ValueError: If it is too large.
        """
        return await asyncio.to_thread(lambda: self._files().copy_in(source, destination))

    async def download_file(self, source: str | Path, destination: Path) -> "Transferred":
        """Copies a file or directory of the working directory to the host; the result says what was copied.

        As with `upload_file`; `.env` files and `.ipybox` are not copied.

        Args:
            source: A file or directory, relative to the working directory.
            destination: Its new path on the host.

        Raises:
            OSError: If `source` can't be read or is not in the working directory, or `destination` can't be written.
            ValueError: If it is too large.
        """
        return await asyncio.to_thread(lambda: self._files().copy_out(source, destination))

    def _files(self) -> "Workspace":
        from ipybox.transfer.workspace import Workspace

        return Workspace(self._workspace, settings=self._settings)

    async def _run(
        self, code: str, deadline: Deadline, on_approval: "ApprovalCallback", told: list[str]
    ) -> "AsyncGenerator[str | CodeExecutionResult]":
        """Executes code; `told` becomes the notices of the session that come with its end, for who never gets there."""
        self._check_running()
        async with self._turn.take(deadline):
            self._check_running()
            with self._trail.cell(code) as cell:
                self._deadline = deadline
                try:
                    await self._until_ready(deadline)
                    assert self._client is not None
                    self._on_approval = on_approval
                    self._kernel_id = self._client.kernel_id
                    with self._gateway.cell(self._kernel_id, deadline.expire):
                        async with aclosing(self._client.stream(code, deadline)) as items:
                            async for item in items:
                                if not isinstance(item, str):
                                    cell.succeed(item.text)
                                    item = self._noticed(item, told)
                                yield item
                except ExecutionError as exc:
                    self._check_running()
                    raise CodeExecutionError(self._describe(exc), self._noticed(exc.output, told, str(exc))) from None
                except ExecutionTimeoutError as exc:
                    error = ExecutionCancelledError if deadline.reason is CANCELLED else ExecutionTimeoutError
                    output = self._noticed(exc.output, told)
                    if self._client is not None and self._client.alive:
                        if self._client.kernel_id != self._expected_kernel_id:
                            told.append(STATE_LOST)  # which the message says
                        self._expected_kernel_id = self._client.kernel_id
                    raise error(str(exc), output) from None
                except TimeoutError as exc:
                    if deadline.reason is not CANCELLED:
                        raise
                    raise ExecutionCancelledError(str(exc)) from None
                finally:
                    self._on_approval = self._deadline = None

    def _noticed(self, output: ExecutionOutput | None, told: list[str], error: str = "") -> CodeExecutionResult:
        """Returns an output with all notices: of the session, about the output, and what it tells of refusals.

        Those of the session are added to `told`, too.
        """
        output = output or ExecutionOutput(None, [])
        text = output.text or ""
        explained = self._gateway.explain(f"{text}\n{error}" if error else text)
        self._trail.denied("sandbox", explained)
        notices = [*self._notices, *output.notices, *explained]
        told += self._notices
        self._notices.clear()
        return CodeExecutionResult(output.text, output.images, output.image_data, output.files, notices)

    def _describe(self, exc: ExecutionError) -> str:
        """Returns the message of an error: if its kernel was ended by a limit, that says so."""
        if isinstance(exc, KernelDiedError) and self._kernel_id in self._gateway.exceeded:
            exceeded = self._gateway.exceeded.pop(self._kernel_id)
            self._trail.denied("limit", [exceeded])
            return exceeded
        return str(exc)

    async def _until_ready(self, deadline: Deadline) -> None:
        """Waits until there is a kernel that takes code; a lost one is replaced, and what that means is noted.

        Raises:
            CodeExecutionError: If there is none.
            TimeoutError: At the deadline, which does not end the replacement.
        """
        if self._lifecycle.locked() or self._client is None or not self._client.idle:
            try:
                async with deadline.limit():
                    await self._tasks.finish(self._revive())
            except TimeoutError:
                raise deadline.not_begun("it had not begun, as the kernel was not ready") from None
            self._check_running()
        if deadline.reason is CANCELLED:
            raise TimeoutError(f"{CANCELLED}: it had not begun")
        assert self._client is not None
        if self._client.kernel_id != self._expected_kernel_id:
            reason = self._gateway.exceeded.get(self._expected_kernel_id)
            self._notices.append(STATE_LOST if reason is None else f"{STATE_LOST} It died because {reason}.")
            self._expected_kernel_id = self._client.kernel_id

    async def _revive(self) -> None:
        """Gives the executor a kernel again if it has lost it."""
        async with self._lifecycle:  # a reset that is under way brings one
            self._check_running()
            if self._client is not None:
                await self._client.recovered()
                if self._client.alive:
                    return
            logger.warning("the kernel has died: starting a fresh one")
            self._trail.session("restart")
            try:
                await self._renew_kernel()
            except (GatewayError, SandboxError, OSError) as exc:
                raise CodeExecutionError(f"the kernel had died, and a fresh one can't be started: {exc}") from exc

    async def _reset(self) -> None:
        async def renew() -> None:
            async with self._lifecycle:
                self._check_running()
                await self._renew_kernel()
                assert self._client is not None
                self._expected_kernel_id = self._client.kernel_id

        assert self._reset_mcp_servers is not None
        await asyncio.gather(renew(), self._reset_mcp_servers())

    async def _renew_kernel(self) -> None:
        """Replaces the kernel, and the gateway only if that is lost: other kernels are in it, too."""
        client = self._client
        if client is not None and self._gateway.running and not client.gateway_lost:
            try:
                await client.reset()
            except GatewayError as exc:
                if self._gateway.running and not client.gateway_lost:
                    raise
                logger.warning("the kernel gateway has died, too: %s", exc)
            else:
                return
        await self._disconnect()
        await self._connect()

    async def _start(self) -> None:
        async with self._lifecycle:
            if self._state is _State.STARTED:
                raise RuntimeError("the code executor is already running")
            self._trail.require()
            async with AsyncExitStack() as resources:
                self._reset_mcp_servers = await self._start_tool_side(resources)
                resources.push_async_callback(self._disconnect)
                await self._connect()
                assert self._client is not None
                self._expected_kernel_id = self._client.kernel_id
                if self._policy is not None and self._policy.untrusted is not None:
                    self._notices.append(self._policy.untrusted)
                self._trail.session("start", sandbox=self._sandboxed is not None)
                self._resources = resources.pop_all()
            self._state = _State.STARTED

    async def _stop(self) -> None:
        async with self._lifecycle:  # what is being started is stopped, too
            was_started = self._state is _State.STARTED
            self._state = _State.STOPPED if was_started else self._state
            await self._resources.aclose()
            if was_started:
                self._trail.session("stop")
                self._trail.close()

    async def _start_tool_side(self, resources: AsyncExitStack) -> Callable[[], Awaitable[None]]:
        """Lets the tool server run the calls of our kernel, and returns what stops the MCP servers that do."""
        tool_server = (await resources.enter_async_context(self._runtime)).tool_server
        if self._is_sibling:
            guest = tool_server.guest(self._guest_token, self._decide, self._trail)
            return (await resources.enter_async_context(guest)).reset
        resources.push_async_callback(tool_server.reset)
        return tool_server.reset

    def _new_tool_server(self) -> "ToolServer":
        from ipybox.tool_exec.server import ToolServer

        host, port = self._tool_server_address
        return ToolServer(
            host,
            port,
            approval_required=True,
            approval_timeout=self._approval_timeout,
            connect_timeout=self._connect_timeout,
            sealed_for=self._sandboxed,
            guest_token=self._guest_token,
            approver=self._decide,
            trail=self._trail,
            places=WritablePlaces(self._workspace, self._settings and self._settings()),
            variables=self._variables,
        )

    async def _connect(self) -> None:
        """Gives the executor a kernel, in another gateway if that which there is was lost."""
        if not await self._join_gateway():
            await self._runtime.replace(self._gateway)
            if not await self._join_gateway():
                raise GatewayError("the kernel gateway ended while the kernel started")

    async def _join_gateway(self) -> bool:
        """Makes a kernel; returns whether there is a gateway for it."""
        from ipybox.kernel_mgr.client import KernelClient

        gateway = self._runtime.gateway
        if not gateway.running:  # it has ended, or others are just starting it
            return False
        self._gateway = gateway
        env = {TOKEN_VARIABLE: self._guest_token} if self._is_sibling else None
        client = KernelClient(
            images_dir=self._images_dir,
            endpoint=gateway.endpoint,
            beneath=self._sandboxed,
            workspace=self._workspace,
            env=env,
        )
        try:
            await client.connect(retries=0)
        except (GatewayError, RuntimeError):
            if client.gateway_lost:
                await self._runtime.drop(gateway)  # it would not end by itself
            if gateway.running:
                raise
            return False
        self._client = client
        self._notices += gateway.notices
        return True

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        if client.gateway_lost:
            await self._runtime.drop(self._gateway)  # it would not end by itself
        await client.disconnect()

    async def _decide(self, request: "ApprovalRequest") -> None:
        if self._on_approval is None:
            raise RuntimeError("the call was made while no code was being executed")
        decision = None if self._policy is None else self._policy.decide_on(request)
        if decision is None or decision.effect == "ask":
            await self._on_approval(request)
        elif decision.effect == "allow":
            await request.accept(by="rule", because=f"it is allowed by {decision.reason}")
        else:
            await request.reject(f"it is denied by {decision.reason}", by="rule")

    def _check_running(self) -> None:
        if self._state is not _State.STARTED:
            raise RuntimeError(f"the code executor {self._state.value}")


async def _accept(request: "ApprovalRequest") -> None:
    await request.accept(by="auto")


async def _reject(request: "ApprovalRequest") -> None:
    await request.reject(
        "the approval policy asks about it, and `execute` asks nobody: use `stream`, or pass an `approver`", by="nobody"
    )


def _audit(given: "Audit | Detail | None", workspace: Path, variables: Mapping[str, str]) -> "Audit | None":
    if given is None:
        return None
    from ipybox.audit.audit import Audit

    audit = Audit(workspace, given) if isinstance(given, str) else given
    audit.know(variables)
    audit.open()
    return audit


def _policy(given: "Policy | Path | str | None", workspace: Path) -> "Policy | None":
    if not isinstance(given, Path | str):
        return given
    from ipybox.tool_exec.approval.policy import Policy

    return Policy.load(given, workspace)
