"""The kernel gateway as the host sees it: one process, owned from `start` to `stop`.

Order of a stop: the link is closed, which ends the guest and its kernels; a process that is still there after a
bounded wait gets SIGTERM, then SIGKILL, with its whole group; then its private directory is removed.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ipybox.acceptor import AcceptedSocket, Acceptor
from ipybox.errors import GatewayError, SandboxError
from ipybox.guest.protocol import ENVIRONMENT_FILE
from ipybox.guest.strays import GATEWAY_ID, kill_marked
from ipybox.inherited import BASIC, PROXIES, inherited
from ipybox.kernel_mgr.limits import UNATTRIBUTED, Limits, format_bytes
from ipybox.kernel_mgr.link import Link
from ipybox.listen import listen
from ipybox.printable import printable
from ipybox.private_file import create_private
from ipybox.sandbox.settings import SandboxConfig, load_settings
from ipybox.tasks import TaskSet
from ipybox.workspace.programs import interpreter
from ipybox.workspace.scratch import ScratchDirectory
from ipybox.workspace.writable import WritablePlaces

if TYPE_CHECKING:
    from ipybox.endpoint import Endpoint
    from ipybox.kernel_mgr.limit_watch import LimitWatch
    from ipybox.sandbox.launch import Sandbox
    from ipybox.sandbox.policy import Policy

logger = logging.getLogger(__name__)

#: Variables of this process that a gateway and its kernels may know; nothing else is passed on.
SAFE_VARIABLES = (*BASIC, "JUPYTER_RUNTIME_DIR")

#: What kernels have besides. A model's error names no page of pydantic's documentation, which costs an agent's tokens.
DEFAULT_VARIABLES = {"PYDANTIC_ERRORS_INCLUDE_URL": "0"}

#: Caches of programs that a sandboxed kernel runs, as directories of its own: the home is not writable.
SANDBOX_DIRECTORIES = {
    "MPLCONFIGDIR": "matplotlib",
    "PIP_CACHE_DIR": "pip",
    "TMPDIR": "tmp",
    "XDG_CACHE_HOME": "cache",
}

START_TIMEOUT = 60.0
TERMINATE_GRACE = 2.0
STDERR_LINES = 20

#: Seconds that closing a connection may delay the end of the port.
ACCEPTOR_GRACE = 1.0


class KernelGateway:
    """Runs a Jupyter Kernel Gateway in a process of its own.

    Kernels share this process's working directory, and of its environment only what `SAFE_VARIABLES` names.
    Requests reach the gateway over private sockets, for which no port exists. If `port` is given, it can also be
    reached there, with a token that clients of the same user find by themselves (`ipybox.tokens`). A thread serves the
    port, so that it does not depend on the event loop that started the gateway.

    Args:
        host: Where to listen if there is a port.
        port: The port to listen on, or None for no port at all; 0 picks a free one.
        sandbox: Whether to run gateway and kernels inside Anthropic's sandbox-runtime.
        sandbox_config: A settings file for the sandbox or the name of a profile (`ipybox.sandbox.settings`). The file
            is believed as it is now, and not read again.
        log_level: Logging level of the gateway process.
        log_to_stderr: Whether the gateway's log goes to this process's stderr. Otherwise its last lines are kept
            for error messages and logged here at level DEBUG.
        env: Environment variables for the kernels.
        working_dir: The kernels' working directory, by default that of this process.
        on_tool_connection: Takes each connection that code in a kernel makes to the tool server's address. If
            None, kernels have no such address, unless `env` holds one.
        limits: What the kernels and all that they start may use together. What exceeds memory or processes is killed.
        allowed_domains: Hosts that can be reached from the sandbox in addition to those of its settings.
        prespawn: Whether the gateway starts a kernel by itself, before anybody asks for one. The first client gets it
            that wants no variables of its own.

    Raises:
        SandboxError: If the settings of the sandbox can't be read or are wrong.
        ValueError: If there are settings for a sandbox that is not asked for.
    """

    def __init__(
        self,
        host: str = "localhost",
        port: int | None = 8888,
        sandbox: bool = False,
        sandbox_config: SandboxConfig | None = None,
        log_level: str = "INFO",
        log_to_stderr: bool = False,
        env: dict[str, str] | None = None,
        *,
        working_dir: Path | None = None,
        on_tool_connection: AcceptedSocket | None = None,
        limits: Limits | None = None,
        allowed_domains: Sequence[str] = (),
        prespawn: bool = False,
    ):
        if sandbox_config is not None and not sandbox:
            raise ValueError("there is a sandbox_config, but no sandbox is asked for: pass sandbox=True, too")
        if allowed_domains and not sandbox:
            raise ValueError("there are allowed_domains, but no sandbox is asked for: pass sandbox=True, too")
        #: What kernels may do; None without a sandbox.
        self.sandbox_settings = load_settings(sandbox_config, allowed_domains) if sandbox else None
        self.host = host
        self.port = port
        self.token: str | None = None
        #: What the session should know of the sandbox: sentences on what it hides or can't protect in the workspace.
        self.notices: list[str] = []
        self._log_level = log_level
        self._log_to_stderr = log_to_stderr
        self._env = dict(env or {})
        self._working_dir = working_dir
        self._on_tool_connection = on_tool_connection
        self._prespawn = prespawn
        self._limits = limits or Limits()
        self._watch: LimitWatch | None = None
        #: The message about the limit that a kernel was killed for, by the kernel's id or `UNATTRIBUTED`.
        self.exceeded: dict[str, str] = {}
        #: Kernels that cells have run in, by their ids, and what to call when the cell's CPU time is over.
        self._cells: dict[str, Callable[[str], object] | None] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._started = False
        self._link: Link | None = None
        self._scratch: ScratchDirectory | None = None
        self._acceptor: Acceptor | None = None
        self._token_file: Path | None = None
        self._tasks = TaskSet()
        self._stderr: deque[str] = deque(maxlen=STDERR_LINES)
        self._stderr_transport: asyncio.ReadTransport | None = None
        self._policy: Policy | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def running(self) -> bool:
        """Whether the gateway process is there and linked to us."""
        return self._link is not None and not self._link.closed.is_set()

    @property
    def endpoint(self) -> "Endpoint":
        """Where clients in this process reach the gateway: over the link."""
        from ipybox.endpoint import Endpoint

        return Endpoint("kernel-gateway", token=self.token, dial=self.connect)

    @property
    def spawned(self) -> bool:
        """Whether `start` has to wait for the process only."""
        return self._process is not None and not self._started

    async def spawn(self) -> None:
        """Starts the gateway process, but does not wait until it answers; `start` goes on from there.

        Not for a gateway with a port, whose token is made by `start`.

        Raises:
            RuntimeError: If the process is there.
            OSError, SandboxError: If it can't be started.
        """
        if self._process is not None:
            raise RuntimeError("the kernel gateway is already running")
        try:
            await self._spawn()
        except BaseException:
            await asyncio.shield(self.stop())
            raise

    async def start(self) -> None:
        """Starts the gateway process and returns when it answers requests.

        Raises:
            RuntimeError: If the gateway is already running.
            OSError: If the port is taken.
            GatewayError: If the process ends or does not answer; the message has its last lines of output.
            SandboxError: If what the sandbox needs is not there, or it can't start. Nothing ran without it.
        """
        if self._started:
            raise RuntimeError("the kernel gateway is already running")
        listener = listen(self.host, self.port) if self.port is not None else None
        try:
            if listener is not None:
                self._publish(listener)
            if not self.spawned:
                await self._spawn()
            await self._until_ready()
            self._watch_limits()
            if listener is not None:
                self._acceptor = Acceptor(listener, self._hand_over, name="ipybox-port")
            self._started = True
        except BaseException:
            if listener is not None:
                listener.close()
            await asyncio.shield(self.stop())
            raise

    async def stop(self, timeout: float = 10) -> None:
        """Stops the gateway process with all its kernels and children.

        Args:
            timeout: Seconds to wait for the process to end by itself before it is terminated.
        """
        if self._token_file is not None:
            self._token_file.unlink(missing_ok=True)
            self._token_file = None
        if self._acceptor is not None:
            self._acceptor.stop()
            self._acceptor.join(ACCEPTOR_GRACE)
            self._acceptor = None
        if self._watch is not None:
            await self._watch.stop()
            self._watch = None
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._process is not None:
            await self._end_process(self._process, timeout)
            if self._process.returncode != 0 and self._scratch is not None:
                # It has not ended what its kernels have started.
                await asyncio.to_thread(kill_marked, f"{GATEWAY_ID}={self._scratch.path}")
            self._process = None
        self._started = False
        await self._tasks.cancel()
        if self._stderr_transport is not None:
            self._stderr_transport.close()
            self._stderr_transport = None
        if self._scratch is not None:
            self._scratch.remove()
            self._scratch = None

    async def join(self) -> None:
        """Waits until the gateway process ends."""
        if self._process is not None:
            await self._process.wait()

    def connect(self) -> socket.socket:
        """Returns a new private connection to the gateway's HTTP server.

        Raises:
            GatewayError: If the gateway is not running.
        """
        if self._link is None:
            raise GatewayError("the kernel gateway is not running")
        return self._link.connect()

    @contextlib.contextmanager
    def cell(self, kernel_id: str, on_cpu_exceeded: Callable[[str], object]) -> Generator[None]:
        """Counts the CPU time of one cell of a kernel, and calls back with a message if it exceeds the limit."""
        self._cells[kernel_id] = on_cpu_exceeded
        if self._watch is not None:
            self._watch.start_cell(kernel_id)
        try:
            yield
        finally:
            if self._watch is not None:
                self._watch.end_cell(kernel_id)
            self._cells[kernel_id] = None

    def explain(self, text: str) -> list[str]:
        """Returns what a limit or the sandbox has refused to code that put out this text, and what opens it.

        Processes that a limit killed after they had left their kernel are reported once, to the first caller.
        """
        lines: list[str] = []
        if (exceeded := self.exceeded.pop(UNATTRIBUTED, None)) is not None:
            lines.append(f"[ipybox] A limit was exceeded: {exceeded}.")
        if self._limits.memory is not None and "MemoryError" in text:
            limit = format_bytes(self._limits.memory)
            lines.append(f"A process of the kernel may use {limit} of memory: memory_limit sets that.")
        if self._policy is not None:
            from ipybox.sandbox.denials import hints

            lines += hints(text, self._policy)
        return lines

    def _publish(self, listener: socket.socket) -> None:
        """Makes a token and puts it where clients look, which may connect from now on."""
        from ipybox.tokens import new_token, publish_token

        self.port = int(listener.getsockname()[1])
        self.token = new_token()
        self._token_file = publish_token("kernel-gateway", self.port, self.token)

    def _hand_over(self, connection: socket.socket) -> None:
        """Hands a connection that arrived at our port to the gateway, which asks for the token; runs in any thread."""
        with connection, contextlib.suppress(GatewayError):
            if (link := self._link) is not None:
                link.hand_over(connection)

    async def _spawn(self) -> None:
        sandbox = self._sandbox()
        self._scratch = ScratchDirectory(sockets=True, writable=() if sandbox is None else sandbox.writable())
        private_dir = self._scratch.path
        guest_dir = private_dir if sandbox is None else private_dir / "guest"
        self._prepare(guest_dir, private_dir)
        if sandbox is None:
            command = self._command(None, guest_dir)
        else:
            from ipybox.sandbox.preflight import require_sandbox

            require_sandbox(sandbox.path)  # what is missing is reported without waiting
            # Large workspaces take a while to be searched.
            command = await asyncio.to_thread(self._command, sandbox, guest_dir)
        self._link = Link()
        # A pipe of our own: asyncio would take the process for running as long as another one holds its pipe.
        read_end, write_end = os.pipe()
        with os.fdopen(write_end, "wb") as stderr:
            reader = asyncio.StreamReader()
            self._stderr_transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb")
            )
            self._tasks.start(self._read_stderr(reader))
            self._process = await asyncio.create_subprocess_exec(
                *command,
                env=self._gateway_environment(sandbox, guest_dir),
                cwd=self._working_dir if sandbox is None else private_dir,
                stdin=self._link.guest_end.fileno(),
                stdout=asyncio.subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )
        self._link.open(self._on_tool_connection)
        self._tasks.start(self._end_with_process(self._process, self._link))
        if self._limits.any:
            self._tasks.start(self._watch_when_ready(self._link))

    def _sandbox(self) -> "Sandbox | None":
        if self.sandbox_settings is None:
            return None
        from ipybox.workspace.imports import guard_imports

        workspace = (self._working_dir or Path.cwd()).resolve()
        guard_imports(WritablePlaces(workspace, self.sandbox_settings))
        from ipybox.sandbox.launch import Sandbox

        return Sandbox(self.sandbox_settings, workspace)

    def _command(self, sandbox: "Sandbox | None", guest_dir: Path) -> list[str]:
        command = [str(interpreter()), "-P", "-m", "ipybox.guest.gateway", "--log-level", self._log_level]
        if self._on_tool_connection is not None:
            command.append("--tools")
        if self._prespawn:
            command.append("--prespawn")
        if self._limits.memory is not None:
            command += ["--memory-limit", str(self._limits.memory)]
        if self._limits.processes is not None:
            command += ["--process-limit", str(self._limits.processes)]
        if sandbox is None:
            return command
        if sandbox.settings.has_network:
            command.append("--proxy")
        if sys.platform == "linux":
            command += ["--confine", "--writable", *map(str, sandbox.writable()), str(guest_dir)]
        command += ["--directory", str(sandbox.workspace)]
        self._policy = sandbox.policy(guest_dir)
        self.notices = [*sandbox.settings.notices, *sandbox.found.notices]
        for notice in self.notices:
            logger.warning("%s", notice)
        return sandbox.kernel_command(command, guest_dir.parent, guest_dir)

    async def _watch_when_ready(self, link: Link) -> None:
        """Starts to watch the limits as soon as the gateway answers, whether or not a client has come."""
        await link.settled()
        if link.ready.is_set() and link is self._link:
            self._watch_limits()

    def _watch_limits(self) -> None:
        """Starts to watch the limits, if there are any and this has not been done."""
        if self._watch is not None or not self._limits.any:
            return
        from ipybox.kernel_mgr.limit_watch import LimitWatch

        assert self._process is not None
        self._watch = LimitWatch(self._process.pid, self._limits, self._limit_exceeded, self._cpu_exceeded)
        self._watch.start()

    def _limit_exceeded(self, message: str, kernel_id: str | None) -> None:
        logger.warning("%s", message)
        killed = self._cells.keys() if kernel_id is None else {kernel_id}
        self.exceeded |= dict.fromkeys(killed, message)

    def _cpu_exceeded(self, message: str, kernel_id: str) -> None:
        if (on_cpu_exceeded := self._cells[kernel_id]) is not None:
            on_cpu_exceeded(message)

    def _prepare(self, guest_dir: Path, private_dir: Path) -> None:
        """Makes the guest's own directory, with the kernels' environment in it."""
        guest_dir.mkdir(mode=0o700, exist_ok=True)
        environment = DEFAULT_VARIABLES | inherited(SAFE_VARIABLES) | self._env
        bin_dir = str(interpreter().parent)
        path = environment.get("PATH", os.defpath)
        if bin_dir not in path.split(os.pathsep):
            environment["PATH"] = f"{bin_dir}{os.pathsep}{path}"  # `!python` means the kernel's own
        if self.sandbox_settings is not None:
            environment["SANDBOX_RUNTIME"] = "1"  # as srt tells what it runs
            for variable, name in SANDBOX_DIRECTORIES.items():
                (guest_dir / name).mkdir()
                environment[variable] = str(guest_dir / name)
            if self.sandbox_settings.has_network:
                environment["NO_PROXY"] = environment["no_proxy"] = self.sandbox_settings.no_proxy
        environment["IPYTHONDIR"] = str(guest_dir / "ipython")
        environment[GATEWAY_ID] = str(private_dir)
        file = guest_dir / ENVIRONMENT_FILE
        with create_private(file) as opened:
            json.dump(environment, opened)

    def _gateway_environment(self, sandbox: "Sandbox | None", guest_dir: Path) -> dict[str, str]:
        """Returns the environment of the gateway process, and of srt around it.

        What is meant for kernels has no part in it: srt is a program of the host.
        """
        own = {
            "JUPYTER_CONFIG_DIR": str(guest_dir),
            "JUPYTER_NO_CONFIG": "1",
            "IPYBOX_RUNTIME_DIR": str(guest_dir),
            "TMPDIR": str(guest_dir),  # Jupyter leaves files there
        }
        if self.token is not None:
            own["KG_AUTH_TOKEN"] = self.token
        if sandbox is None:
            return inherited(SAFE_VARIABLES) | own
        from ipybox.sandbox.launch import srt_temporary

        own["PATH"] = sandbox.path
        own["TMPDIR"] = str(srt_temporary(guest_dir.parent))
        own["CLAUDE_CODE_TMPDIR"] = str(guest_dir / SANDBOX_DIRECTORIES["TMPDIR"])  # makes it srt's TMPDIR inside
        # By which srt finds the way to the hosts that its settings allow.
        proxies = PROXIES if sandbox.settings.has_network else ()
        return inherited((*SAFE_VARIABLES, *proxies)) | own

    async def _until_ready(self) -> None:
        assert self._link is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_TIMEOUT):
                await self._link.settled()
        if self._link.closed.is_set():
            ended = f"the kernel gateway ended at its start{await self._last_words()}"
            raise GatewayError(ended) if self.sandbox_settings is None else await self._explain(ended)
        if not self._link.ready.is_set():
            raise GatewayError(f"the kernel gateway did not answer in {START_TIMEOUT:g} s{await self._last_words()}")

    async def _explain(self, ended: str) -> SandboxError:
        """Returns the error of a sandboxed start, with what this machine does not let a sandbox do."""
        from ipybox.sandbox.preflight import diagnose

        assert self.sandbox_settings is not None
        findings = await asyncio.to_thread(diagnose, weaker_nested=self.sandbox_settings.weaker_nested_sandbox)
        problems = [str(finding) for finding in findings if finding.problem is not None]
        return SandboxError("\n".join(["the sandbox did not start, and nothing ran without it", *problems, ended]))

    async def _last_words(self) -> str:
        await self._tasks.wait(timeout=1)
        return f":\n{chr(10).join(self._stderr)}" if self._stderr else ""

    async def _read_stderr(self, stderr: asyncio.StreamReader) -> None:
        while chunk := await stderr.read(65536):
            text = printable(chunk.decode(errors="replace"), lines=True)
            if self._log_to_stderr:
                print(text, end="", file=sys.stderr, flush=True)
            for line in text.splitlines():
                self._stderr.append(line)
                logger.debug("gateway: %s", line)

    async def _end_with_process(self, process: asyncio.subprocess.Process, link: Link) -> None:
        """Ends what is left of a gateway whose process has ended: a sandbox goes on without what has set it up."""
        await process.wait()
        self._signal_group(process, signal.SIGKILL)
        link.close()

    async def _end_process(self, process: asyncio.subprocess.Process, timeout: float) -> None:
        for wait, next_signal in ((timeout, signal.SIGTERM), (TERMINATE_GRACE, signal.SIGKILL)):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await process.wait()
                break
            self._signal_group(process, next_signal)
        # Also what the gateway may have left in its group.
        self._signal_group(process, signal.SIGKILL)
        await process.wait()

    @staticmethod
    def _signal_group(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
