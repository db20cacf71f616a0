"""The code executor, the SDK's main class. It only connects `SharedRuntime`, `KernelLifecycle` and `CellRunner`."""

import asyncio
import warnings
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, cast

from ipybox.audit.recorder import SessionRecorder
from ipybox.code_exec.cell_runner import MAX_TOOL_TEXTS, STATE_LOST, CellRunner, new_cell
from ipybox.code_exec.config import ExecutorConfig
from ipybox.code_exec.lifecycle import KernelLifecycle
from ipybox.code_exec.option_checks import accepts_options
from ipybox.code_exec.result import CodeExecutionChunk, CodeExecutionResult, result_of
from ipybox.code_exec.running_cell import RunningCell
from ipybox.code_exec.shared_runtime import SharedRuntime
from ipybox.support.deadline import Deadline
from ipybox.support.errors import CodeExecutionError
from ipybox.support.tokens import new_token
from ipybox.tool_exec.approval.approvals import Approvals, accept_call, reject_call
from ipybox.tool_exec.dispatch import ToolCaller
from ipybox.workspace.seal import SealVerifier

if TYPE_CHECKING:
    from nbformat import NotebookNode

    from ipybox.audit.records import SessionObserver
    from ipybox.kernel_mgr.attach.relay import KernelRelay
    from ipybox.kernel_mgr.transfer.file_transfer import Download, FileTransfer, TransferReport
    from ipybox.tool_exec.approval.request import ApprovalCallback, ApprovalRequest

__all__ = ["STATE_LOST", "CodeExecutionChunk", "CodeExecutionError", "CodeExecutionResult", "CodeExecutor"]

#: Seconds that a stopped executor waits for its cells to end.
END_TIMEOUT = 5.0


@dataclass(frozen=True)
class ExecutorStatus:
    """What an executor is doing.

    Attributes:
        busy: Whether code is being executed, including while a tool call waits for a decision.
        node: The machine on which an engine runs, or last ran, the kernel; None without an engine.
        waits_for: What a start or the replacement of a lost node waits for, such as `the scheduler: job 17, PENDING
            (Resources)`, or what a batch of calls has done; empty if neither waits.
    """

    busy: bool
    node: str | None
    waits_for: str


