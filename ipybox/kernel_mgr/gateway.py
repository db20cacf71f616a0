"""The interface of kernel gateways to executors: on this machine (`KernelGateway`), or on another one.

`tests/kernel_mgr/test_gateway.py` tests what holds for all of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ipybox.kernel_mgr.limits.resource_limits import UNATTRIBUTED, ResourceLimits
from ipybox.sandbox.settings import SandboxSettings

if TYPE_CHECKING:
    from ipybox.kernel_mgr.transfer.file_transfer import Download
    from ipybox.support.endpoint import Endpoint


@dataclass(frozen=True, kw_only=True)
class GatewaySetup:
    """What an executor's gateway runs, on any machine.

    Attributes:
        env: Environment variables for the kernels.
        sandbox: The sandbox settings; None without a sandbox.
        limits: The resource limits of the kernels.
        log_level: Logging level of the gateway process.
        preload: Modules to preload in every kernel.
        spare_kernel: Whether to keep a kernel ready for the next session or reset.
    """

    env: dict[str, str] = field(default_factory=dict[str, str])
    sandbox: SandboxSettings | None = None
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    log_level: str = "WARNING"
    preload: Sequence[str] = ()
    spare_kernel: bool = False


class Gateway(ABC):
    """Runs the kernels of one executor or of many, from `start` to `stop`. It can't be restarted."""

    #: Whether all executors that share a runtime use this gateway.
    shared = True

    #: The name of the node that runs the kernels, empty before there is one; None on this machine.
    node: str | None = None

    #: Whether `spawn` has started a process that `start` waits for.
    spawned: bool = False

    def __init__(self) -> None:
        #: The message about the exceeded limit, by the id of the killed kernel or `UNATTRIBUTED`.
        self.exceeded: dict[str, str] = {}
        #: Notices for the session, such as about files that the sandbox hides or can't protect.
        self.notices: Sequence[str] = []

    @property
    def waits_for(self) -> str:
        """What the start waits for, such as `the scheduler: job 17, PENDING (Resources)`; empty if it is not known."""
        return ""

    @property
    @abstractmethod
    def running(self) -> bool:
        """Whether the gateway runs and can be reached."""

    @property
    @abstractmethod
    def endpoint(self) -> "Endpoint":
        """The endpoint for clients in this process, which create kernels there.

        Raises:
            GatewayError: If the gateway is not running.
        """

    async def spawn(self) -> None:  # noqa: B027 - most need not
        """Starts what `start` would wait for, if that costs nothing."""

    @abstractmethod
    async def start(self) -> None:
        """Returns when the gateway answers requests.

        Raises:
            RuntimeError: If the gateway was started before.
            GatewayError: If it does not start.
            SandboxError: If the sandbox can't start. No code ran.
        """

    def withdraw(self) -> None:  # noqa: B027 - most need not
        """Makes a start that waits for its node, or was not started, fail."""

    @abstractmethod
    async def stop(self, timeout: float = 10) -> None:
        """Ends the gateway with all its kernels and their children.

        Args:
            timeout: Seconds to wait for it to end by itself before it is terminated.
        """

    def abandon(self) -> None:  # noqa: B027 - the command of an engine ends with its pipes
        """Ends the gateway without its event loop, which is closed."""

    async def loss(self) -> str | None:
        """Returns why the gateway has ended, if it is known."""
        return None

    @abstractmethod
    def measure_cell(self, kernel_id: str, on_cpu_exceeded: Callable[[str], object]) -> AbstractContextManager[None]:
        """Measures the CPU time of one cell of a kernel, and calls back with a message if it exceeds the limit."""

    async def explain(self, text: str, tool_texts: Iterable[str] = ()) -> list[str]:
        """Returns explanations of denials by a limit or the sandbox in a cell's output, and the settings that allow it.

        Processes that a limit killed after they had left their kernel are reported once, to the first caller.

        Args:
            text: The output.
            tool_texts: Results of MCP tools. Errors in them don't come from this sandbox.
        """
        exceeded = self.exceeded.pop(UNATTRIBUTED, None)
        first = [] if exceeded is None else [f"A limit was exceeded: {exceeded}."]
        return [*first, *await self._explain_denials(text, tool_texts)]

    @abstractmethod
    async def _explain_denials(self, text: str, tool_texts: Iterable[str]) -> list[str]:
        """Returns explanations of denials in a cell's output."""

    async def push_files(self) -> list[str]:
        """Sends what has changed in the workspace to a node that does not share it, and returns notices."""
        return []

    async def read_file(self, path: str) -> "Download | None":  # noqa: B027 - most need not
        """Returns a file of a node that does not share the workspace, or a directory as tar; None if code runs in it.

        Raises:
            OSError: If it can't be read.
            ValueError: If it is too large.
        """
