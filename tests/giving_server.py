"""A stdio MCP server whose tools return what they are told to. Standard library only.

    python giving_server.py

`give` returns its argument `result` as it is; so do `give_structured` and `give_table`, which have an output schema,
`give_list`, whose schema is one of lists, and `give_hostile`, with whose output schema a result of the right types
can't be compared in a lifetime.
"""

import json
import sys
from typing import Any

SCHEMA = {"type": "object", "properties": {"result": {"type": "object"}}, "required": ["result"]}
TOOLS: list[dict[str, Any]] = [
    {"name": "give", "inputSchema": SCHEMA},
    {
        "name": "give_structured",
        "inputSchema": SCHEMA,
        "outputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    },
    {
        "name": "give_table",
        "inputSchema": SCHEMA,
        "outputSchema": {
            "type": "object",
            "properties": {
                "rows": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"state": {"enum": ["on", "off"]}}},
                },
                "mean": {"type": "number"},
                "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
            },
        },
    },
    {"name": "give_list", "inputSchema": SCHEMA, "outputSchema": {"type": "array"}},
    {
        "name": "give_hostile",
        "inputSchema": SCHEMA,
        "outputSchema": {
            "type": "object",
            "properties": {
                "text": {"type": "string", "pattern": "^(a+)+$"},
                "items": {"type": "array", "uniqueItems": True},
                "remote": {"$ref": "http://127.0.0.1:9/schema.json"},
                "endless": {"$ref": "#/properties/endless"},
            },
        },
    },
]


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            return {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "giving", "version": "1"},
            }
        case "tools/list":
            return {"tools": TOOLS}
        case _:
            text = json.dumps(params["arguments"]["result"])
            for number in ("NaN", "-Infinity", "Infinity"):  # no arguments, but what servers in Python send
                text = text.replace(f'"{number}"', number)
            return json.loads(text)


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answer(message["method"], message.get("params", {}))
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
