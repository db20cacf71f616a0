"""What the node of an engine starts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ipybox.kernel_mgr.limits.resource_limits import ResourceLimits
from ipybox.node.protocol import Start
from ipybox.sandbox.settings import SandboxSettings


@dataclass(frozen=True, kw_only=True)
class NodeConfig:
    """What the node starts.

    Attributes:
        workspace: The working directory of the kernels.
        env: Environment variables for the kernels.
        sandbox: The sandbox settings; None without a sandbox.
        limits: The resource limits.
        default_memory: Whether the memory limit is half of the node's memory.
        log_level: Logging level of the gateway.
        preload: Modules that kernels have imported from their start.
        spare_kernel: Whether the gateway keeps a kernel ready for the next reset.
    """

    workspace: Path
    env: dict[str, str] = field(default_factory=dict[str, str])
    sandbox: SandboxSettings | None = None
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    default_memory: bool = False
    log_level: str = "WARNING"
    preload: Sequence[str] = ()
    spare_kernel: bool = True

    def start_message(self, proof: str) -> Start:
        """Returns the message that starts it.

        Args:
            proof: The name of the file by which the node recognizes a shared workspace.
        """
        return Start(
            workspace=str(self.workspace),
            proof=proof,
            env=self.env,
            sandbox=self.sandbox,
            limits=self.limits,
            default_memory=self.default_memory,
            log_level=self.log_level,
            preload=list(self.preload),
            spare_kernel=self.spare_kernel,
        )
