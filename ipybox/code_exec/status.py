"""What an executor does at the moment."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ExecutorStatus:
    """What an executor does at the moment.

    Attributes:
        busy: Whether code is being executed, also while a tool call waits for a decision.
        node: The name of the machine on which an engine runs, or last ran, the kernel; None without an engine.
        waits_for: What its start, or the replacement of a lost node, waits for, such as `the scheduler: job 17, PENDING
            (Resources)`; empty if it does not wait for a node.
    """

    busy: bool
    node: str | None
    waits_for: str