class CodeExecutor:
    """Executes code in an IPython kernel, where it can call the tools of MCP servers, and functions of the application.

    Executions are stateful and run one at a time. Code calls tools through the packages that `generate_mcp_sources`
    generates, and functions in `tools` through the package `mcptools.app`; all these calls run outside the kernel,
    each after it is accepted.

    An executor belongs to the event loop in which it was started: in another one, it raises `RuntimeError`. `Executor`
    works in any thread, with or without an event loop.

    The parameters are the fields of `ExecutorConfig`, which documents them and their errors:
    `CodeExecutor(sandbox=True)`.
    """

    @accepts_options(ExecutorConfig)
    def __init__(self, config: ExecutorConfig):
        self._wire(config, _new_recorder(config))

    @classmethod
    def configured(cls, config: ExecutorConfig, observer: "SessionObserver | None" = None) -> Self:
        """Returns an executor whose events the observer receives; raises the same as the constructor."""
        executor = cls.__new__(cls)
        executor._wire(config, _new_recorder(config, observer))
        return executor

    def _wire(
        self,
        config: ExecutorConfig,
        recorder: SessionRecorder,
        sibling: "CodeExecutor | None" = None,
        directory: Path | None = None,
    ) -> None:
        """Creates the parts of the executor that it doesn't share with a sibling."""
        self._config, self._recorder, self._directory = config, recorder, directory
        #: The executors that share the runtime and were started, in this order.
        self._started: list[CodeExecutor] = [] if sibling is None else sibling._started
        approvals = Approvals(config.policy, config.approval_timeout)
        tool_texts: deque[str] = deque(maxlen=MAX_TOOL_TEXTS)
        on_text = tool_texts.append if config.sandbox else None  # they help to explain denials
        caller = ToolCaller(
            token=new_token(),
            approvals=approvals,
            recorder=recorder,
            on_text=on_text,
            registrations=SealVerifier(config.workspace),
        )
        self._runtime = SharedRuntime(config, caller) if sibling is None else sibling._runtime
        self._kernel = KernelLifecycle(config, self._runtime, caller, directory)
        self._runner = CellRunner(self._kernel, recorder, approvals, tool_texts)
        #: Executes a prepared cell, as `execute` and the MCP server do, and returns its result; raises as `execute`.
        self.run = self._runner.run

    @property
    def name(self) -> str | None:
        """The name in the audit log: the name given to `sibling`, or `default`."""
        return self._recorder.name

    @property
    def kernel_id(self) -> str | None:
        """The id of the kernel on its gateway; None without a kernel. A new kernel has a new id."""
        client = self._kernel.client
        return client.kernel_id if client is not None and client.alive else None

    @property
    def status(self) -> ExecutorStatus:
        """Whether code runs, on which node, and what the executor waits for."""
        return ExecutorStatus(self._runner.active, self._kernel.gateway.node, self._kernel.waits_for)

    @property
    def siblings(self) -> "tuple[CodeExecutor, ...]":
        """The other running executors that share its tool server, in the order in which they started."""
        return tuple(each for each in self._started if each is not self and each._kernel.running)

    @property
    def default_approver(self) -> "ApprovalCallback":
        """The approver of executions without an approver of their own, see `ExecutorConfig.approver`."""
        if self._config.approver is not None:
            # `Executor` has replaced its plain function with an asynchronous one.
            return cast("ApprovalCallback", self._config.approver)
        return accept_call if self._config.policy is None else reject_call

    def __del__(self) -> None:
        kernel = getattr(self, "_kernel", None)  # missing if the constructor failed
        if kernel is None or kernel.forked:
            return
        was_running = kernel.running
        kernel.abandon()
        if was_running:
            warnings.warn(
                f"{self!r} was never stopped: use `async with`, or call stop()",
                ResourceWarning,
                stacklevel=1,
                source=self,
            )

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a code executor can't be copied or pickled, because it runs processes: create one in each process"
        )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def prepare(self) -> None:
        """Starts the gateway process and its first kernel in the background, so that `start` takes less time later.

        Raises:
            OSError, SandboxError: If the process can't be started.
        """
        await self._kernel.prepare()

    async def start(self) -> None:
        """Starts kernel gateway, tool server and kernel; returns when code can be executed.

        Raises:
            RuntimeError: If the executor is running.
            OSError: If a given port is taken, the working directory does not exist, or the package of `tools` can't be
                written there.
            ValueError: If an MCP server was registered under the name of that package in the meantime.
            AuditError: If the audit log can't be written.
            GatewayError: If the kernel gateway or the kernel does not start.
            SandboxError: If a requirement of the sandbox is missing, or it can't start. No code ran.
        """
        await self._kernel.start()
        self._started.append(self)

    async def stop(self) -> None:
        """Stops everything that was started; code that is being executed fails. Stopping twice does nothing."""
        await self._kernel.stop()
        if self._runner.started:  # they are failing
            await asyncio.wait(self._runner.started, timeout=END_TIMEOUT)
        with suppress(ValueError):  # it was not started
            self._started.remove(self)

    async def expire(self, seconds: float) -> None:
        """Stops an idle executor; its first result after a restart says so."""
        self._runner.note_expiry(seconds)
        await self.stop()

    async def reset(self) -> None:
        """Replaces the kernel with a new one and stops the MCP servers, which start again at their next call.

        Code that is being executed fails. The reset continues if the caller is cancelled.

        Raises:
            RuntimeError: If the executor is not running.
            GatewayError: If a new kernel can't be started.
        """
        await self._kernel.reset()

    def sibling(self, name: str | None = None, *, working_dir: Path | str | None = None) -> "CodeExecutor":
        """Returns another executor for concurrent use, with a kernel, state, queue and MCP servers of its own.

        It has the same options, and shares the gateway process: it takes about 17 MiB of memory on Linux
        instead of about 90, or 150 with a sandbox. So siblings run in one sandbox and share its limits. With an engine,
        each has its own job, node and limits. They start and stop in any order.

        Args:
            name: The name in the audit log.
            working_dir: The kernel's working directory, an absolute path or relative to the first executor's; by
                default, the same as this executor's. Images and copied files are saved there, and modules are imported
                from there first. Generated and installed packages, `.env` and the audit log are shared nevertheless.

        Raises:
            ValueError: If `working_dir` is outside of the directory that the sandbox lets code write, or kernels run on
                an engine.
        """
        directory = self._directory
        if working_dir is not None:
            workspace, directory = self._config.workspace, (self._config.workspace / working_dir).resolve()
            if self._config.engine is not None:
                raise ValueError("siblings with a working_dir of their own can't run on an engine")
            if self._config.sandbox and not directory.is_relative_to(workspace):
                raise ValueError(f"working_dir must be in {workspace}, which the sandbox of all siblings allows")
        sibling = CodeExecutor.__new__(CodeExecutor)
        sibling._wire(self._config, self._recorder.named(name), self, directory)
        return sibling

    def cancel(self) -> bool:
        """Interrupts the code that is being executed, and returns whether there was any. Any task may call it.

        The execution fails soon after with `ExecutionCancelledError`. If the code does not stop, its kernel is
        restarted. Waiting executions come next. From another thread, use the event loop's `call_soon_threadsafe`.
        """
        return self._runner.cancel()

    async def execute(
        self,
        code: str,
        timeout: float | None = 120,
        *,
        approver: "ApprovalCallback | None" = None,
        variables: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        raise_errors: bool = True,
    ) -> CodeExecutionResult:
        """Executes code and returns its result.

        Args:
            code: The code of one cell.
            timeout: Seconds until the execution is interrupted, including its wait for an earlier one; None for no
                limit.
            approver: Accepts or rejects each tool call that no policy decides on; by default, the `approver` of the
                constructor. It may return before it decides. If it raises or is cancelled, the call fails with that
                reason. It is cancelled if the request ends without a decision.
            variables: Variables to set before the code runs, all or none. JSON values arrive unchanged, including NaN
                and ints of up to 4,300 digits, but a tuple becomes a list. pandas or polars DataFrames and pyarrow
                tables need pyarrow, here and in the kernel. Together, they may take 64 MiB.
            env: Environment variables of the kernel while the code runs.
            raise_errors: Whether a failed execution raises. Otherwise, its result contains the error: a
                `CodeExecutionError`, `ExecutionCancelledError` or `ExecutionTimeoutError`. The others are raised.

        Raises:
            AuditError: If the audit log can't be written; the code did not run.
            CodeExecutionError: If the code raises, or its kernel dies; the message contains the traceback, `notices`
                the sandbox's denials.
            ExecutionCancelledError: If `cancel` was called.
            TimeoutError: If the execution timed out; the message says what happened to the kernel. If the code was
                running, it is an `ExecutionTimeoutError`, with the output so far, as in `CodeExecutionError`.
            RuntimeError: If the executor is not running.
            TypeError: If an argument has the wrong type.
            ValueError: If the timeout is not positive, or a name in `variables` or `env` is invalid.
            VariableError: If a variable can't be set, such as `x[0].y` with bytes; the code did not run.
        """
        self._kernel.check_running()
        cell = await new_cell(code, timeout, approver or self.default_approver, variables, env)
        return await result_of(self._runner.run(cell), raise_errors=raise_errors)

    async def start_cell(
        self,
        code: str,
        timeout: float | None = 120,
        *,
        approver: "ApprovalCallback | None" = None,
        variables: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> RunningCell:
        """Starts to execute code, and returns the cell, which runs on while nothing waits for it.

        Arguments and errors are those of `execute`; errors of the execution are raised by `RunningCell.wait`.
        """
        self._kernel.check_running()
        cell = await new_cell(code, timeout, approver or self.default_approver, variables, env)
        return RunningCell(cell, self._runner)

    def stream(
        self,
        code: str,
        timeout: float | None = 120,
        chunks: bool = False,
        *,
        variables: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        batches: bool = False,
        raise_errors: bool = True,
    ) -> AsyncGenerator["ApprovalRequest | CodeExecutionChunk | CodeExecutionResult"]:
        """Executes code; yields each tool call that no policy decides on for approval, and finally the result.

        A tool call waits until the consumer accepts or rejects its request, at any time and in any order. If the
        iteration ends early, the code is interrupted as soon as the generator is closed. Python closes it immediately
        if nothing refers to it; otherwise use `contextlib.aclosing`. Other arguments are those of `execute`; waits for
        approval count towards `timeout`.

        Args:
            chunks: Whether to also yield output as it arrives: text, displays, and `Clear`. If the consumer falls
                more than 64 Mi characters behind, chunks are dropped, each time with a notice.
            batches: Whether a batch (`run_many`) is yielded as one request, see `ApprovalRequest.calls`; otherwise,
                each of its calls is.

        Raises:
            CodeExecutionError: As `execute`. Tool calls that fail, are rejected or expire raise in the code, which may
                handle that.
            AuditError, ExecutionCancelledError, RuntimeError, TimeoutError, ValueError, VariableError: As `execute`.
        """
        new = partial(new_cell, code, timeout, variables=variables, env=env)
        return self._runner.stream(new, chunks=chunks, batches=batches, raise_errors=raise_errors)

    def attach(self, name: str = "default") -> AbstractAsyncContextManager["KernelRelay"]:
        """Lets a person use the kernel from JupyterLab or VS Code, until the end of the context.

        A loopback port accepts clients with a token (`docs/attach.md`). It also closes when the kernel ends, such as by
        `reset`. Results contain a notice when the person connects or disconnects. While one of the person's cells runs,
        other cells wait.

        Args:
            name: The name that clients show.

        Raises:
            RuntimeError: If the executor is not running.
            CodeExecutionError: If the kernel died and could not be restarted.
            OSError: If there is no free port.
        """
        return self._kernel.attached(name)

    def notebook(self) -> "NotebookNode":
        """Returns the session so far as a Jupyter notebook: a cell for each execution that has ended.

        It contains the outputs and, as metadata `ipybox`, the tool calls with their decisions. Secrets are removed from
        code, tracebacks and tool arguments as in the audit log, but not from outputs. Also works after `stop`;
        `nbformat.write` saves it.

        Raises:
            RuntimeError: If `notebook_bytes` is 0.
        """
        return self._recorder.notebook()

    async def get(self, name: str, timeout: float | None = 120) -> Any:
        """Returns the value of a kernel variable, of a type that `execute` can set. Leaves no trace in the kernel.

        It waits for its turn like an execution, and `cancel` ends it. It never starts a new kernel. The kernel is not
        trusted: nothing is unpickled, and the data is limited and validated, see `ipybox.support.variables`.

        Args:
            name: The name of the variable, not an expression.
            timeout: As for `execute`.

        Raises:
            CodeExecutionError: If the kernel died or was restarted, so its variables are lost.
            ExecutionCancelledError, RuntimeError, TimeoutError: As `execute`.
            ValueError: If the name is not a valid variable name, or the timeout is not positive.
            VariableError: If there is no such variable, or its value can't be sent.
        """
        self._kernel.check_running()
        return await self._runner.get(name, Deadline(timeout))

    async def upload_file(self, source: Path | str, destination: str | Path) -> "TransferReport":
        """Copies a file or directory of the host into the working directory; the result says what was copied.

        A file is replaced atomically. Copies into an existing directory are added to it, or replace files of the same
        name. Links and the like are omitted, as are names that code may never write, such as `.git` and `.env`. At most
        64 MiB are copied per call. Can be called at any time, even while code changes these files. An engine's node
        that does not share the working directory receives the copy as well.

        Args:
            source: A file or directory of the host.
            destination: Its new path, relative to the working directory.

        Raises:
            OSError: If `source` can't be read or `destination` can't be written, or is not in the working directory.
            ValueError: If `source` is too large.
        """
        source = Path(source)
        report = await asyncio.to_thread(lambda: self._file_transfer.copy_in(source, self._located(destination)))
        if self._kernel.running:
            self._kernel.notices += await self._kernel.gateway.push_files()
        return report

    async def download_file(self, source: str | Path, destination: Path | str) -> "TransferReport":
        """Copies a file or directory of the working directory to the host; the result says what was copied.

        Like `upload_file`; `.env` files and `.ipybox` are not copied. If a node does not share the working directory,
        the node's version is copied, without names that code may never write.

        Args:
            source: A file or directory, relative to the working directory.
            destination: Its new path on the host.

        Raises:
            OSError: If `source` can't be read or is not in the working directory, or `destination` can't be written.
            ValueError: If `source` is too large.
        """
        destination = Path(destination)
        remote = await self.read_from_node(source)
        if remote is not None:
            return await asyncio.to_thread(lambda: self._config.file_transfer().store(remote, destination))
        return await asyncio.to_thread(lambda: self._file_transfer.copy_out(self._located(source), destination))

    @property
    def _file_transfer(self) -> "FileTransfer":
        # In the workspace, links that code may have created are not followed on the way to a sibling's directory.
        inside = self._directory is None or self._directory.is_relative_to(self._config.workspace)
        return self._config.file_transfer(root=None if inside else self._directory)

    def _located(self, path: str | Path) -> str | Path:
        return path if self._directory is None else self._directory / path

    async def read_from_node(self, source: str | Path) -> "Download | None":
        """Returns a file, or a directory as tar, from a node that doesn't share the working directory; else None.

        Raises:
            OSError: If it can't be read there.
            ValueError: If it is too large.
        """
        path = Path(source)
        if path.is_absolute() and path.is_relative_to(self._config.workspace):
            path = path.relative_to(self._config.workspace)
        return await self._kernel.gateway.read_file(str(path)) if self._kernel.running else None


def _new_recorder(config: ExecutorConfig, observer: "SessionObserver | None" = None) -> SessionRecorder:
    audit = config.opened_audit_log()
    return SessionRecorder(audit, "default", config.session_history(audit), observer)
