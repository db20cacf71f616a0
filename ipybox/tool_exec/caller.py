"""A source of tool calls, with all that decides on them, performs and records them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipybox.audit.recorder import SessionRecorder
    from ipybox.tool_exec.approval.approvals import Approvals
    from ipybox.tool_exec.approval.server import ApprovalChannel
    from ipybox.tool_exec.functions.function_tools import FunctionTools
    from ipybox.tool_exec.server_connections import ServerConnections


@dataclass(frozen=True, kw_only=True)
class ToolCaller:
    """A source of tool calls: the kernel of an executor, or the application.

    Attributes:
        token: The token that its requests carry.
        approvals: Decides on its calls.
        recorder: Records the calls.
        on_text: Called with each text that a tool returns; None if nothing looks at them.
        connections: The connections to its MCP servers, which the tool server adds.
        functions: The functions of the application, if it has any; the tool server adds them.
    """

    token: str
    approvals: "Approvals | ApprovalChannel"
    recorder: "SessionRecorder"
    on_text: Callable[[str], None] | None = None
    connections: "ServerConnections | None" = None
    functions: "FunctionTools | None" = None
