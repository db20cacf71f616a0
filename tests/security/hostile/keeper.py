"""A stdio MCP server of the user: its tool `read` returns a file. Standard library only.

python keeper.py FILE ENVIRONMENT      it writes its environment to the second file when it starts
"""

import json
import os
import sys
from pathlib import Path
from typing import Any


def answer(method: str) -> dict[str, Any]:
    match method:
        case "initialize":
            info = {"name": "keeper", "version": "1"}
            return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": [{"name": "read", "inputSchema": {"type": "object", "properties": {}}}]}
        case _:
            return {"content": [{"type": "text", "text": Path(sys.argv[1]).read_text()}]}


Path(sys.argv[2]).write_text("".join(f"{name}={value}\n" for name, value in os.environ.items()))
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer(message["method"])}), flush=True)
