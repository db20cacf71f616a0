"""Events of sessions, as metrics receive them, and those of jobs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

#: The job waits in a queue; its node runs a kernel gateway, or failed to; the node is lost; the job is not needed.
JobAction = Literal["queued", "started", "failed", "lost", "ended"]


@dataclass(frozen=True, kw_only=True)
class JobEvent:
    """Something that happened to a job.

    Attributes:
        action: What happened.
        engine: The engine, as messages call it.
        job: The job's number; None if unknown, as always without a scheduler.
        node: The node's name; None before the job has a node.
        reason: Why the job waits, failed or was lost.
        waited: Seconds from the start of the command until its node ran or failed; None for other actions.
    """

    action: JobAction
    engine: str
    job: str | None = None
    node: str | None = None
    reason: str | None = None
    waited: float | None = None


#: Receives the name and the fields of each event of a session, as the audit log does. It must not block or raise.
SessionObserver = Callable[[str, Mapping[str, Any]], None]
