"""The MCP tool result of a call that failed."""

from mcp_types import CallToolResult, TextContent

from ipybox.support.printable import printable


def failure_text(failure: Exception) -> str:
    """Returns the message of an exception, or its type if it has no message."""
    text = str(failure)
    return text if text.strip() else type(failure).__name__


def failure_result(failure: Exception) -> CallToolResult:
    """Returns the tool result of a call that failed."""
    text = printable(failure_text(failure), lines=True)
    return CallToolResult(content=[TextContent(text=text)], is_error=True)
