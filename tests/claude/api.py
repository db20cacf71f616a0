"""A stand-in for the Messages API on loopback: what the model says is a script, what the client sends is recorded.

A script is a list of turns, one for each request that offers tools, as those of an agent do. A turn is a list of
blocks, or a function that gets the request and returns them, so that it can look at what the client has sent and
depend on it. A turn whose tool is not there yet comes again after the model has waited for the client's MCP servers.
Whatever goes wrong in a script (an assertion, a tool that the client doesn't offer, more or fewer
requests than turns) ends the conversation with a plain answer, so that the client never waits, and is raised when the
`with` block of the API ends.
"""

import json
import threading
import uuid
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Block = dict[str, Any]

#: What the client offers while MCP servers are still connecting, and its arguments: a tool that waits for them, or a
#: search, which waits, too, where tools are deferred. Both wait for some seconds; a busy machine needs more.
WAITS = {"WaitForMcpServers": {}, "ToolSearch": {"query": "ipybox"}}
MAX_WAITS = 12

#: What the model says in one turn: blocks, or what returns them given the request.
Turn = Sequence[Block] | Callable[["Request"], Sequence[Block]]


@dataclass(frozen=True)
class Result:
    """What a tool returned, as the model gets to see it."""

    text: str
    images: int
    is_error: bool


@dataclass(frozen=True)
class Request:
    """What the client sent in order to get a turn."""

    body: dict[str, Any]

    @property
    def tools(self) -> list[str]:
        """The names of the tools that are offered."""
        return [tool["name"] for tool in self.body["tools"]]

    @property
    def news(self) -> list[Block]:
        """The blocks that have come since the model's last turn."""
        blocks: list[Block] = []
        for message in self.body["messages"]:
            blocks = [] if message["role"] == "assistant" else [*blocks, *_blocks(message["content"])]
        return blocks

    @property
    def results(self) -> list[Result]:
        """What the tools returned that the model's last turn used, in the order of their uses."""
        results = {block["tool_use_id"]: _result(block) for block in self.news if block["type"] == "tool_result"}
        said = [message["content"] for message in self.body["messages"] if message["role"] == "assistant"][-1]
        return [results[block["id"]] for block in said if block["type"] == "tool_use"]

    @property
    def text(self) -> str:
        """All that the client says beside the results of tools: instructions, the prompt, notices."""
        blocks = [block for message in self.body["messages"] for block in _blocks(message["content"])]
        return _text([*_blocks(self.body.get("system", [])), *blocks])

    @property
    def result(self) -> str:
        """The text of the only result, of a tool that succeeded."""
        (result,) = self.results
        assert not result.is_error, f"the tool failed: {result.text}"
        return result.text


def text(said: str) -> Block:
    """A block of text. A turn without a use of a tool is the last one."""
    return {"type": "text", "text": said}


def tool(name: str, /, **arguments: Any) -> Block:
    """A use of the offered tool whose name is `name` or ends with it after two underscores."""
    return {"type": "tool_use", "id": f"toolu_{uuid.uuid4().hex[:20]}", "name": name, "input": arguments}


