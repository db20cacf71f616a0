"""The types of session and job events that metrics receive."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

#: The job is queued; its node runs a kernel gateway, or failed to; the node was lost; the job is no longer needed.
JobAction = Literal["queued", "started", "failed", "lost", "ended"]

#: Receives the name and fields of each session event, as the audit log does. Must not block or raise.
SessionObserver = Callable[[str, Mapping[str, Any]], None]
