"""Notices for an agent, and events of the audit log, about people who are connected to its kernel."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipybox.audit.recorder import SessionRecorder

CAME = "A person is connected to this kernel: variables may change between cells."
LEFT = "The person who was connected to this kernel has left: variables may have changed."


class Presence:
    """Tells an agent once that a person has come, and once that no person is there anymore.

    Args:
        notices: The notices of the session, which its next result has.
        recorder: Records what the session does.
    """

    def __init__(self, notices: list[str], recorder: "SessionRecorder"):
        self._notices = notices
        self._recorder = recorder
        self._relays = 0

    def note(self, present: bool) -> None:
        """Notes that the first client of a relay has come, or its last one has gone."""
        self._relays += 1 if present else -1
        if present and self._relays == 1:
            self._tell(CAME, "attach")
        elif self._relays == 0:
            self._tell(LEFT, "detach")

    def _tell(self, notice: str, action: str) -> None:
        self._recorder.session(action)
        # An agent that has not read yet that someone came needs one notice, the last.
        for outdated in (CAME, LEFT):
            if outdated in self._notices:
                self._notices.remove(outdated)
        self._notices.append(notice)
