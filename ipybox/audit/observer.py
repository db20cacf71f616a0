"""What a `SessionRecorder` reports to metrics: outcomes and durations, without names and texts of users."""

from typing import TYPE_CHECKING, Protocol

from ipybox.audit.records import Outcome

if TYPE_CHECKING:
    from ipybox.audit.job import JobEvent


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
