"""Our server with the tools that the conformance suite expects beside its own: `--workspace DIR`, else as ipybox.

The suite can test much of the protocol by tools of certain names alone. Here they go through ipybox's transport and all
that it does with requests and answers.
"""

import asyncio
import base64
import json
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

from mcp.server import mcpserver
from mcp.server.context import CallNext, ServerRequestContext
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp_types import (
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    SamplingMessage,
    TextContent,
    TextResourceContents,
)

from ipybox.code_exec.config import ExecutorConfig
from ipybox.mcp_server.http import HTTPServerInfo
from ipybox.mcp_server.outputs import OutputResourceServer
from ipybox.mcp_server.server import MCPServer

Context = mcpserver.Context[Any, Any]

IMAGE = ImageContent(data=base64.b64encode(b"\x89PNG").decode(), mime_type="image/png")
RESOURCE = EmbeddedResource(
    resource=TextResourceContents(uri="test://embedded-resource", mime_type="text/plain", text="embedded")
)
SCHEMA_TOOL = "json_schema_2020_12_tool"
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}
DEFAULTS = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
TITLED = [{"const": f"value{number}", "title": f"Option {number}"} for number in (1, 2, 3)]
OPTIONS = ["option1", "option2", "option3"]
ENUMS = {
    "untitledSingle": {"type": "string", "enum": OPTIONS},
    "titledSingle": {"type": "string", "oneOf": TITLED},
    "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
    "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
}


class FixtureServer(MCPServer):
    """Our server with more tools."""

    async def _load(self) -> OutputResourceServer:
        server = await super()._load()
        for tool in (
            test_simple_text,
            test_image_content,
            test_audio_content,
            test_embedded_resource,
            test_multiple_content_types,
            test_error_handling,
            test_tool_with_progress,
            test_sampling,
            test_elicitation,
            test_elicitation_sep1034_defaults,
            test_elicitation_sep1330_enums,
        ):
            server.tool(description=tool.__name__, structured_output=False)(tool)
        server.middleware.append(add_schema_tool)
        return server


async def add_schema_tool(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> Any:
    """Lists a tool whose schema can't come from a signature."""
    answer: Any = await call_next(ctx)
    if ctx.method == "tools/list":
        answer["tools"].append({"name": SCHEMA_TOOL, "description": SCHEMA_TOOL, "inputSchema": SCHEMA})
    return answer


async def test_simple_text() -> str:
    return "This is a simple text response for testing."


async def test_image_content() -> CallToolResult:
    return CallToolResult(content=[IMAGE])


async def test_audio_content() -> CallToolResult:
    return CallToolResult(content=[AudioContent(data=base64.b64encode(b"RIFF").decode(), mime_type="audio/wav")])


async def test_embedded_resource() -> CallToolResult:
    return CallToolResult(content=[RESOURCE])


async def test_multiple_content_types() -> CallToolResult:
    return CallToolResult(content=[TextContent(text="Multiple content types test:"), IMAGE, RESOURCE])


async def test_error_handling() -> str:
    raise ToolError("This tool intentionally returns an error for testing")


async def test_tool_with_progress(context: Context) -> str:
    for progress in (0, 50, 100):
        await context.report_progress(progress, 100, f"{progress} of 100")
    return "done"


async def test_sampling(prompt: str, context: Context) -> str:
    message = SamplingMessage(role="user", content=TextContent(text=prompt))
    session: Any = context.session  # its method is deprecated, as sampling is
    result = await session.create_message([message], max_tokens=100, related_request_id=context.request_id)
    return f"LLM response: {result.content}"


async def test_elicitation(message: str, context: Context) -> str:
    return await _elicit(message, {"username": {"type": "string"}, "email": {"type": "string"}}, context)


async def test_elicitation_sep1034_defaults(context: Context) -> str:
    return await _elicit("Check the defaults", DEFAULTS, context)


async def test_elicitation_sep1330_enums(context: Context) -> str:
    return await _elicit("Choose", ENUMS, context)


async def _elicit(message: str, properties: dict[str, Any], context: Context) -> str:
    schema = {"type": "object", "properties": properties}
    result = await context.session.elicit_form(message, schema, context.request_id)
    return f"Elicitation completed: action={result.action}, content={json.dumps(result.content)}"


def tell(listening: HTTPServerInfo) -> None:
    print(f"ipybox: serving on {listening.url}; the token is in {listening.token_file}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    logging.disable()
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    asyncio.run(FixtureServer(ExecutorConfig(working_dir=Path(sys.argv[2]))).run_http(port=0, on_listening=tell))
