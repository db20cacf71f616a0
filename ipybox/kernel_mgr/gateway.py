"""The interface of kernel gateways, on this machine (`KernelGateway`) or another one.

`tests/kernel_mgr/test_gateway.py` tests the contract of all implementations.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ipybox.kernel_mgr.limits.resource_limits import ResourceLimits
from ipybox.sandbox.settings import SandboxSettings
from ipybox.support.sizes import format_bytes
from ipybox.support.way_in import name_of

if TYPE_CHECKING:
    from ipybox.kernel_mgr.transfer.file_transfer import Download
    from ipybox.sandbox.policy import SandboxPolicy
    from ipybox.support.endpoint import Endpoint


@dataclass(frozen=True, kw_only=True)
class GatewaySetup:
    """The settings of an executor's gateway, on any machine.

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
    """Runs the kernels of one or more executors, from `start` to `stop`. It can't be restarted."""

    #: Whether all executors that share a runtime use this gateway.
    shared = True

    #: The name of the node that runs the kernels; empty until one is assigned, None on this machine.
    node: str | None = None

    #: Whether `spawn` has started a process that `start` waits for.
    spawned: bool = False

    def __init__(self, limits: ResourceLimits) -> None:
        self._limits = limits
        #: Explains denials of the sandbox; None without a sandbox.
        self._policy: SandboxPolicy | None = None
        #: The message about the exceeded limit, by the id of the killed kernel or `resource_limits.UNATTRIBUTED`.
        self.exceeded: dict[str, str] = {}
        #: Notices for the session, such as about files that the sandbox hides or can't protect.
        self.notices: Sequence[str] = []

    @property
    def waits_for(self) -> str:
        """What `start` is waiting for, such as `the scheduler: job 17, PENDING (Resources)`; empty if unknown."""
        return ""

    @property
    @abstractmethod
    def running(self) -> bool:
        """Whether the gateway is running and reachable."""

    @property
    @abstractmethod
    def endpoint(self) -> "Endpoint":
        """The endpoint where clients in this process create kernels.

        Raises:
            GatewayError: If the gateway is not running.
        """

    async def spawn(self) -> None:  # noqa: B027 - optional
        """Starts what `start` would wait for, if starting it early costs nothing."""

    @abstractmethod
    async def start(self) -> None:
        """Returns when the gateway answers requests.

        Raises:
            RuntimeError: If the gateway was started before.
            GatewayError: If it does not start.
            SandboxError: If the sandbox can't start. No code ran.
        """

    def withdraw(self) -> None:  # noqa: B027 - optional
        """Fails a `start` that is waiting for its node or has not begun."""

    @abstractmethod
    async def stop(self, timeout: float = 10) -> None:
        """Ends the gateway with all its kernels and their children.

        Args:
            timeout: Seconds to wait for it to end by itself before it is terminated.
        """

    def abandon(self) -> None:  # noqa: B027 - an engine's command ends with its pipes
        """Ends the gateway after its event loop was closed."""

    async def loss(self) -> str | None:
        """Returns why the gateway has ended; None if unknown."""
        return None

    @abstractmethod
    def measure_cell(self, kernel_id: str, on_cpu_exceeded: Callable[[str], object]) -> AbstractContextManager[None]:
        """Measures the CPU time of a kernel's cell, and calls back with a message if it exceeds the limit."""

    def explain(self, text: str, tool_texts: Iterable[str] = ()) -> list[str]:
        """Returns explanations of limit and sandbox denials in a cell's output, with the settings to change.

        Args:
            text: The output.
            tool_texts: Results of MCP tools. Errors in them don't come from this sandbox.
        """
        lines: list[str] = []
        if self._limits.memory is not None and "MemoryError" in text:
            limit = format_bytes(self._limits.memory)
            lines.append(f"Each process may use at most {limit} of memory ({name_of('memory_limit')}).")
        if self._policy is not None:
            from ipybox.sandbox.denials import explain_denials

            lines += explain_denials(text, self._policy, tool_texts)
        return lines

    async def push_files(self) -> list[str]:
        """Sends workspace changes to a node that does not share the workspace, and returns notices."""
        return []

    async def read_file(self, path: str) -> "Download | None":  # noqa: B027 - optional
        """Returns a file, or a directory as tar, from a node that does not share the workspace; None if it is shared.

        Raises:
            OSError: If it can't be read.
            ValueError: If it is too large.
        """
