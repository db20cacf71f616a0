"""The kernel gateway as the host sees it: one process, owned from `start` to `stop`.

Order of a stop: the link is closed, which ends the guest and its kernels; a process that is still there after a
bounded wait gets SIGTERM, then SIGKILL, with its whole group; then its private directory is removed.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ipybox.errors import GatewayError
from ipybox.kernel_mgr.link import AcceptedSocket, Link
from ipybox.listen import listen
from ipybox.tasks import TaskSet

if TYPE_CHECKING:
    from ipybox.endpoint import Endpoint

logger = logging.getLogger(__name__)

#: Variables of this process that a gateway and its kernels may know; nothing else is passed on.
SAFE_VARIABLES = (
    *("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"),
    "JUPYTER_RUNTIME_DIR",
)

START_TIMEOUT = 60.0
TERMINATE_GRACE = 2.0
STDERR_LINES = 20


class KernelGateway:
    """Runs a Jupyter Kernel Gateway in a process of its own.

    Kernels share this process's working directory, and of its environment only what `SAFE_VARIABLES` names.
    Requests reach the gateway over private sockets, for which no port exists. If `port` is given, it can also be
    reached there, with a token that clients of the same user find by themselves (`ipybox.tokens`).

    Args:
        host: Where to listen if there is a port.
        port: The port to listen on, or None for no port at all; 0 picks a free one.
        sandbox: Whether to run gateway and kernels inside Anthropic's sandbox-runtime.
        sandbox_config: A settings file for the sandbox.
        log_level: Logging level of the gateway process.
        log_to_stderr: Whether the gateway's log goes to this process's stderr. Otherwise its last lines are kept
            for error messages and logged here at level DEBUG.
        env: Environment variables for the kernels.
        working_dir: The kernels' working directory, by default that of this process.
        on_tool_connection: Takes each connection that code in a kernel makes to the tool server's address. If
            None, kernels have no such address, unless `env` holds one.
    """

    def __init__(
        self,
        host: str = "localhost",
        port: int | None = 8888,
        sandbox: bool = False,
        sandbox_config: Path | None = None,
        log_level: str = "INFO",
        log_to_stderr: bool = False,
        env: dict[str, str] | None = None,
        *,
        working_dir: Path | None = None,
        on_tool_connection: AcceptedSocket | None = None,
    ):
        if sandbox or sandbox_config is not None:
            raise NotImplementedError("the sandbox is not part of this version: see CHANGELOG.md")
        self.host = host
        self.port = port
        self.token: str | None = None
        self._log_level = log_level
        self._log_to_stderr = log_to_stderr
        self._env = dict(env or {})
        self._working_dir = working_dir
        self._on_tool_connection = on_tool_connection
        self._process: asyncio.subprocess.Process | None = None
        self._link: Link | None = None
        self._private_dir: Path | None = None
        self._token_file: Path | None = None
        self._tasks = TaskSet()
        self._stderr: deque[str] = deque(maxlen=STDERR_LINES)

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

    async def start(self) -> None:
        """Starts the gateway process and returns when it answers requests.

        Raises:
            RuntimeError: If the gateway is already running.
            OSError: If the port is taken.
            GatewayError: If the process ends or does not answer; the message has its last lines of output.
        """
        if self._process is not None:
            raise RuntimeError("the kernel gateway is already running")
        listener = listen(self.host, self.port) if self.port is not None else None
        try:
            if listener is not None:
                self._publish(listener)
            await self._spawn()
            await self._until_ready()
        except BaseException:
            if listener is not None:
                listener.close()
            await asyncio.shield(self.stop())
            raise
        if listener is not None:
            self._tasks.start(self._forward_connections(listener))

    async def stop(self, timeout: float = 10) -> None:
        """Stops the gateway process with all its kernels and children.

        Args:
            timeout: Seconds to wait for the process to end by itself before it is terminated.
        """
        if self._token_file is not None:
            self._token_file.unlink(missing_ok=True)
            self._token_file = None
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._process is not None:
            await self._end_process(self._process, timeout)
            self._process = None
        await self._tasks.cancel()
        if self._private_dir is not None:
            shutil.rmtree(self._private_dir, ignore_errors=True)
            self._private_dir = None

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

    def _publish(self, listener: socket.socket) -> None:
        """Makes a token and puts it where clients look, which may connect from now on."""
        from ipybox.tokens import new_token, publish_token

        self.port = int(listener.getsockname()[1])
        self.token = new_token()
        self._token_file = publish_token("kernel-gateway", self.port, self.token)

    async def _forward_connections(self, listener: socket.socket) -> None:
        """Hands connections that arrive at our port to the gateway, which asks for the token."""
        loop = asyncio.get_running_loop()
        with listener:
            while self._link is not None:
                connection, _ = await loop.sock_accept(listener)
                with connection, contextlib.suppress(GatewayError):
                    self._link.hand_over(connection)

    async def _spawn(self) -> None:
        # Sockets are files here: the path has to be short, which that of a user's TMPDIR may not be.
        self._private_dir = Path(tempfile.mkdtemp(prefix="ipybox-", dir="/tmp"))
        self._link = Link()
        command = [sys.executable, "-P", "-m", "ipybox.guest.gateway", "--log-level", self._log_level]
        if self._on_tool_connection is not None:
            command.append("--tools")
        self._process = await asyncio.create_subprocess_exec(
            *command,
            env=self._environment(self._private_dir),
            cwd=self._working_dir,
            stdin=self._link.guest_end.fileno(),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=None if self._log_to_stderr else asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        self._link.open(self._on_tool_connection)
        if self._process.stderr is not None:
            self._tasks.start(self._read_stderr(self._process.stderr))

    def _environment(self, private_dir: Path) -> dict[str, str]:
        inherited = {name: os.environ[name] for name in SAFE_VARIABLES if name in os.environ}
        bin_dir = str(Path(sys.executable).parent)
        path = inherited.get("PATH", os.defpath)
        if bin_dir not in path.split(os.pathsep):
            inherited["PATH"] = f"{bin_dir}{os.pathsep}{path}"  # `!python` means the kernel's own
        own = {
            "IPYTHONDIR": str(private_dir / "ipython"),
            "JUPYTER_CONFIG_DIR": str(private_dir),
            "JUPYTER_NO_CONFIG": "1",
            "IPYBOX_RUNTIME_DIR": str(private_dir),
        }
        if self.token is not None:
            own["KG_AUTH_TOKEN"] = self.token
        return inherited | self._env | own

    async def _until_ready(self) -> None:
        assert self._link is not None
        waits = [asyncio.create_task(event.wait()) for event in (self._link.ready, self._link.closed)]
        try:
            await asyncio.wait(waits, timeout=START_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if self._link.closed.is_set():
            raise GatewayError(f"the kernel gateway ended at its start{await self._last_words()}")
        if not self._link.ready.is_set():
            raise GatewayError(f"the kernel gateway did not answer in {START_TIMEOUT:g} s{await self._last_words()}")

    async def _last_words(self) -> str:
        await self._tasks.wait(timeout=1)
        return f":\n{chr(10).join(self._stderr)}" if self._stderr else ""

    async def _read_stderr(self, stderr: asyncio.StreamReader) -> None:
        while chunk := await stderr.read(65536):
            for line in chunk.decode(errors="replace").splitlines():
                self._stderr.append(line)
                logger.debug("gateway: %s", line)

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