@dataclass
class API:
    """A running stand-in: where it is, and what it was asked."""

    url: str
    script: Sequence[Turn]
    requests: list[Request] = field(default_factory=list[Request])
    failure: BaseException | None = None
    waits: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, body: dict[str, Any]) -> list[Block]:
        """Returns what the model says to this request."""
        if not body.get("tools"):  # a title, a summary
            return [text("{}")]
        with self.lock:
            request = Request(body)
            self.requests.append(request)
            try:
                return self._turn(len(self.requests) - 1, request)
            # What the script raises belongs to the test, which runs on another thread.
            except BaseException as exc:
                self.failure = self.failure or exc
                return [text(f"The script failed: {exc}")]

    def check(self) -> None:
        """Raises what went wrong in the script, or that not all of it was used."""
        if self.failure is not None:
            raise self.failure
        asked, turns = len(self.requests), len(self.script)
        assert asked == turns, f"the client asked for {asked} of the {turns} turns; it sent last: {self._last()}"

    def _turn(self, index: int, request: Request) -> list[Block]:
        assert self.failure is None, "the conversation went on after the script had failed"
        assert index < len(self.script), f"the client asks for more than the script has; it sends: {self._last()}"
        turn = self.script[index]
        blocks = turn(request) if callable(turn) else turn
        missing = any(block["type"] == "tool_use" and not _offered(block["name"], request) for block in blocks)
        waiting = next((name for name in WAITS if name in request.tools), None)
        if missing and waiting is not None and self.waits < MAX_WAITS:
            self.waits += 1
            self.requests.pop()
            blocks = [tool(waiting, **WAITS[waiting])]
        return [_resolved(block, request) for block in blocks]

    def _last(self) -> str:
        return repr(self.requests[-1].news)[:2000] if self.requests else "nothing"


@contextmanager
def serve(script: Sequence[Turn]) -> Generator[API]:
    """Runs a stand-in with this script, which is checked in the end."""

    with _Server(script) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="messages-api")
        thread.start()
        try:
            yield server.api
        finally:
            server.shutdown()
            thread.join()
    server.api.check()


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that closing waits for them

    def __init__(self, script: Sequence[Turn]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.api = API(f"http://127.0.0.1:{self.server_port}", script)


class _Handler(BaseHTTPRequestHandler):
    """Answers one request per connection, so that no thread waits for a client's next one."""

    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride] the only one that makes handlers
    timeout = 10  # seconds that a client may take to send its request

    def do_HEAD(self) -> None:
        self._send("application/json", b"")

    def do_GET(self) -> None:
        self._send("application/json", b'{"data": [], "has_more": false, "first_id": null, "last_id": null}')

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])) or b"{}")
        path = self.path.partition("?")[0]
        if path == "/v1/messages/count_tokens":
            self._send("application/json", b'{"input_tokens": 1}')
        elif path != "/v1/messages":
            self._send("application/json", b"{}")
        else:
            message = _message(self.server.api.answer(body), body["model"])
            if body.get("stream"):
                self._send("text/event-stream", _events(message))
            else:
                self._send("application/json", json.dumps(message).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 the base class calls it so
        """Says nothing: requests are recorded."""

    def _send(self, content_type: str, content: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _message(content: list[Block], model: str) -> dict[str, Any]:
    uses_tools = any(block["type"] == "tool_use" for block in content)
    return {
        "id": f"msg_{uuid.uuid4().hex[:20]}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": "tool_use" if uses_tools else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def _events(message: dict[str, Any]) -> bytes:
    """Returns the message as the events of a stream."""
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    ]
    for index, block in enumerate(message["content"]):
        if block["type"] == "text":
            start: Block = {**block, "text": ""}
            delta = {"type": "text_delta", "text": block["text"]}
        else:
            start: Block = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        events += [
            {"type": "content_block_start", "index": index, "content_block": start},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    stop = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    events += [
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()


def _resolved(block: Block, request: Request) -> Block:
    """Returns the block with the full name of the tool that it uses."""
    if block["type"] != "tool_use":
        return block
    suffix: str = block["name"]
    names = _offered(suffix, request)
    assert len(names) == 1, f"one tool {suffix} is expected among those offered: {request.tools}"
    return {**block, "name": names[0]}


def _offered(suffix: str, request: Request) -> list[str]:
    return [name for name in request.tools if name == suffix or name.endswith(f"__{suffix}")]


def _result(block: Block) -> Result:
    content = _blocks(block.get("content", []))
    images = sum(part["type"] == "image" for part in content)
    return Result(_text(content), images, bool(block.get("is_error")))


def _blocks(content: str | list[Block]) -> list[Block]:
    return [text(content)] if isinstance(content, str) else content


def _text(blocks: list[Block]) -> str:
    return "\n".join(block["text"] for block in blocks if block["type"] == "text")
