"""Events of sessions, as metrics receive them, and those of jobs."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

#: The job waits in a queue; its node runs a kernel gateway, or failed to; the node is lost; the job is not needed.
JobAction = Literal["queued", "started", "failed", "lost", "ended"]

#: Receives the name and the fields of each event of a session, as the audit log does. It must not block or raise.
SessionObserver = Callable[[str, Mapping[str, Any]], None]
