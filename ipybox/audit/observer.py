"""Events of sessions, as metrics receive them, and those of jobs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

#: What happened: the job waits in a queue; its node runs a kernel gateway, or failed to; the node is lost; the job has
#: ended, because it is not needed any more.
JobAction = Literal["queued", "started", "failed", "lost", "ended"]


@dataclass(frozen=True, kw_only=True)
class JobEvent:
    """Something that happened to a job.

    Attributes:
        action: What happened.
        engine: The engine, as messages call it.
        job: The number of the job; None if it is not known. Without a scheduler, it never is.
        node: The name of the node; None before the job has a node.
        reason: Why the job waits, failed or was lost.
        waited: Seconds from the start of the command until its node ran, or failed; None for other actions.
    """

    action: JobAction
    engine: str
    job: str | None = None
    node: str | None = None
    reason: str | None = None
    waited: float | None = None


#: Receives the events of an application's sessions as they are in the audit log, even without one: the name of an
#: event, and its fields. It may neither block nor raise.
SessionObserver = Callable[[str, Mapping[str, Any]], None]
