"""A stdio MCP server that writes Python sets into its schemas: their order differs with PYTHONHASHSEED.

python set_server.py
"""

from typing import Annotated, Any

from mcp.server.mcpserver import MCPServer
from pydantic import Field, WithJsonSchema

STATES = {"open", "closed", "merged", "draft", "locked"}
FIELDS = {"summary", "status", "assignee", "reporter", "labels", "priority", "created", "updated", "issuetype"}
NAMES = {"text", "fields", "states", "deep"}

server = MCPServer("sets")

State = Annotated[str, WithJsonSchema({"enum": list(STATES)})]
Kind = Annotated[Any, WithJsonSchema({"type": list({"string", "integer", "boolean", "null"})})]
Some = Annotated[Any, WithJsonSchema({"anyOf": [{"type": each} for each in {"string", "integer", "object"}]})]
Deep = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {
            "type": "object",
            "properties": {
                **{name: {"type": "string", "default": ", ".join(FIELDS)} for name in NAMES},
                "columns": {"type": "array", "uniqueItems": True, "default": list(FIELDS)},
            },
            "required": list(NAMES),
        }
    ),
]


@server.tool()
def search(
    text: Kind,
    some: Some,
    deep: Deep,
    fields: Annotated[str, Field(description="Comma-separated fields.")] = ",".join(FIELDS),
    states: set[State] | None = None,
) -> str:
    """Searches."""
    return f"{text} {some} {deep} {fields} {states}"


server.run()
