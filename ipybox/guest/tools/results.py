"""What code gets from a reply of the tool server: a value, or an error with what the tool returned."""

import json
from typing import Any, cast

from ipybox.guest.tools.content import render, show_beside_structured
from ipybox.guest.tools.protocol import RunReply
from ipybox.support.errors import ToolRunnerError


def checked(reply: Any, tool_name: str) -> Any:
    """Returns a reply; raises a ToolRunnerError if it is an error."""
    if "error" in reply:
        beside = render(reply.get("content", []), tool_name, show=False)
        raise failure("\n".join(filter(None, (reply["error"], beside))), reply.get("structured"))
    return reply


def value_in(reply: RunReply, tool_name: str) -> dict[str, Any] | str | None:
    """Returns the structured content of a result, or else its text, or None if it is empty."""
    if reply.get("structured") is not None:
        return structured_in(reply, tool_name)
    return render(reply.get("content", []), tool_name)


def text_in(reply: RunReply, tool_name: str) -> str:
    """Returns the text of a result."""
    content = reply.get("content", [])
    structured = reply.get("structured")
    if structured is not None and not any(block.get("type") == "text" for block in content):
        # Servers only "SHOULD" repeat it as text.
        content = [{"type": "text", "text": json.dumps(structured, ensure_ascii=False)}, *content]
    return render(content, tool_name) or ""


def structured_in(reply: RunReply, tool_name: str) -> dict[str, Any]:
    """Returns the structured content of a result; raises a ToolRunnerError if there is none."""
    content = reply.get("content", [])
    structured = reply.get("structured")
    if structured is None:
        structured = _object_in_text(content)
    if structured is None:
        text = render(content, tool_name, show=False)
        problem = "the tool has an output schema, but returned no structured content; its text"
        raise failure(f"{problem}: {text}", text)
    show_beside_structured(content, tool_name)
    return structured


def _object_in_text(content: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Returns the object in a result's only text: servers repeat it there, and some send it only there."""
    texts = [block.get("text") for block in content if block.get("type") == "text"]
    try:
        value: object = json.loads(str(texts[0])) if len(texts) == 1 else None
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def failure(message: str, data: Any) -> ToolRunnerError:
    """Returns the error for a tool that has run, with what it returned."""
    error = ToolRunnerError(message)
    error.data = data
    return error
