"""A stdio MCP server that lists its tools in pages of two. Standard library only.

python -S paged_server.py PAGES | endless | repeating
"""

import json
import sys
from typing import Any

PAGES = sys.argv[1]
SCHEMA: dict[str, Any] = {"type": "object"}
RESULT_SCHEMA: dict[str, Any] = {**SCHEMA, "properties": {"page": {"type": "integer"}}, "required": ["page"]}
INITIALIZED: dict[str, Any] = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "paged", "version": "1"},
}


def listed(page: int) -> dict[str, Any]:
    print("tools/list", page, file=sys.stderr, flush=True)
    tools = [{"name": f"tool_{page}_{i}", "inputSchema": SCHEMA, "outputSchema": RESULT_SCHEMA} for i in (1, 2)]
    if str(page) == PAGES:
        return {"tools": tools}
    return {"tools": tools, "nextCursor": "1" if PAGES == "repeating" else str(page + 1)}


def called(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    page = "not a number" if arguments.get("wrong") else int(name.split("_")[1])
    return {"content": [], "structuredContent": {"page": page}}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            return {"result": INITIALIZED}
        case "tools/list":
            return {"result": listed(int(params.get("cursor") or 1))}
        case "tools/call":
            return {"result": called(params["name"], params.get("arguments") or {})}
        case _:
            return {"error": {"code": -32601, "message": "Method not found"}}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        answered = answer(request["method"], request.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answered}), flush=True)
