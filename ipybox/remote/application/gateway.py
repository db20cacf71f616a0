"""The kernel gateway of an engine, which runs wherever the engine's command places it.

*Start*: the command runs, and the node greets (`NodeLink`), after a scheduler has found one. The node then starts the
gateway, in a sandbox if there is one. *Stop*: the link closes, which stops the node and its kernels. A command that
doesn't exit gets SIGTERM and SIGKILL. *Loss*: the command exits, or the node stops answering. Its kernel is then lost,
and `GatewayOwner` starts the command again.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipybox.audit.records import JobAction
from ipybox.kernel_mgr.gateway import Gateway, GatewaySetup
from ipybox.kernel_mgr.limits.resource_limits import UNATTRIBUTED
from ipybox.remote.application.link import NodeLink
from ipybox.remote.application.process import EngineProcess
from ipybox.remote.application.settings import Engine
from ipybox.remote.wire import protocol
from ipybox.remote.wire.protocol import Exceeded, Exchange, InvalidMessageError, Ready, RefusedError
from ipybox.remote.wire.stream import StreamClosedError
from ipybox.support.acceptor import AcceptedSocket
from ipybox.support.endpoint import Endpoint
from ipybox.support.errors import GatewayError, SandboxError
from ipybox.support.names import STATE_DIR
from ipybox.support.printable import printable
from ipybox.support.safe_directory import open_directory
from ipybox.support.state import make_ipybox_dir
from ipybox.support.tasks import TaskSet
from ipybox.workspace.imports import guard_imports
from ipybox.workspace.writable import WritablePlaces, host_path

if TYPE_CHECKING:
    from ipybox.kernel_mgr.transfer.file_transfer import Download
    from ipybox.remote.application.push import Push

logger = logging.getLogger(__name__)

#: Seconds between checks of the command's output.
LOOK_INTERVAL = 2.0

#: Seconds for a node to start its gateway after the greeting.
START_TIMEOUT = 60.0

#: Seconds for a node to be lost after one of its kernels: a scheduler that cancels a job kills all processes in turn.
LOSS_GRACE = 0.5

#: The notice for a workspace that the node doesn't share.
NOT_SHARED = (
    "Node {node} can't access the workspace: code runs in a separate directory there, and its files are lost when the "
    "node exits. Generated packages, saved code actions and parsers, installed packages and uploads are sent to the "
    "node. Use upload_file and download_file for other files."
)


class EngineGateway(Gateway):
    """Runs a kernel gateway on the node that an engine's command provides within `queue_timeout` seconds.

    Args:
        workspace: The working directory of the kernels, if the node shares it.
        on_tool_connection: Receives each connection from a kernel to the tool server.
    """

    #: Each executor has its own engine gateway: none queues behind another one, and losing a node costs one kernel.
    shared = False

    def __init__(
        self,
        engine: Engine,
        workspace: Path,
        queue_timeout: float,
        setup: GatewaySetup,
        on_tool_connection: AcceptedSocket,
        on_job: Callable[..., object] = lambda *_, **__: None,
    ):
        super().__init__(setup.limits)
        self.node = ""
        self._engine = engine
        self._on_job = on_job
        self._setup = setup
        self._workspace = workspace
        self._on_tool_connection = on_tool_connection
        self._queue_timeout = queue_timeout
        self._waiting = self._withdrawn = False
        #: The state of the queued job, such as `job 17, PENDING (Resources)`; empty if unknown.
        self._state = ""
        self._job: str | None = None
        #: Kernels that ran cells. Messages about others are ignored, so the node can't fill `exceeded`.
        self._kernels = {UNATTRIBUTED}
        self._process: EngineProcess | None = None
        self._link: NodeLink | None = None
        self._started = False
        self._tasks = TaskSet()
        self._loss: asyncio.Task[str] | None = None
        #: None if the node shares the workspace.
        self._push: Push | None = None

    @property
    def waits_for(self) -> str:
        """See `Gateway.waits_for`."""
        if not self._waiting:
            return ""
        return f"the scheduler: {self._state}" if self._state else f"a node of {self._engine.name}"

    @property
    def running(self) -> bool:
        """Whether the gateway has started and the node is connected."""
        return self._started and self._link is not None and not self._link.closed.is_set()

    @property
    def endpoint(self) -> Endpoint:
        """See `Gateway.endpoint`."""
        if self._link is None:
            raise GatewayError("the engine's gateway is not running")
        return Endpoint("kernel-gateway", dial=self._link.connect, relayed=True)

    async def start(self) -> None:
        """See `Gateway.start`. Fails after `withdraw`."""
        if self._link is not None:
            raise RuntimeError("the engine's gateway has already been started")
        began = time.monotonic()
        try:
            await self._start()
        except BaseException as exc:
            reason = "cancelled" if isinstance(exc, asyncio.CancelledError) else str(exc)
            self._report("failed", reason=reason, waited=time.monotonic() - began)
            await asyncio.shield(self.stop(timeout=0))
            raise
        self._report("started", waited=time.monotonic() - began)

    def withdraw(self) -> None:
        """See `Gateway.withdraw`. Cancels the queued job."""
        self._withdrawn = True
        if self._link is not None and not self._started:
            self._link.fail("it was cancelled")

    async def stop(self, timeout: float = 10) -> None:
        """See `Gateway.stop`. Stops the node and the command."""
        was_running = self.running
        self._started = False
        await self._tasks.cancel()
        if self._link is not None:
            await self._link.close()
        process, self._process = self._process, None
        if process is not None:
            await process.end(timeout)
        if self._loss is not None:
            await self._loss
        if was_running:
            self._report("ended")

    async def loss(self) -> str | None:
        """Returns why the node is lost; None if it is not."""
        if self._loss is None or self._link is None:
            return None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOSS_GRACE):
                await self._link.closed.wait()
        return None if self.running else await asyncio.shield(self._loss)

    @contextlib.contextmanager
    def measure_cell(self, kernel_id: str, on_cpu_exceeded: Callable[[str], object]) -> Generator[None]:
        """See `Gateway.measure_cell`."""
        link = self._link
        if link is None or not self._setup.limits.any:
            yield
            return
        self._kernels.add(kernel_id)
        measuring = self._tasks.start(self._measure(link, kernel_id, on_cpu_exceeded))
        try:
            yield
        finally:
            measuring.cancel()

    async def push_files(self) -> list[str]:
        """See `Gateway.push_files`."""
        return [] if self._push is None or not self.running else await self._push.send()

    async def read_file(self, path: str) -> "Download | None":
        """See `Gateway.read_file`."""
        return None if self._push is None or not self.running else await self._push.read(path)

    async def _start(self) -> None:
        places = WritablePlaces(self._workspace, self._setup.sandbox)
        guard_imports(places)  # code on the node can write the workspace
        self._process = EngineProcess(self._engine, self._setup.limits, host_path(places))
        self._waiting = True
        try:
            pipes = await self._process.spawn()
            link = self._link = NodeLink(self._on_tool_connection)
            await link.open(*pipes)
            await self._until_greeted(self._process, link)
        finally:
            self._waiting = False
            self._process.leave_queue()
        if not link.greeted:
            raise GatewayError(await self._no_node(self._process, link))
        link.start()
        with self._proof() as proof:
            exchange, ready = await self._ready(self._process, link, proof)
        self.node, self.notices = printable(ready.node), [printable(notice) for notice in ready.notices]
        self._job = ready.job or None
        if self._setup.sandbox is not None:
            from ipybox.sandbox.policy import SandboxPolicy

            self._policy = SandboxPolicy(self._setup.sandbox, self._workspace)
        self._started = True
        self._loss = asyncio.create_task(self._watch(self._process, link))
        self._tasks.start(self._receive_exceeded(exchange, link))
        if not ready.shared:
            from ipybox.remote.application.push import Push

            self._push = Push(self._workspace, link, settings=self._setup.sandbox, platform=printable(ready.platform))
            self.notices = [*self.notices, NOT_SHARED.format(node=self.node), *await self._push.send()]

    async def _until_greeted(self, process: EngineProcess, link: NodeLink) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._queue_timeout
        while (left := deadline - loop.time()) > 0 and not self._withdrawn:
            if await link.settled(min(left, LOOK_INTERVAL)):
                return
            if (state := await process.queue_state()) and state != self._state:
                if not self._state:
                    self._report("queued", reason=state)
                self._state = state
                logger.warning("%s is waiting for %s", self._engine.name, self.waits_for)

    async def _no_node(self, process: EngineProcess, link: NodeLink) -> str:
        name = self._engine.name
        waited = f": it was waiting for the scheduler: {self._state}" if self._state else ""
        printed = f"\nit printed: {link.noise}" if link.noise else ""
        if self._withdrawn:
            return f"the wait for a node of {name} was cancelled{waited}"
        if link.problem is not None:
            return f"{name} can't be used: {link.problem}{printed}{process.stderr_text}"
        if link.closed.is_set():
            text = f"{name} did not provide a node: {await process.exit_report()}{printed}"
            if "No module named" in process.stderr_text:
                text += "\nInstall ipybox on the node, for the Python in the engine's command."
            return text
        in_time = f"within {self._queue_timeout:g} s (queue_timeout){waited}"
        return f"{name} did not provide a node {in_time}{printed}{process.stderr_text}"

    async def _ready(self, process: EngineProcess, link: NodeLink, proof: str) -> tuple[Exchange, Ready]:
        """Has the node start its gateway. Returns the request, which stays open, and its first answer."""
        try:
            async with asyncio.timeout(START_TIMEOUT):
                exchange = link.request(protocol.START)
                await exchange.send(protocol.Start(workspace=str(self._workspace), proof=proof, setup=self._setup))
                ready, _ = await exchange.receive(Ready)
                return exchange, ready
        except RefusedError as exc:
            raise (SandboxError if exc.kind is SandboxError else GatewayError)(
                printable(exc.reason, lines=True)
            ) from None
        except InvalidMessageError as exc:
            link.fail(f"the node sent {exc}")
            raise GatewayError(f"the node exited during startup: {link.problem}") from None
        except StreamClosedError:
            reason = link.problem or await process.exit_report()
            raise GatewayError(f"the node exited during startup: {reason}") from None
        except TimeoutError:
            message = f"the node did not start its gateway within {START_TIMEOUT:g} s{process.stderr_text}"
            raise GatewayError(message) from None

    @contextlib.contextmanager
    def _proof(self) -> Generator[str]:
        """Creates an empty file in the workspace's ipybox directory. A node that finds it shares the workspace."""
        workspace, name = self._workspace, f"engine-{secrets.token_hex(8)}"
        make_ipybox_dir(workspace)
        with open_directory(workspace / STATE_DIR, untrusted_root=workspace) as directory:
            directory.write_new(name, b"")
            try:
                yield name
            finally:
                directory.remove(name)

    def _report(self, action: JobAction, **details: Any) -> None:
        if self._job is None and self._process is not None:
            self._job = self._process.job
        engine, node = self._engine.name, self.node or None
        self._on_job(action, engine=engine, job=self._job, node=node, **details)

    async def _measure(self, link: NodeLink, kernel_id: str, on_cpu_exceeded: Callable[[str], object]) -> None:
        with contextlib.suppress(StreamClosedError, InvalidMessageError, RefusedError):
            exceeded, _ = await link.ask(protocol.CELL, protocol.Cell(kernel=kernel_id), Exceeded)
            on_cpu_exceeded(printable(exceeded.message))

    async def _receive_exceeded(self, exchange: Exchange, link: NodeLink) -> None:
        with contextlib.suppress(StreamClosedError):
            while True:
                try:
                    exceeded, _ = await exchange.receive(Exceeded)
                except (InvalidMessageError, RefusedError) as exc:
                    return link.fail(f"the node sent {exc}")
                known = [each for each in exceeded.kernels if each in self._kernels and each not in self.exceeded]
                message = printable(exceeded.message)
                if known:
                    logger.warning("node %s: %s", self.node, message)
                self.exceeded |= dict.fromkeys(known, message)

    async def _watch(self, process: EngineProcess, link: NodeLink) -> str:
        await link.closed.wait()
        reason = link.problem or await process.exit_report()
        if self._started:
            logger.warning("node %s of %s is lost: %s", self.node, self._engine.name, reason)
            self._report("lost", reason=reason)
        return f"its node {self.node} is lost: {reason}"
