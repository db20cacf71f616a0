"""The MCP tool result of a call that failed."""

from mcp_types import CallToolResult, TextContent

from ipybox.support.printable import printable


def failure_text(failure: Exception) -> str:
    """Returns the message of an exception as printable text, or its type if it has no message."""
    text = printable(str(failure), lines=True)
    return text if text.strip() else type(failure).__name__


def failure_result(failure: Exception) -> CallToolResult:
    """Returns the tool result of a call that failed."""
    return CallToolResult(content=[TextContent(text=failure_text(failure))], is_error=True)
