"""Executes code in an IPython kernel that it creates on a gateway.

Each `CodeExecutor` uses one client. `RemoteKernel` manages the kernel itself; `Execution` tracks one execution.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import aiohttp

from ipybox.guest.protocol import READ
from ipybox.kernel_mgr import messages, timeouts
from ipybox.kernel_mgr.display_files import DisplayDirectory
from ipybox.kernel_mgr.display_forms import text_of
from ipybox.kernel_mgr.execution import Execution
from ipybox.kernel_mgr.output_collector import MAX_OUTPUT_BYTES, LateOutput, OutputCollector
from ipybox.kernel_mgr.remote_kernel import RemoteKernel, is_shortage
from ipybox.support.bounded_queue import BoundedQueue
from ipybox.support.deadline import Deadline, DeadlineLock, check_seconds
from ipybox.support.endpoint import Endpoint
from ipybox.support.errors import ExecutionError, ExecutionTimeoutError, GatewayError
from ipybox.support.outputs import Clear, Display, ExecutionResult, Stream
from ipybox.support.tasks import TaskSet

if TYPE_CHECKING:
    from ipybox.kernel_mgr.variables import Inputs

__all__ = ["ExecutionError", "ExecutionResult", "KernelClient"]

logger = logging.getLogger(__name__)

_SILENT = "the kernel gateway is not responding: if it stays silent, its kernel is lost"


class KernelClient:
    """Executes code in an IPython kernel of a gateway, which it creates and deletes.

    Executions are stateful. They run one at a time: a second one waits for the first.

    Args:
        host: Host of the gateway.
        port: Port of the gateway. The client finds the token that the gateway published (`ipybox.support.tokens`).
        images_dir: Directory for images that code displays; by default, `images` in the current directory.
        ping_interval: Seconds between pings that detect a lost gateway over TCP; private sockets need none.
        kernel_init_timeout: Seconds in which a new kernel must answer.
        endpoint: The gateway's private endpoint (`KernelGateway.endpoint`), instead of host and port.
        untrusted_root: The workspace, if the kernel runs in a sandbox: links that code created there are not followed.
        workspace: The workspace. If it is deleted, it is not created again for images.
        env: Environment variables for the kernel; the gateway accepts only some.

    Raises:
        ValueError: If `kernel_init_timeout` is not positive.
    """

    def __init__(
        self,
        host: str = "localhost",
        port: int = 8888,
        *,
        images_dir: Path | None = None,
        ping_interval: float = 10,
        kernel_init_timeout: float = timeouts.KERNEL_INIT_TIMEOUT,
        endpoint: Endpoint | None = None,
        untrusted_root: Path | None = None,
        workspace: Path | None = None,
        env: Mapping[str, str] | None = None,
    ):
        check_seconds("kernel_init_timeout", kernel_init_timeout)
        endpoint = endpoint or Endpoint("kernel-gateway", host, port)
        heartbeat = None if endpoint.dial is not None else ping_interval
        #: The kernel on its gateway, for attaching a person's clients.
        self.remote_kernel: Final = RemoteKernel(endpoint, env, heartbeat=heartbeat, init_timeout=kernel_init_timeout)
        self._channels = self.remote_kernel.channels
        #: Called when the interruption of an execution begins: its code may run on for a while.
        self.on_interrupt: Callable[[], None] = lambda: None
        self._late = LateOutput()
        self._channels.on_unclaimed = self._late.add
        #: The directory for images that code displays.
        self.images_dir: Final = images_dir or Path("images")
        self._displays = DisplayDirectory(self.images_dir, untrusted_root, workspace)
        self._turn = DeadlineLock()
        self._tasks = TaskSet()
        #: Held while the kernel is created, replaced or deleted; each of these runs to completion.
        self._lifecycle = asyncio.Lock()
        self._recovery: asyncio.Task[str] | None = None

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.disconnect()

    @property
    def kernel_id(self) -> str:
        """The id of the running kernel.

        Raises:
            RuntimeError: If not connected to a kernel.
        """
        if self.remote_kernel.id is None:
            raise RuntimeError("not connected to a kernel: call connect() first")
        return self.remote_kernel.id

    @property
    def alive(self) -> bool:
        """Whether there is a kernel that is not known to be dead."""
        return self._channels.alive

    @property
    def idle(self) -> bool:
        """Whether there is a kernel that is not known to be dead, and no execution is being interrupted in it."""
        return self._recovery is None and self._channels.alive

    async def connect(self, retries: int = 10, retry_interval: float = 1.0) -> None:
        """Creates a kernel and returns when it is ready to execute code.

        Args:
            retries: How often to try again if the gateway can't be reached.
            retry_interval: Seconds between tries.

        Raises:
            RuntimeError: If already connected, or the gateway can't be reached after all retries.
            GatewayError: If the kernel does not start, the gateway returns an error, or something other than a
                gateway answers.
        """
        if self.remote_kernel.session is not None:
            raise RuntimeError("already connected to a kernel")
        while True:
            try:
                return await self._tasks.finish(self._connect())
            except asyncio.CancelledError:
                await self.disconnect()  # the gateway creates the kernel anyway
                raise
            except (aiohttp.ClientConnectionError, OSError) as exc:
                if retries <= 0:
                    self.remote_kernel.lost = not is_shortage(exc)
                    message = f"can't reach the kernel gateway at {self.remote_kernel.endpoint.url}: {exc}"
                    raise RuntimeError(message) from exc
            retries -= 1
            await asyncio.sleep(retry_interval)

    async def disconnect(self) -> None:
        """Deletes the kernel and closes the connection to the gateway."""
        await self._tasks.finish(self._disconnect())

    async def reset(self) -> None:
        """Replaces the kernel with a new one; a running execution fails. Cancelling the caller does not stop the reset.

        Raises:
            RuntimeError: If not connected to a gateway.
            GatewayError: If the gateway can't create a new kernel.
        """
        await self._tasks.finish(self.replace_kernel())

    async def replace_kernel(self, unless_ended: Execution | None = None) -> bool:
        """Replaces the kernel like `reset`, but in the caller's task, which must not be cancelled.

        Does nothing and returns False if the execution `unless_ended` has ended: a reset may already have replaced its
        kernel.
        """
        async with self._lifecycle:
            if unless_ended is not None and unless_ended.ended.is_set():
                return False
            if self.remote_kernel.session is None:
                raise RuntimeError("not connected to a kernel: call connect() first")
            if self._channels.alive:  # the next result includes the last output of a kernel that died
                self._late.clear()
            try:
                await self.remote_kernel.replace("the kernel was reset while the code ran")
            except (aiohttp.ClientError, OSError) as exc:
                await self.remote_kernel.probe()
                raise GatewayError(f"unexpected response from the kernel gateway: {exc}") from exc
            return True

    async def recovered(self) -> None:
        """Waits until no execution is being interrupted; the kernel may have been restarted."""
        if self._recovery is not None:
            await asyncio.shield(self._recovery)

    async def execute(self, code: str, timeout: float | None = 120) -> ExecutionResult:
        """Executes code and returns its output.

        Args:
            code: The code of one cell.
            timeout: Seconds until the execution is interrupted, including its wait for an earlier one; None for no
                limit.

        Raises:
            ExecutionError: If the code raises; the message is the traceback.
            KernelDiedError: If the kernel ends.
            TimeoutError: If the execution times out before the code runs, or `ExecutionTimeoutError` while it does; the
                message says what happened to the kernel. Like the others, the latter has the output so far.
            ValueError: If the timeout is not positive.
        """
        deadline = Deadline(timeout)
        async with self._turn.hold(deadline):
            return await self.run(code, deadline)

    async def stream(self, code: str, timeout: float | None = 120) -> AsyncGenerator[str | ExecutionResult]:
        """Executes code; yields the text of its output as it arrives and last the `ExecutionResult`.

        If the iteration ends early, the cell is interrupted. For a slow consumer, as much output is queued as one cell
        can have; more is dropped. Arguments and errors are those of `execute`.
        """
        deadline = Deadline(timeout)
        items: BoundedQueue[str | ExecutionResult] = BoundedQueue(MAX_OUTPUT_BYTES)

        def offer(output: Stream | Display | Clear, _: int) -> None:
            if text := text_of(output):
                items.put_or_drop(text, len(text))

        async def run() -> None:
            items.put(await self.run(code, deadline, OutputCollector(offer)))

        async with self._turn.hold(deadline), aclosing(items.produced_by(run())) as produced:
            async for item in produced:
                yield item

    async def run(
        self,
        code: str,
        deadline: Deadline,
        outputs: OutputCollector | None = None,
        inputs: "Inputs | None" = None,
    ) -> ExecutionResult:
        """Executes code like `execute`, but does not wait for its turn: the caller must run one execution at a time.

        If the caller is cancelled, the kernel is interrupted first.

        Args:
            outputs: Collects the output.
            inputs: What to set before the code runs. If that fails, a `VariableError` is raised, and no code runs.
        """
        execution = Execution(code, outputs, inputs.fields if inputs else {}, inputs.buffers if inputs else ())
        self._late.begin_cell(execution.outputs)
        try:
            await self._execute(execution, deadline)
        finally:
            self._late.running = None
        output = await self._displays.save(execution.outputs)
        execution.check(output)
        return output

    async def read(self, name: str, deadline: Deadline) -> messages.Message:
        """Returns the kernel's reply with a variable. Like `run`, it does not wait for its turn.

        Raises:
            VariableError: If there is no such variable, or it can't be sent.
            ExecutionError, TimeoutError: As `execute`.
        """
        execution = Execution("", fields={READ: name})
        await self._execute(execution, deadline)
        return execution.check(None)

    async def _execute(self, execution: Execution, deadline: Deadline) -> None:
        """Sends a request and waits until its execution has ended; interrupts it at the deadline."""
        if self._recovery is not None:
            try:
                async with deadline.limit():
                    await self.recovered()
            except TimeoutError:
                raise deadline.not_started("an earlier cell that timed out or was cancelled is still running") from None
        try:
            async with deadline.limit():
                await self._channels.request(execution)
                await execution.ended.wait()
        except TimeoutError:
            fate = await self._recover(execution)
            reason = deadline.reason or f"the execution exceeded {deadline.seconds:g} s"
            raise ExecutionTimeoutError(f"{reason}: {fate}", await self._displays.save(execution.outputs)) from None
        except asyncio.CancelledError:
            await self._recover(execution)
            raise
        self._channels.forget(execution.msg_id)

    async def _recover(self, execution: Execution) -> str:
        """Interrupts an execution or restarts its kernel, even if this task is cancelled; returns the outcome.

        Does not wait for the probe of a gateway that stopped answering.
        """
        self.on_interrupt()
        self._recovery = recovery = asyncio.create_task(self._interrupt(execution))
        silent = asyncio.create_task(self.remote_kernel.silent.wait())
        try:
            await asyncio.wait([recovery, silent], return_when=asyncio.FIRST_COMPLETED)
        finally:
            silent.cancel()
        return recovery.result() if recovery.done() else _SILENT

    async def _interrupt(self, execution: Execution) -> str:
        deadline = Deadline(timeouts.INTERRUPT_GRACE)
        try:
            async with deadline.limit():
                await execution.begun.wait()
            if not execution.ended.is_set() or execution.over:
                await self.remote_kernel.interrupt()
                with suppress(TimeoutError):
                    async with Deadline(timeouts.SECOND_INTERRUPT * timeouts.INTERRUPT_GRACE).limit():
                        await execution.ended.wait()
            if not execution.ended.is_set():  # Python discards an interrupt in a finalizer
                await self.remote_kernel.interrupt()
            async with deadline.limit():
                await execution.ended.wait()
        except TimeoutError:
            if (fate := await self._restart(execution)) is not None:
                return fate
        except (GatewayError, aiohttp.ClientError, OSError) as exc:
            logger.warning("can't interrupt the kernel: %s", exc)
            if self.remote_kernel.lost:
                return "the kernel gateway is not responding, and its kernel is lost"
            if (fate := await self._restart(execution)) is not None:
                return fate
        finally:
            self._channels.forget(execution.msg_id)
            self._recovery = None
        return "the kernel was interrupted and keeps its state" if execution.over else execution.death

    async def _restart(self, execution: Execution) -> str | None:
        """Replaces a kernel that can't be interrupted; returns the outcome, or None if the execution has ended."""
        stubborn = "the kernel ignored the interrupt and"
        try:
            replaced = await self.replace_kernel(unless_ended=execution)
        except (RuntimeError, GatewayError) as exc:
            logger.warning("can't restart the kernel: %s", exc)
            return f"{stubborn} could not be restarted: {exc}"
        return f"{stubborn} was restarted: its state is lost" if replaced else None

    async def _connect(self) -> None:
        async with self._lifecycle:
            try:
                await self.remote_kernel.create()
            except BaseException as exc:
                await self.remote_kernel.close()
                if isinstance(exc, aiohttp.ClientError) and not isinstance(exc, aiohttp.ClientConnectionError):
                    url = self.remote_kernel.endpoint.url
                    raise GatewayError(f"{url} does not respond like a kernel gateway: {exc}") from exc
                raise

    async def _disconnect(self) -> None:
        async with self._lifecycle:
            try:
                if self.remote_kernel.session is not None:
                    await self.remote_kernel.delete("the connection to the kernel was closed while the code ran")
            finally:
                await self.remote_kernel.close()
