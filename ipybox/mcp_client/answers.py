"""Has a session repair answers in which single parts don't follow MCP, before the SDK refuses them as a whole."""

from collections.abc import Callable
from typing import Any

from mcp import ClientSession

from ipybox.mcp_client.tool_list import repaired_page
from ipybox.mcp_client.tool_result import repaired_result


def repair_answers(session: ClientSession, on_remark: Callable[[str], None]) -> None:
    """Repairs lists of tools and results of calls that a session, once it is initialized, receives.

    Args:
        session: The session.
        on_remark: Called with what is missing in a list.
    """
    # The SDK has no hook of its own between the wire and its validation.
    dispatcher: Any = session._dispatcher  # pyright: ignore[reportPrivateUsage]
    send = dispatcher.send_raw_request

    async def send_raw_request(method: str, *args: Any, **options: Any) -> dict[str, Any]:
        answer = await send(method, *args, **options)
        version = str(session.protocol_version)
        if method == "tools/call":
            return repaired_result(answer, version)
        if method == "tools/list":
            answer, remarks = repaired_page(answer, version)
            for remark in remarks:
                on_remark(remark)
        return answer

    dispatcher.send_raw_request = send_raw_request
