"""What a `SessionRecorder` reports to metrics: outcomes, durations, and events of jobs, without texts of users."""

from dataclasses import dataclass
from typing import Literal, Protocol

from ipybox.audit.records import Outcome

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


class SessionObserver(Protocol):
    """Receives what the sessions of an application do. No method may block or raise."""

    def session(self, action: str) -> None:
        """Notes an action on a session, such as `restart`, as in the audit log."""

    def job(self, event: "JobEvent") -> None:
        """Notes an event of an engine's job."""

    def cell(self, outcome: Outcome, seconds: float) -> None:
        """Notes the end of a cell."""

    def tool_call(self, outcome: Outcome, seconds: float) -> None:
        """Notes the end of a tool call."""

    def decision(self, by: str, seconds: float, *, accepted: bool) -> None:
        """Notes a decision on a tool call, and how long it took."""

    def denial(self, by: str) -> None:
        """Notes a denial without an approval request."""
