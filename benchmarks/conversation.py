"""What of a session of Claude Code reaches the model because of a server or a plugin, in bytes. Pure.

The client sends the whole conversation with each request. So there are two sums: that of the last request, which is
what the context holds in the end, and that of all of them.

What the client sends anyway, its own tools and prompt, is measured without server and plugin, and subtracted.
What the model itself says, its uses of tools, is not counted either, but on its own (`Conversation.written`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from tests.claude.api import Request


@dataclass(frozen=True)
class Cost:
    """Bytes of a request, by what they are: definitions of tools, notices, and the results of each turn's tools.

    Notices are the server's instructions, the skill's line in the list of skills, and the names of deferred tools.
    """

    parts: Mapping[str, int]

    @property
    def total(self) -> int:
        """All bytes."""
        return sum(self.parts.values())


@dataclass(frozen=True)
class Conversation:
    """What each request of a session holds because of a server or a plugin."""

    requests: Sequence[Cost]
    written: int = 0
    """Bytes that the model wrote in order to use tools, which no request's cost has."""

    @classmethod
    def of(cls, requests: Sequence[Request], bare: Request, turns: Sequence[str]) -> Self:
        """Returns the conversation of these requests.

        Args:
            requests: Of a session.
            bare: The first request of a session with the same prompt, but without server and plugin.
            turns: What the model has used tools for, turn by turn.
        """
        notices = _said(requests[0]) - _said(bare)
        costs = [Cost({**_defined(requests[0], bare), "notices": notices})]
        results: dict[str, int] = {}
        for request, what in zip(requests[1:], turns, strict=True):
            results[what] = _said(request) + sum(len(result.text.encode()) for result in request.results)
            costs.append(Cost({**_defined(request, bare), "notices": notices, **results}))
        return cls(costs, _written(requests[-1]))

    @property
    def last(self) -> Cost:
        """What the context holds in the end."""
        return self.requests[-1]

    @property
    def all(self) -> int:
        """Bytes of all requests."""
        return sum(cost.total for cost in self.requests)


def _defined(request: Request, bare: Request) -> dict[str, int]:
    """Returns the bytes of the definitions that `bare` has not: the server's, and those that the client adds for it."""
    sums = {"definitions": 0, "the client's tools for resources": 0}
    for tool in request.body["tools"]:
        if tool["name"] not in bare.tools:
            kind = "definitions" if tool["name"].startswith("mcp__") else "the client's tools for resources"
            sums[kind] += len(json.dumps(tool, ensure_ascii=False, separators=(",", ":")).encode())
    return {kind: number for kind, number in sums.items() if number}


def _written(request: Request) -> int:
    """Returns the bytes of the arguments of all uses of tools."""
    blocks = (
        block for message in request.body["messages"] if message["role"] == "assistant" for block in message["content"]
    )
    return sum(len(json.dumps(block["input"], ensure_ascii=False).encode()) for block in blocks if "input" in block)


def _said(request: Request) -> int:
    """Returns the bytes that the client has sent since the model's last turn, without the results of tools."""
    return sum(len(block["text"].encode()) for block in request.news if block["type"] == "text")
