"""Describes a source of tool calls for the tool server, which adds its connections (`dispatch.ConnectedCaller`)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipybox.audit.recorder import SessionRecorder
    from ipybox.tool_exec.approval.approvals import Approvals


@dataclass(frozen=True, kw_only=True)
class ToolCaller:
    """A source of tool calls: the kernel of an executor.

    Attributes:
        token: The token that its requests carry.
        approvals: Decides on its calls.
        recorder: Records the calls.
        on_text: Called with each text that a tool returns.
    """

    token: str
    approvals: "Approvals"
    recorder: "SessionRecorder"
    on_text: Callable[[str], None] | None = None
