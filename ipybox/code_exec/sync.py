"""`Executor`: a `CodeExecutor` for code without an event loop, such as scripts, notebooks and synchronous frameworks.

An event loop in a thread runs the `CodeExecutor`, and each method waits for it.
"""

import asyncio
import atexit
import inspect
import os
import sys
import threading
import warnings
from collections.abc import Awaitable, Callable, Generator, Mapping
from concurrent.futures import Future, InvalidStateError, wait
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from ipybox.code_exec.config import ExecutorConfig
from ipybox.code_exec.executor import CodeExecutor
from ipybox.code_exec.option_checks import accepts_options
from ipybox.code_exec.result import CodeExecutionChunk, CodeExecutionResult
from ipybox.code_exec.shared_runtime import FORKED
from ipybox.support.tasks import in_daemon_thread, start_daemon_thread
from ipybox.tool_exec.approval.request import accepts_batches, ask, knows_batches

if TYPE_CHECKING:
    from nbformat import NotebookNode

    from ipybox.kernel_mgr.transfer.file_transfer import TransferReport
    from ipybox.tool_exec.approval.request import ApprovalCallback, ApprovalRequest

_Result = TypeVar("_Result")

_STOPPED = "the executor was stopped"

#: Maximum questions that an approver has not answered: each takes a thread, even after its request has ended.
MAX_UNANSWERED = 256

_NOT_PLAIN = "an Executor needs a synchronous approver: for an async one, use CodeExecutor"


class Executor:
    """Executes code like `CodeExecutor`, without `async`: `with Executor() as executor: executor.run("1 + 1")`.

    The parameters are the fields of `ExecutorConfig`, which documents them. Any thread may call the methods; they block
    it, even if it runs an event loop. Ctrl-C interrupts the running code and raises `KeyboardInterrupt`; the kernel
    keeps its state.

    Raises:
        AuditError, PolicyError, SandboxError, ValueError: As `CodeExecutor`.
        TypeError: If the approver is an asynchronous function.
    """

    @accepts_options(ExecutorConfig)
    def __init__(self, config: ExecutorConfig):
        if config.approver is not None:
            config = replace(config, approver=_decide_by(config.approver))
        self._share(CodeExecutor.configured(config), _SharedPortal())

    def _share(self, executor: CodeExecutor, portal: "_SharedPortal") -> None:
        self._executor, self._shared = executor, portal
        self._portal: Portal | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts kernel gateway, tool server and kernel. They stop with `stop` or, with a warning, at Python's exit.

        Raises:
            RuntimeError: If the executor is running.
            OSError, AuditError, GatewayError, SandboxError, ValueError: As `CodeExecutor.start`.
        """
        if self._portal is not None:
            raise RuntimeError(FORKED if self._portal.forked else "the executor is already running")
        self._portal = portal = self._shared.acquire()
        atexit.register(self._stop_at_exit)
        try:
            portal.call(self._executor.start)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stops everything that was started; code that is being executed fails. Stopping twice does nothing.

        In a forked child of the process that started it, it does nothing.
        """
        portal = self._portal
        if portal is not None and not portal.forked:
            self._portal = None
            atexit.unregister(self._stop_at_exit)
            try:
                portal.call(self._executor.stop)
            finally:
                self._shared.release()

    def sibling(self, name: str | None = None, *, working_dir: Path | str | None = None) -> "Executor":
        """Returns another executor for concurrent use, with a kernel of its own, as `CodeExecutor.sibling`."""
        sibling = Executor.__new__(Executor)
        sibling._share(self._in_loop(lambda: self._executor.sibling(name, working_dir=working_dir)), self._shared)
        return sibling

    def run(
        self,
        code: str,
        timeout: float | None = 120,
        *,
        approver: "Callable[[ApprovalRequest], object] | None" = None,
        variables: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        raise_errors: bool = True,
    ) -> CodeExecutionResult:
        """Executes code and returns its result. Arguments and errors are those of `CodeExecutor.execute`.

        Only the `approver` differs: it is a function that returns True to accept a tool call, and False or None to
        reject it. It runs in a thread of its own, so it may ask a person. If it raises, the call fails with that
        reason. Its answer has no effect after the request has expired. An asynchronous function is a TypeError.
        """
        decide = None if approver is None else _decide_by(approver)
        execute = partial(
            self._executor.execute,
            code,
            timeout,
            approver=decide,
            variables=variables,
            env=env,
            raise_errors=raise_errors,
        )
        return self._running().call(execute)

    def stream(
        self,
        code: str,
        timeout: float | None = 120,
        *,
        approver: "Callable[[ApprovalRequest], object] | None" = None,
        variables: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        raise_errors: bool = True,
        requests: bool = False,
    ) -> Generator["StreamedRequest | CodeExecutionChunk | CodeExecutionResult", None, None]:
        """Executes code; yields its output as it arrives, and finally the result. Other arguments are those of `run`.

        Closing the generator interrupts the code. Nothing is yielded while the approver decides on a tool call. With
        `requests`, each tool call that no policy decides on is yielded instead, and waits for its decision.

        Raises:
            TypeError: If an approver is passed with `requests`.
            AuditError, CodeExecutionError, RuntimeError, TimeoutError, TypeError, ValueError, VariableError: As `run`.
        """
        if requests and approver is not None:
            raise TypeError("pass either approver=... or requests=True")
        portal = self._running()
        decide = self._executor.default_approver if approver is None else _decide_by(approver)
        batches = not requests and knows_batches(decide)
        stream = partial(self._executor.stream, variables=variables, env=env, batches=batches)
        items = stream(code, timeout, chunks=True, raise_errors=raise_errors)
        try:
            while (item := portal.call(lambda: anext(items, None))) is not None:
                if isinstance(item, CodeExecutionChunk | CodeExecutionResult):
                    yield item
                elif requests:
                    yield StreamedRequest(item, portal)
                else:
                    portal.call(partial(ask, decide, item))
        finally:
            portal.call(items.aclose)

    def get(self, name: str, timeout: float | None = 120) -> Any:
        """Returns the value of a variable of the kernel, as `CodeExecutor.get`."""
        return self._running().call(lambda: self._executor.get(name, timeout))

    def reset(self) -> None:
        """Replaces the kernel with a new one, as `CodeExecutor.reset`."""
        self._running().call(self._executor.reset)

    def cancel(self) -> bool:
        """Interrupts the code that another thread is executing, and returns whether there was any."""
        return self._running().run(self._executor.cancel)

    def notebook(self) -> "NotebookNode":
        """Returns the session so far as a Jupyter notebook, as `CodeExecutor.notebook`."""
        return self._in_loop(self._executor.notebook)

    def upload_file(self, source: Path | str, destination: str | Path) -> "TransferReport":
        """Copies a file or directory of the host into the working directory, as `CodeExecutor.upload_file`."""
        return self._running().call(lambda: self._executor.upload_file(source, destination))

    def download_file(self, source: str | Path, destination: Path | str) -> "TransferReport":
        """Copies a file or directory of the working directory to the host, as `CodeExecutor.download_file`."""
        return self._running().call(lambda: self._executor.download_file(source, destination))

    def _stop_at_exit(self) -> None:
        if self._portal is not None and not self._portal.forked:
            warnings.warn(
                f"{self!r} was never stopped: use it in a `with` block, or call stop()",
                ResourceWarning,
                stacklevel=1,
                source=self,
            )
        self.stop()

    def _in_loop(self, function: Callable[[], _Result]) -> _Result:
        """Returns the result of a function, which is called in the event loop if the executor is running."""
        return function() if self._portal is None else self._portal.run(function)

    def _running(self) -> "Portal":
        if self._portal is None:
            raise RuntimeError("the executor is not running: use `with Executor() as executor`, or call start()")
        return self._portal


