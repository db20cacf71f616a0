"""A scripted model on loopback for coding agents: APIs of OpenAI (Responses, Chat Completions) and Gemini, streamed."""

import json
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: A tool of the MCP server, and its arguments.
Call = tuple[str, Mapping[str, Any]]

DONE = "all done"

#: How a PNG begins in base64.
PNG = "iVBORw0K"


@dataclass
class Model:
    """Makes the next call of its script for each result of a tool, and says `DONE` at the end.

    Attributes:
        script: The calls.
        results: What the agent reported of each call in the last request.
        request: The last request with tools.
        saw_picture: Whether a request contained a PNG, not as text.
    """

    script: Sequence[Call]
    url: str = ""
    results: list[str] = field(default_factory=lambda: [])
    request: str = ""
    saw_picture: bool = False

    def answer(self, body: dict[str, Any]) -> tuple[dict[str, Any], Call | None]:
        """Returns the tool that the agent offers for the next call, with the call, if there is one."""
        entries: list[dict[str, Any]] = body.get("tools") or []
        offered = [tool for entry in entries for tool in _tools(entry)]
        found = [_text(item) for item in _items(body) if _is_result(item)]
        self.request = json.dumps(body) if offered else self.request
        if not offered or len(found) >= len(self.script):
            self.results = found or self.results
            self.saw_picture |= PNG in json.dumps(body) and not any(PNG in text for text in found)
            return {}, None
        call = self.script[len(found)]
        return next(tool for tool in offered if tool["name"].endswith(call[0])), call


def _tools(entry: dict[str, Any]) -> Generator[dict[str, Any]]:
    """Yields the tools of an entry: one, as an API of OpenAI names it, or those of a namespace, or all of Gemini's."""
    if "functionDeclarations" in entry:
        yield from ({"name": tool["name"]} for tool in entry["functionDeclarations"])
    elif entry.get("type") == "namespace":
        yield from ({"name": tool["name"], "namespace": entry["name"]} for tool in entry["tools"])
    elif "name" in (tool := entry.get("function", entry)):
        yield {"name": tool["name"]}


def _items(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the items of a conversation; for Gemini, the parts of its contents."""
    if "contents" in body:
        return [part for content in body["contents"] for part in content.get("parts", [])]
    return body.get("input") or body["messages"]


def _is_result(item: dict[str, Any]) -> bool:
    return "functionResponse" in item or item.get("role") == "tool" or item.get("type", "").endswith("_output")


def _text(item: dict[str, Any]) -> str:
    if "functionResponse" in item:
        return "\n".join(map(str, item["functionResponse"]["response"].values()))
    content: Any = item.get("output", item.get("content"))
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def _response(tool: dict[str, Any], call: Call | None, name: str) -> list[dict[str, Any]]:
    if call is None:
        text: dict[str, Any] = {"type": "output_text", "text": DONE, "annotations": []}
        item: dict[str, Any] = {"type": "message", "id": name, "role": "assistant", "content": [text]}
    else:
        item = {"type": "function_call", "id": name, "call_id": name, **tool, "arguments": json.dumps(call[1])}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    whole = {"id": name, "object": "response", "status": "completed", "output": [item], "usage": usage}
    return [
        {"type": "response.created", "response": {**whole, "status": "in_progress", "output": []}},
        {"type": "response.output_item.done", "output_index": 0, "item": {**item, "status": "completed"}},
        {"type": "response.completed", "response": whole},
    ]


def _completion(tool: dict[str, Any], call: Call | None, name: str) -> list[dict[str, Any]]:
    delta: dict[str, Any] = {"role": "assistant", "content": DONE}
    if call is not None:
        function = {**tool, "arguments": json.dumps(call[1])}
        delta = {
            "role": "assistant",
            "tool_calls": [{"index": 0, "id": name, "type": "function", "function": function}],
        }
    base = {"id": name, "object": "chat.completion.chunk", "created": 0, "model": "scripted"}
    end: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": "stop" if call is None else "tool_calls"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return [
        {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**base, "choices": [end], "usage": usage},
    ]


def _generated(tool: dict[str, Any], call: Call | None) -> dict[str, Any]:
    part = {"text": DONE} if call is None else {"functionCall": {**tool, "args": call[1]}}
    content = {"role": "model", "parts": [part]}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    return {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "usageMetadata": usage}


@contextmanager
def serving_model(script: Sequence[Call]) -> Generator[Model]:
    """Serves a model with this script."""
    model = Model(script)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object, **__: object) -> None:
            pass

        def do_GET(self) -> None:
            self._send("application/json", json.dumps({"object": "list", "data": [], "models": []}))

        def do_POST(self) -> None:
            tool, call = model.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            name = f"call-{id(call)}" if call is not None else "answer"
            if self.path.endswith("/responses"):
                events = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in _response(tool, call, name))
            elif ":streamGenerateContent" in self.path:
                events = f"data: {json.dumps(_generated(tool, call))}\n\n"
            else:
                events = (
                    "".join(f"data: {json.dumps(e)}\n\n" for e in _completion(tool, call, name)) + "data: [DONE]\n\n"
                )
            self._send("text/event-stream", events)

        def _send(self, kind: str, text: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(text.encode())

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        model.url = f"http://127.0.0.1:{server.server_port}/v1"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield model
        finally:
            server.shutdown()
            thread.join()
