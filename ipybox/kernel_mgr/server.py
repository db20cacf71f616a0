"""The kernel gateway for the application: its process, its port, and the resource limits of its kernels.

`GatewayOwner` owns one for executors; an application can also run one by itself, on a port. It does not run code:
`KernelClient` does.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ipybox.kernel_mgr.gateway import Gateway, GatewaySetup
from ipybox.kernel_mgr.gateway_launch import GatewayConfig
from ipybox.kernel_mgr.gateway_process import GatewayProcess
from ipybox.sandbox.settings import SandboxConfig, optional_settings
from ipybox.support.acceptor import AcceptedSocket, Acceptor
from ipybox.support.errors import GatewayError, SandboxError
from ipybox.support.listen import listen

if TYPE_CHECKING:
    from ipybox.kernel_mgr.limits.monitor import LimitMonitor
    from ipybox.support.endpoint import Endpoint

logger = logging.getLogger(__name__)

#: Seconds that closing connections may delay closing the port.
ACCEPTOR_GRACE = 1.0


class KernelGateway(Gateway):
    """Runs a Jupyter Kernel Gateway in its own process.

    Kernels share this process's working directory, but only the variables in `SAFE_VARIABLES` of its environment.
    Requests reach the gateway over private sockets, without a port. If `port` is given, it can also be reached there,
    with a token that clients of the same user find by themselves (`ipybox.support.tokens`). A thread serves the port,
    so that it does not depend on the event loop that started the gateway.

    Args:
        host: The host to listen on if there is a port.
        port: The port to listen on, or None for no port; 0 picks a free one.
        working_dir: The kernels' working directory, by default that of this process.
        sandbox: Whether to run gateway and kernels inside Anthropic's sandbox-runtime.
        sandbox_config: A settings file for the sandbox or the name of a profile (`ipybox.sandbox.settings`). The file
            is trusted, and read only once, now.
        log_level: Logging level of the gateway process.
        log_to_stderr: Whether the gateway's log goes to this process's stderr. Otherwise its last lines are kept
            for error messages and logged here at level DEBUG.
        env: Environment variables for the kernels.
        on_tool_connection: Receives each connection that code in a kernel opens to the tool server's address. If
            None, kernels have no such address, unless `env` contains one.
        setup: Settings that replace `sandbox`, `sandbox_config`, `log_level` and `env`, with limits and more
            (`GatewaySetup`).

    Raises:
        SandboxError: If the settings of the sandbox can't be read or are wrong.
        ValueError: If there are sandbox settings without `sandbox`.
    """

    def __init__(
        self,
        host: str = "localhost",
        port: int | None = 8888,
        working_dir: Path | None = None,
        sandbox: bool = False,
        sandbox_config: SandboxConfig | None = None,
        log_level: str = "INFO",
        log_to_stderr: bool = False,
        env: dict[str, str] | None = None,
        *,
        on_tool_connection: AcceptedSocket | None = None,
        setup: GatewaySetup | None = None,
    ):
        setup = setup or GatewaySetup(
            env=env or {}, sandbox=optional_settings(sandbox, sandbox_config), log_level=log_level
        )
        limits = setup.limits.with_default()
        super().__init__(limits)
        self.host = host
        self.port = port
        self.token: str | None = None
        self._log_to_stderr = log_to_stderr
        self._on_tool_connection = on_tool_connection
        given: dict[str, Any] = {**vars(setup), "limits": limits}
        self._config = GatewayConfig(**given, working_dir=working_dir, tools=on_tool_connection is not None)
        self._watch: LimitMonitor | None = None
        self._process: GatewayProcess | None = None
        #: Held while the gateway stops: a start that is cancelled repeatedly leaves `stop` running in its own task.
        self._stopping = asyncio.Lock()
        #: Receives the message about an exceeded limit, and the ids of the kernels that are being killed.
        self.on_exceeded: Callable[[str, Collection[str]], object] = self._record_exceeded
        self._started = False
        self._acceptor: Acceptor | None = None
        self._token_file: Path | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def running(self) -> bool:
        """Whether the gateway process exists and the link to it is open."""
        return self._process is not None and not self._process.link.closed.is_set()

    @property
    def endpoint(self) -> "Endpoint":
        """As `Gateway.endpoint`, over the link."""
        from ipybox.support.endpoint import Endpoint

        if self._process is None:
            raise GatewayError("the kernel gateway is not running")
        return Endpoint("kernel-gateway", token=self.token, dial=self._process.link.connect)

    @property
    def spawned(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride] - nobody sets it
        """Whether `spawn` has started the process that `start` waits for."""
        return self._process is not None and not self._started

    async def spawn(self) -> None:
        """Starts the gateway process, whose answer `start` awaits, unless there is a port: `start` creates its token.

        Raises:
            RuntimeError: If the process exists.
            OSError, SandboxError: If the process can't be started.
        """
        if self._process is not None:
            raise RuntimeError("the kernel gateway is already running")
        if self.port is not None:
            return
        try:
            await self._spawn()
        except BaseException:
            await asyncio.shield(self.stop())
            raise

    async def start(self) -> None:
        """Starts the gateway process and returns when it answers requests.

        Raises:
            RuntimeError: If the gateway is already running.
            OSError: If the port is taken, or a process or thread can't be started.
            GatewayError: If the process ends or does not answer; the message contains its last lines of stderr.
            SandboxError: If a requirement of the sandbox is missing, or it can't start. No code ran.
        """
        if self._started:
            raise RuntimeError("the kernel gateway is already running")
        listener = listen(self.host, self.port) if self.port is not None else None
        try:
            if listener is not None:
                self._publish(listener)
            if not self.spawned:
                await self._spawn()
            await self._wait_until_ready()
            if self._config.limits.any:
                self._watch = self._monitor()
            if listener is not None:
                self._acceptor = Acceptor(listener, self._hand_over, name="ipybox-port")
            self._started = True
        except BaseException:
            if listener is not None:
                listener.close()
            await asyncio.shield(self.stop())
            raise

    async def stop(self, timeout: float = 10) -> None:
        """Stops the gateway process with all its kernels and children; see `Gateway.stop`."""
        async with self._stopping:
            if self._token_file is not None:
                self._token_file.unlink(missing_ok=True)
                self._token_file = None
            if self._acceptor is not None:
                self._acceptor.stop()
                self._acceptor.join(ACCEPTOR_GRACE)
                self._acceptor = None
            await self._end_process(timeout)
            self._started = False

    def abandon(self) -> None:
        """Ends the gateway after its event loop was closed."""
        if self._process is not None:
            with contextlib.suppress(RuntimeError):  # a task of the loop waits for the end
                self._process.link.close()

    async def join(self) -> None:
        """Waits until the gateway process ends."""
        if self._process is not None:
            await self._process.wait()

    def measure_cell(self, kernel_id: str, on_cpu_exceeded: Callable[[str], object]) -> AbstractContextManager[None]:
        """As `Gateway.measure_cell`."""
        return contextlib.nullcontext() if self._watch is None else self._watch.measure_cell(kernel_id, on_cpu_exceeded)

    def _publish(self, listener: socket.socket) -> None:
        """Creates a token and publishes it for clients, which may connect from now on."""
        from ipybox.support.tokens import new_token, publish_token

        self.port = int(listener.getsockname()[1])
        self.token = new_token()
        self._token_file = publish_token("kernel-gateway", self.port, self.token)

    def _hand_over(self, connection: socket.socket) -> None:
        """Passes a connection on the port to the gateway, which checks the token; runs in any thread."""
        with connection, contextlib.suppress(GatewayError):
            if (process := self._process) is not None:
                process.link.hand_over(connection)

    async def _spawn(self) -> None:
        launch = await self._config.prepare(self.token)
        self.notices, self._policy = launch.notices, launch.policy
        self._process = GatewayProcess(launch, log_to_stderr=self._log_to_stderr)
        await self._process.spawn(self._on_tool_connection)

    async def _wait_until_ready(self) -> None:
        """Waits until the gateway answers. If srt failed for a transient reason, starts the sandbox again."""
        starts = 1
        while True:
            assert self._process is not None
            try:
                return await self._process.wait_until_ready()
            except GatewayError as exc:
                if self._config.sandbox is None or not self._process.link.closed.is_set():
                    raise
                from ipybox.sandbox import preflight

                cause = preflight.transient_cause(str(exc))
                if cause is None or starts == preflight.SANDBOX_STARTS:
                    raise await self._start_error(exc, self._config.sandbox.weaker_nested_sandbox) from None
            logger.warning("the sandbox did not start (%s): retrying", cause)
            starts += 1
            await self._end_process(timeout=0)
            await self._spawn()

    async def _start_error(self, ended: GatewayError, weaker_nested: bool) -> SandboxError:
        """Returns the error for a failed sandbox start, with the requirements that this machine does not meet."""
        from ipybox.sandbox.preflight import diagnose

        findings = await asyncio.to_thread(diagnose, weaker_nested=weaker_nested)
        problems = [str(finding) for finding in findings if finding.problem is not None]
        return SandboxError("\n".join(["the sandbox did not start, so no code ran", *problems, str(ended)]))

    async def _end_process(self, timeout: float) -> None:
        if self._watch is not None:
            await self._watch.stop()
            self._watch = None
        if self._process is not None:
            await self._process.end(timeout)
            self._process = None

    def _monitor(self) -> "LimitMonitor":
        from ipybox.kernel_mgr.limits.monitor import LimitMonitor

        assert self._process is not None
        monitor = LimitMonitor(self._process.pid, self._config.limits, self.on_exceeded)
        monitor.start()
        return monitor

    def _record_exceeded(self, message: str, kernels: Collection[str]) -> None:
        logger.warning("%s", message)
        self.exceeded |= dict.fromkeys(kernels, message)
