""""""

import pytest
from mcp_types import CallToolResult, TextContent

from ipybox.errors import MCPServerError
from ipybox.mcp_server.results.failure import failure_result


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (ValueError("no such tool"), "no such tool"),
        (OSError("\x1b"), "\\u001b"),
        (ValueError(), "ValueError"),
        (MCPServerError(" \n"), "MCPServerError"),
    ],
)
def test_result_has_the_message_or_else_the_type_of_a_failure(failure: Exception, text: str):
    assert failure_result(failure) == CallToolResult(content=[TextContent(text=text)], is_error=True)
