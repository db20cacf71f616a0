"""What honest clients say to ipybox, in both eras of the protocol, and what may be said with harmless results."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from tests.mcp_fuzz.values import TEXTS

Era = Literal["2025-11-25", "2026-07-28"]

#: What each request of the later era carries.
ENVELOPE: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    "io.modelcontextprotocol/clientInfo": {"name": "fuzzer", "version": "1"},
}

INITIALIZE: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"elicitation": {}},
    "clientInfo": {"name": "fuzzer", "version": "1"},
}

#: A name that no output has.
OUTPUT = "0123456789a"

_CALLS: list[dict[str, Any]] = [
    {"name": "execute_ipython_cell", "arguments": {"code": "1", "timeout": 5, "max_output_chars": 10}},
    {"name": "execute_ipython_cell", "arguments": {"code": "2", "session": "other"}},
    {"name": "register_mcp_server", "arguments": {"server_name": "none", "server_params": {"command": "/no/such"}}},
    {
        "name": "register_mcp_server",
        "arguments": {"server_name": "none", "server_params": {"url": "${FUZZ_SECRET}", "headers": {"a": "b"}}},
    },
    {
        "name": "register_mcp_server",
        "arguments": {
            "server_name": "none",
            "server_params": {"command": "${FUZZ_SECRET}", "args": ["${FUZZ_SECRET}"]},
        },
    },
    {
        "name": "register_mcp_server",
        "arguments": {"server_name": "none", "server_params": {"command": "/no/such", "cwd": "${FUZZ_SECRET}"}},
    },
    {
        "name": "register_mcp_server",
        "arguments": {
            "server_name": "none",
            "server_params": {
                "url": "http://127.0.0.1:9/mcp?a=${FUZZ_SECRET}",
                "headers": {"a": "${FUZZ_SECRET}\n"},
            },
        },
    },
    {"name": "install_package", "arguments": {"package_name": "--version"}},
    {"name": "reset", "arguments": {"session": "other"}},
    {"name": "upload_file", "arguments": {"path": "files/a.txt", "content": "YQ==", "encoding": "base64"}},
    {"name": "download_file", "arguments": {"path": "files/a.txt"}},
]

_OPENING: list[tuple[str, dict[str, Any]]] = [("initialize", INITIALIZE), ("notifications/initialized", {})]

_REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("ping", {}),
    ("server/discover", {}),
    ("tools/list", {"cursor": "1"}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": f"ipybox://outputs/{OUTPUT}?offset=0"}),
    ("resources/subscribe", {"uri": f"ipybox://outputs/{OUTPUT}"}),
    ("prompts/list", {}),
    ("prompts/get", {"name": "a", "arguments": {"b": "c"}}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "a"}, "argument": {"name": "b", "value": "c"}},
    ),
    ("logging/setLevel", {"level": "debug"}),
    *(("tools/call", call) for call in _CALLS),
    (
        "tools/call",
        _CALLS[0] | {"requestState": "1", "inputResponses": {"approval": {"action": "accept", "content": {}}}},
    ),
]

_NOTIFICATIONS: list[tuple[str, dict[str, Any]]] = [
    ("notifications/cancelled", {"requestId": "nobody's", "reason": "why not"}),
    ("notifications/progress", {"progressToken": 1, "progress": 0.5, "total": 1}),
    ("notifications/roots/list_changed", {}),
]

#: What only clients are asked, or told.
_OF_SERVERS: list[tuple[str, dict[str, Any]]] = [
    ("sampling/createMessage", {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}]}),
    ("elicitation/create", {"message": "hi", "requestedSchema": {"type": "object", "properties": {}}}),
    ("roots/list", {}),
    ("tasks/get", {"taskId": "1"}),
    ("notifications/message", {"level": "info", "data": "hi"}),
    ("notifications/tools/list_changed", {}),
]


def conversation(era: Era) -> list[dict[str, Any]]:
    """Returns messages of an honest client, those it could mistake included, without ids."""
    said = [*(_OPENING if era == "2025-11-25" else []), *_REQUESTS, *_NOTIFICATIONS, *_OF_SERVERS]
    return [message(era, method, params) for method, params in said]


def message(era: Era, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a message without an id."""
    carried = {"progressToken": "p"} if era == "2025-11-25" else ENVELOPE
    meta = {"_meta": carried} if era == "2026-07-28" or method == "tools/call" else {}
    return {"jsonrpc": "2.0", "method": method, "params": {**params, **meta}}


def harmless(tree: Any) -> Any:
    """Returns a tree without what would really do something: run a program, or ask an index for packages."""
    match tree:
        case [*items]:
            return [harmless(item) for item in items]
        case {**members}:
            return {key: _HARMLESS.get(key, harmless)(value) for key, value in members.items()}
        case _:
            return tree


def _one_of(*allowed: str) -> Callable[[Any], Any]:
    return lambda value: value if not isinstance(value, str) or value in allowed else allowed[0]


_HARMLESS: Mapping[Any, Callable[[Any], Any]] = {
    "code": _one_of("1", "2", "", " ", "\0", "-1", "null", "__class__", "A" * 20_000),
    "command": _one_of("/no/such", *TEXTS),
    "url": _one_of(
        "http://127.0.0.1:9/mcp",
        "http://127.0.0.1:9/mcp?a=${FUZZ_SECRET}",
        "http://[::1",
        "http://127.0.0.1:${FUZZ_SECRET}/mcp",
        "file:///no/such",
        "${FUZZ_SECRET}",
        "${FUZZ_SECRET}://x",
    ),
    "package_name": lambda value: f"--{value}" if isinstance(value, str) else value,
}
