"""Malformed messages of four kinds: broken framing, broken JSON-RPC, broken MCP, and what honest clients say, changed.

A message depends on the seed and its number only.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.mcp_fuzz.conversation import ENVELOPE, INITIALIZE, OUTPUT, Era, conversation, harmless, message
from tests.mcp_fuzz.values import TEXTS, any_value, mutated, shuffled

METHODS = [
    *("initialize", "ping", "server/discover", "tools/list", "tools/call", "resources/list", "resources/read"),
    *("resources/templates/list", "resources/subscribe", "resources/unsubscribe", "prompts/list", "prompts/get"),
    *("completion/complete", "logging/setLevel", "subscriptions/listen", "sampling/createMessage"),
    *("elicitation/create", "roots/list", "tasks/get", "tasks/cancel", "tasks/list", "notifications/initialized"),
    *("notifications/cancelled", "notifications/progress", "notifications/message", "rpc.discover", "no/such"),
]

#: Names of tools, arguments of each, and what they are in the protocol: each gets any value.
TOOLS = {
    "execute_ipython_cell": ("code", "timeout", "max_output_chars", "session", "context"),
    "register_mcp_server": ("server_name", "server_params"),
    "install_package": ("package_name",),
    "reset": ("session",),
    "upload_file": ("path", "content", "encoding"),
    "download_file": ("path",),
    "no_such_tool": ("self",),
}

URIS = [
    f"ipybox://outputs/{OUTPUT}",
    f"ipybox://outputs/{OUTPUT}?offset=-1",
    f"ipybox://outputs/{OUTPUT}?offset=999999999999999",
    f"ipybox://outputs/{OUTPUT}?offset={'9' * 400}",
    f"ipybox://outputs/../../../other/.ipybox/outputs/{OUTPUT}",
    f"ipybox://outputs/..%2f..%2f..%2fother%2f.ipybox%2foutputs%2f{OUTPUT}",
    f"ipybox://outputs/%2e%2e/{OUTPUT}",
    f"ipybox://outputs/{OUTPUT}.txt",
    f"ipybox://outputs/{OUTPUT}%00",
    "ipybox://outputs/../../.env",
    "ipybox://outputs//.env",
    "ipybox://user:password@outputs/.env",
    "IPYBOX://OUTPUTS/A",
    "ipybox:",
    "file:///no/such",
    "file://localhost/../.env",
    "http://127.0.0.1:9/",
    "ui://x",
    "//",
]

FIELDS = (
    *("name", "uri", "cursor", "level", "ref", "argument", "arguments", "requestId", "progressToken", "progress"),
    *("requestState", "inputResponses", "protocolVersion", "capabilities", "clientInfo", "_meta", "subscriptions"),
)


@dataclass(frozen=True)
class Message:
    """What is sent.

    Attributes:
        data: A line without its end, or the body of a request; if its framing is broken, perhaps several lines.
        framed: Whether it is one JSON value that all parsers agree on.
    """

    data: bytes
    framed: bool = True


class Messages:
    """Malformed messages of one era.

    Args:
        seed: Another one makes others.
        era: The revision of the protocol that they are written in.
    """

    def __init__(self, seed: int, era: Era):
        self._seed = seed
        self._era: Era = era
        self._honest = conversation(era)
        self._kinds = [self._broken_framing, self._broken_jsonrpc, self._broken_mcp, self._changed]

    def __getitem__(self, number: int) -> Message:
        """Returns the message of a number."""
        rng = random.Random(f"{self._seed} {self._era} {number}")
        return rng.choices(self._kinds, (15, 20, 30, 35))[0](rng, number)

    def _broken_framing(self, rng: random.Random, number: int) -> Message:
        line = _line(self._honest_one(rng, number))
        return Message(rng.choice(_FRAMINGS)(rng, line), framed=False)

    def _broken_jsonrpc(self, rng: random.Random, number: int) -> Message:
        tree = self._honest_one(rng, number)
        match rng.randrange(4):
            case 0:
                tree = {"jsonrpc": "2.0", "id": any_value(rng), "result": any_value(rng)}
            case 1:
                error = {"code": any_value(rng), "message": any_value(rng), "data": any_value(rng)}
                tree = {
                    "jsonrpc": "2.0",
                    "id": rng.choice([None, number]),
                    "error": rng.choice([error, any_value(rng)]),
                }
            case 2:
                tree |= {"result": any_value(rng), "error": any_value(rng)}
            case _:
                tree[rng.choice(["jsonrpc", "id", "method", "params"])] = any_value(rng)
        if rng.random() < 0.3:
            tree.pop(rng.choice(list(tree)))
        return _framed(rng, tree)

    def _broken_mcp(self, rng: random.Random, number: int) -> Message:
        method = rng.choice([*METHODS, "tools/call", "tools/call", "resources/read"])
        params: dict[str, Any] = {field: any_value(rng) for field in rng.sample(FIELDS, rng.randrange(4))}
        if method == "tools/call":
            tool = rng.choice(list(TOOLS))
            # Without a session, it would be the one that there is: an honest reset takes its time.
            given = rng.sample(TOOLS[tool], rng.randrange(tool == "reset", 1 + len(TOOLS[tool])))
            params |= {"name": tool, "arguments": {name: any_value(rng) for name in given}}
        elif method.startswith("resources/"):
            params["uri"] = rng.choice([*URIS, *TEXTS])
        elif method == "initialize":
            params = mutated(rng, INITIALIZE)
        tree = message(self._era, method, params)
        if rng.random() < 0.3:
            tree["params"]["_meta"] = mutated(rng, ENVELOPE)
        return _framed(rng, _with_id(rng, tree, number))

    def _changed(self, rng: random.Random, number: int) -> Message:
        return _framed(rng, mutated(rng, self._honest_one(rng, number)))

    def _honest_one(self, rng: random.Random, number: int) -> dict[str, Any]:
        return _with_id(rng, dict(rng.choice(self._honest)), number)


def _with_id(rng: random.Random, tree: dict[str, Any], number: int) -> dict[str, Any]:
    """Gives a request an id, at times that of the one before; and at times a notification."""
    if tree["method"].startswith("notifications/") and rng.random() < 0.9:
        return tree
    number -= rng.random() < 0.05
    return {**tree, "id": number if rng.random() < 0.7 else f"id-{number}"}


def _framed(rng: random.Random, tree: dict[str, Any]) -> Message:
    return Message(_line(shuffled(rng, harmless(tree))))


def _line(tree: Any) -> bytes:
    # As other libraries write it.
    return json.dumps(tree, ensure_ascii=False, separators=(",", ":")).encode()


def _with_text(line: bytes, text: bytes) -> bytes:
    """Puts text, as it is, where a string begins."""
    return line.replace(b':"', b':"' + text, 1)


def _with_value(line: bytes, value: bytes) -> bytes:
    return line.replace(b'"params":{', b'"params":{"x":' + value + b",", 1)


def _inserted(rng: random.Random, line: bytes, data: bytes) -> bytes:
    at = rng.randrange(len(line))
    return line[:at] + data + line[at:]


_FRAMINGS: list[Callable[[random.Random, bytes], bytes]] = [
    lambda rng, line: line[: rng.randrange(len(line))],
    lambda rng, line: line[rng.randrange(len(line)) :],
    lambda rng, line: rng.randbytes(rng.randrange(1, 400)),
    lambda rng, line: _inserted(
        rng, line, rng.choice([b"\0", b"\xff\xfe", b"\xc0\xaf", b"\xed\xa0\x80", b"\n", b"\r"])
    ),
    lambda rng, line: _with_text(line, rng.choice([rb"\ud800", rb"\udc00\ud800", rb"\u0000", rb"\x", b"\t", b"\x7f"])),
    lambda rng, line: _with_value(line, _brackets(rng)),
    lambda rng, line: _with_value(
        line, rng.choice([b"NaN", b"-Infinity", b"1e999", b"9" * 6000, b"01", b"+1", b"0x1"])
    ),
    lambda rng, line: rng.choice([b"[", b'{"a":']) * rng.choice([10, 1000, 100_000]),
    lambda rng, line: b"[" + b",".join([line] * rng.randrange(4)) + b"]",
    lambda rng, line: line[:-1] + b',"id":1,"method":"ping","jsonrpc":"2.0"}',
    lambda rng, line: line.replace(b",", b",\n"),
    lambda rng, line: line + rng.choice([b"\r", b" ", b"\0", line, b"//", b",", b"}"]),
    lambda rng, line: (
        rng.choice([b"\xef\xbb\xbf", b"\xff\xfe", b"\x1e", b"data: ", b"Content-Length: 5\r\n\r\n"]) + line
    ),
    lambda rng, line: line.decode().encode(rng.choice(["utf-16", "utf-32", "utf-7"])),
    lambda rng, line: rng.choice(
        [b"", b"\r", b"\n\n\n", b"  ", b"null", b"true", b"1", b'"text"', b"[]", b"{}", b"[[[]]]"]
    ),
]


def _brackets(rng: random.Random) -> bytes:
    depth = rng.choice([100, 190, 250, 5000])
    return b"[" * depth + b"]" * depth