class StreamedRequest:
    """A tool call that `Executor.stream` yields for a decision. Any thread may call the methods.

    Attributes:
        request: The call, whose own methods need `await`.
    """

    def __init__(self, request: "ApprovalRequest", portal: "Portal"):
        self.request = request
        self._portal = portal

    def __str__(self) -> str:
        return str(self.request)

    def accept(self) -> bool:
        """Lets the tool run, and returns whether the decision counts, as `ApprovalRequest.accept`."""
        return self._portal.call(self.request.accept)

    def reject(self, reason: str | None = None) -> bool:
        """Makes the call fail, as `ApprovalRequest.reject`."""
        return self._portal.call(lambda: self.request.reject(reason))


class Portal:
    """An event loop in a thread.

    Not anyio's portal: Python joins its thread at exit, before `atexit` functions, so a program that never stops an
    executor would hang. A daemon thread still runs then. Raises an OSError if no descriptor or thread is available.
    """

    def __init__(self) -> None:
        self._closed = asyncio.Event()
        self._process = os.getpid()
        #: Calls whose work has not started.
        self._waiting: set[_Call[Any]] = set()
        started: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = start_daemon_thread(partial(self._run, started), "ipybox")
        self._loop = started.result()

    @property
    def forked(self) -> bool:
        """Whether this is a forked child, in which the thread does not exist."""
        return os.getpid() != self._process

    def call(self, work: Callable[[], Awaitable[_Result]]) -> _Result:
        """Returns the result of work in the loop, or raises its error. An interrupted wait cancels the work first.

        Raises:
            RuntimeError: If the executor was stopped, even while the work runs, or this is a forked child.
        """
        if self.forked:
            raise RuntimeError(FORKED)
        call = _Call(work)
        self._waiting.add(call)
        try:
            self._call_soon(self._start, call)
            return call.outcome.result()
        except BaseException:  # such as Ctrl-C, which can arrive anywhere
            if not call.outcome.done():
                self._call_soon(call.cancel)
                wait([call.outcome])
            raise
        finally:
            self._waiting.discard(call)

    def run(self, function: Callable[[], _Result]) -> _Result:
        """Returns the result of a function that is called in the loop; raises as `call`."""

        async def work() -> _Result:
            return function()

        return self.call(work)

    def close(self) -> None:
        """Ends the loop; work in it is cancelled."""
        self._call_soon(self._closed.set)
        self._thread.join()

    def _call_soon(self, callback: Callable[..., object], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:  # the loop is closed
            self._abandon()

    def _abandon(self) -> None:
        """Ends the calls whose work can't start because the loop is closed."""
        for call in tuple(self._waiting):
            with suppress(InvalidStateError):  # another thread was faster
                call.outcome.set_exception(RuntimeError(_STOPPED))

    def _start(self, call: "_Call[Any]") -> None:
        self._waiting.discard(call)
        call.start()

    def _run(self, started: "Future[asyncio.AbstractEventLoop]") -> None:
        try:
            with asyncio.Runner() as runner:
                started.set_result(runner.get_loop())
                runner.run(self._closed.wait())
        except OSError as exc:
            started.set_exception(exc)
        finally:
            self._abandon()


class _SharedPortal:
    """The portal of an executor and its siblings: the first to start opens it, and the last to stop closes it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._portal: Portal | None = None
        self._users = 0

    def acquire(self) -> Portal:
        """Returns the open portal; raises as `Portal`."""
        with self._lock:
            self._portal = self._portal or Portal()
            self._users += 1
            return self._portal

    def release(self) -> None:
        """Ends one use of the portal."""
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._portal is not None:
                portal, self._portal = self._portal, None
                portal.close()


class _Call(Generic[_Result]):
    """Work in a portal's loop. It can be cancelled before, during and after its start.

    The task is created and dropped in the loop. If the caller's thread dropped it, asyncio's weak reference to the task
    would call a function there, and Python ignores a Ctrl-C that arrives during such a call.
    """

    def __init__(self, work: Callable[[], Awaitable[_Result]]):
        #: Done when the work has ended, or will never start.
        self.outcome: Future[_Result] = Future()
        self._work = work
        self._task: asyncio.Task[_Result] | None = None

    def start(self) -> None:
        """Starts the work. Called in the loop."""
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(self._finish)

    def cancel(self) -> None:
        """Cancels the work. Called in the loop."""
        if self._task is None:
            self.outcome.cancel()
        else:
            self._task.cancel()

    async def _run(self) -> _Result:
        return await self._work()

    def _finish(self, task: "asyncio.Task[_Result]") -> None:
        self._task = None
        if task.cancelled():
            self.outcome.set_exception(RuntimeError(_STOPPED))
        elif (error := task.exception()) is not None:
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(task.result())


def _decide_by(approver: "Callable[[ApprovalRequest], object]") -> "ApprovalCallback":
    """Returns an approver for `CodeExecutor` that asks a plain function; raises a TypeError if it is not one."""
    if not callable(approver):
        raise TypeError(f"approver must be a function that accepts an ApprovalRequest, not {approver!r}")
    if inspect.iscoroutinefunction(approver):
        raise TypeError(_NOT_PLAIN)
    threads = threading.BoundedSemaphore(MAX_UNANSWERED)

    def asked(request: "ApprovalRequest", _stdin: object) -> object:
        if not threads.acquire(blocking=False):
            raise RuntimeError(f"it has not answered {MAX_UNANSWERED} earlier questions")
        try:
            return approver(request)
        except Exception:  # makes the call fail with its own type and text
            raise
        except BaseException as exc:  # such as SystemExit, which would end the event loop
            raise RuntimeError(repr(exc)) from exc
        finally:
            threads.release()

    async def decide(request: "ApprovalRequest") -> None:
        # The approver may ask a person who doesn't answer before Python exits. The thread keeps stdin alive: Python
        # aborts if it closes stdin at exit while `input` still reads a pipe.
        accepted = await in_daemon_thread(partial(asked, request, sys.stdin), "ipybox-approver")
        if inspect.isawaitable(accepted):  # truthy, but not a decision
            if inspect.iscoroutine(accepted):
                accepted.close()  # else Python warns about it
            raise TypeError(_NOT_PLAIN)
        if accepted is True:
            await request.accept()
        elif accepted:  # such as a person's answer "no"
            raise TypeError(f"the approver returned {type(accepted).__name__}: return True to accept, False to reject")
        else:
            await request.reject()

    return accepts_batches(decide) if knows_batches(approver) else decide
