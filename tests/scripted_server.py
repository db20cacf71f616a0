"""A stdio MCP server that starts at once and misbehaves on demand. Standard library only.

    python scripted_server.py [--log FILE] [--tools FILE] [--strict | --modern] [--stubborn] [--noisy] [--daemon]

--tools lists those of a JSON file, --strict exits if anything precedes `initialize`, --modern refuses `initialize`.
"""

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

FLAGS = sys.argv[1:]
TOOLS = [
    "echo",
    "record",
    "pid",
    "env",
    "refuse",
    "fail",
    "block",
    "hold",
    "crash",
    "last_words",
    "chatter",
    "many_blocks",
    "big",
    "ask",
]

# What results of 2026-07-28 must have; earlier clients ignore it.
HINTS = {"resultType": "complete", "ttlMs": 0, "cacheScope": "public"}


def log(text: str) -> None:
    if "--log" in FLAGS:
        with open(FLAGS[FLAGS.index("--log") + 1], "a") as file:
            file.write(text + "\n")


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(value: str, *, is_error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}], "isError": is_error, "resultType": "complete"}


def call(id_: Any, name: str, args: dict[str, Any]) -> None:
    match name:
        case "echo":
            if args.get("announces"):
                send({"method": "notifications/tools/list_changed"})
            send({"id": id_, "result": text(args["text"])})
        case "record":
            log(f"call {args['text']}")
            if args.get("dies"):
                os._exit(1)
            send({"id": id_, "result": text(args["text"])})
        case "pid":
            send({"id": id_, "result": text(str(os.getpid()))})
        case "env":
            send({"id": id_, "result": text(json.dumps(dict(os.environ)))})
        case "refuse":
            # The same code as the SDK's CONNECTION_CLOSED.
            send({"id": id_, "error": {"code": -32000, "message": "no such repository"}})
        case "fail":
            send({"id": id_, "result": text(args["text"], is_error=True)})
        case "block":
            log("block")
        case "hold":
            open(args["begun"], "x").close()
            # A test that is over has removed both.
            while os.path.exists(args["begun"]) and not os.path.exists(args["until"]):
                time.sleep(0.01)
            send({"id": id_, "result": text("held")})
        case "crash":
            print("about to crash", file=sys.stderr, flush=True)
            os._exit(args["code"])
        case "last_words":
            send({"id": id_, "error": {"code": -32603, "message": "these are my last words"}})
            os._exit(0)
        case "chatter":
            for number in range(200_000):
                print(f"line {number}", file=sys.stderr)
            sys.stderr.flush()
            send({"id": id_, "result": text("done")})
        case "many_blocks":
            image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
            content = [*text("one")["content"], image, *text("two")["content"]]
            send({"id": id_, "result": {"content": content if args.get("text") else [image]}})
        case "big":
            numbers = {"numbers": [0] * args.get("values", 0)}
            send({"id": id_, "result": {**text("x" * args.get("size", 0)), "structuredContent": numbers}})
        case "ask":
            params: dict[str, Any] = {"message": "x" * args.get("size", 0), "requestedSchema": {}}
            for number in range(args["count"]):  # reads no reply before the last request
                send({"id": f"ask-{number}", "method": "elicitation/create", "params": params})
            send({"id": id_, "result": text("asked")})
        case _:
            send({"id": id_, "error": {"code": -32602, "message": f"Unknown tool: {name}"}})


def answer(message: dict[str, Any]) -> None:
    id_ = message.get("id")
    match message.get("method"):
        case None:
            pass  # a reply
        case "initialize" if "--modern" in FLAGS:
            data = {"supported": ["2026-07-28"], "requested": message["params"]["protocolVersion"]}
            send({"id": id_, "error": {"code": -32022, "message": "Unsupported protocol version", "data": data}})
        case "server/discover" if "--modern" in FLAGS:
            capabilities: dict[str, Any] = {"tools": {}}
            send(
                {
                    "id": id_,
                    "result": {"supportedVersions": ["2026-07-28"], "capabilities": capabilities, **HINTS},
                }
            )
        case "initialize":
            send(
                {
                    "id": id_,
                    "result": {
                        "protocolVersion": "2025-06-18",
                        "capabilities": {"tools": {}},
                        "serverInfo": {"name": "scripted", "version": "1"},
                    },
                }
            )
        case "tools/list":
            send({"id": id_, "result": {"tools": listed(), **HINTS}})
        case "tools/call":
            call(id_, message["params"]["name"], message["params"].get("arguments") or {})
        case "notifications/cancelled":
            log("cancelled")
        case method:
            if "--strict" in FLAGS and method == "server/discover":
                sys.exit("ExpectedInitializeRequest")
            if id_ is not None:
                send({"id": id_, "error": {"code": -32601, "message": "Method not found"}})


def listed() -> Any:
    if "--tools" in FLAGS:
        with open(FLAGS[FLAGS.index("--tools") + 1]) as file:
            return json.load(file)
    return [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]


def main() -> None:
    log(f"start {os.getpid()}")
    if "--stubborn" in FLAGS:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    if "--daemon" in FLAGS:
        # A grandchild in a session of its own, whose parent is gone.
        subprocess.run(["sh", "-c", "setsid sleep 1000 & echo $! >&2"], stdout=subprocess.DEVNULL, check=True)
        # ... and one that holds on to the pipes.
        child = subprocess.Popen(["sleep", "1000"])
        log(f"start {child.pid}")
    if "--noisy" in FLAGS:
        print("Welcome!", flush=True)
        sys.stdout.buffer.write(b"\xff\xfe\n")
    for line in sys.stdin:
        answer(json.loads(line))
    while "--stubborn" in FLAGS:
        time.sleep(60)


main()
