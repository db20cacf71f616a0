"""A stdio MCP server with one fault, which each call of its tool `call` shows. Standard library only.

python faulty_server.py FAULT STATE    where STATE is a file with which the server knows what it did before
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

FAULT, STATE = sys.argv[1], Path(sys.argv[2])


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def result(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def tools() -> list[dict[str, Any]]:
    names = ["call", "echo"] if FAULT != "changes_its_tools" or not STATE.exists() else ["echo"]
    return [{"name": name, "inputSchema": {"type": "object"}} for name in names]


def call(id_: Any) -> None:
    match FAULT:
        case "hangs":
            STATE.touch()
            time.sleep(1000)
        case "floods_stderr":
            for _ in range(200):
                sys.stderr.write("x" * 100_000)
            sys.stderr.flush()
            send({"id": id_, "result": result("called")})
        case "prints_banners":
            print('=== A server! ===\n{"jsonrpc": "2.0"', flush=True)
            send({"id": id_, "result": result("called")})
        case "prints_garbage":
            os.write(1, bytes(range(256)) * 1000 + b"\n[[[[\n{}\nnull\n")
            send({"id": id_, "result": result("called")})
        case "answers_twice":
            send({"id": id_, "result": result("called")})
            send({"id": id_, "result": result("called again")})
            send({"id": id_, "error": {"code": -32603, "message": "no, it failed"}})
        case "answers_late":
            STATE.touch()
            while STATE.exists():
                time.sleep(0.01)
            send({"id": id_, "result": result("late")})
        case "answers_with_a_wrong_id":
            send({"id": f"not {id_}", "result": result("wrong")})
            send({"id": 10**9, "result": result("wrong")})
            send({"id": None, "error": {"code": -32603, "message": "wrong"}})
            send({"id": id_, "result": result("called")})
        case "changes_its_tools":
            STATE.touch()
            send({"method": "notifications/tools/list_changed"})
            send({"id": id_, "result": result("called")})
        case "exits" if not STATE.exists():
            STATE.touch()
            sys.exit("gone fishing")
        case "closes_stdout" if not STATE.exists():
            STATE.touch()
            os.close(1)
            time.sleep(1000)
        case "answers_in_part" if not STATE.exists():
            STATE.touch()
            os.write(1, b'{"jsonrpc": "2.0", "id": ')
            os._exit(0)
        case "answers_a_malformed_result":
            send({"id": id_, "result": {"content": "not a list"}})
        case _:
            send({"id": id_, "result": result("called")})


def answer(message: dict[str, Any]) -> None:
    id_ = message.get("id")
    match message["method"]:
        case "initialize":
            server = {"name": "faulty", "version": "1"}
            capabilities = {"tools": {"listChanged": True}}
            send(
                {
                    "id": id_,
                    "result": {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": server},
                }
            )
        case "tools/list":
            send({"id": id_, "result": {"tools": tools()}})
        case "tools/call" if message["params"]["name"] == "echo":
            send({"id": id_, "result": result(message["params"]["arguments"]["text"])})
        case "tools/call" if FAULT == "changes_its_tools" and STATE.exists():
            send({"id": id_, "error": {"code": -32602, "message": "Unknown tool: call"}})
        case "tools/call":
            call(id_)
        case _:
            if id_ is not None:
                send({"id": id_, "error": {"code": -32601, "message": "Method not found"}})


for line in sys.stdin:
    answer(json.loads(line))
