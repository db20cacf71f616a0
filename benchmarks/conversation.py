"""What of a session of Claude Code reaches the model because of a server or a plugin. Pure.

What the client sends anyway, its own tools and prompt, is measured without server and plugin, and subtracted.
What the model itself says, its uses of tools, is not counted either, but on its own (`Conversation.written`).
"""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tests.claude.api import Request


class Meter(Protocol):
    """Measures what a model gets."""

    def text(self, text: str) -> int:
        """Returns how much a text takes."""
        ...

    def image(self, data: bytes) -> int:
        """Returns how much an image takes."""
        ...


class Bytes:
    """Counts bytes as they are sent: text as UTF-8, images as base64."""

    def text(self, text: str) -> int:
        """Returns the bytes of a text."""
        return len(text.encode())

    def image(self, data: bytes) -> int:
        """Returns the bytes of an image."""
        return len(base64.b64encode(data))


BYTES = Bytes()

#: The turn that loads a skill.
SKILL = "skill"


@dataclass(frozen=True)
class Conversation:
    """What each request of a session holds because of a server or a plugin, by what it is.

    That is definitions of tools, notices, and the results of each turn's tools. Notices are the server's instructions,
    the skill's line in the list of skills, and the names of deferred tools.
    """

    requests: Sequence[Mapping[str, int]]
    written: Sequence[int] = ()
    """What the model has written in order to use tools when it gets a request, which no request's cost has."""


@dataclass(frozen=True)
class Recorded:
    """The requests of a session.

    Attributes:
        requests: In their order.
        bare: The first request of a session with the same prompt, but without server and plugin.
        turns: What the model has used tools for, turn by turn.
    """

    requests: Sequence[Request]
    bare: Request
    turns: Sequence[str]

    def measured(self, meter: Meter = BYTES) -> Conversation:
        """Returns what the requests hold."""
        first, *others = self.requests
        notices = _said(first, meter) - _said(self.bare, meter)
        costs = [{**_defined(first, self.bare, meter), "notices": notices}]
        results: dict[str, int] = {}
        for request, what in zip(others, self.turns, strict=True):
            shown = sum(meter.text(result.text) for result in request.results)
            results[what] = shown + sum(map(meter.image, _images(request)))
            if what == SKILL:  # the client says its text
                results[what] += _said(request, meter)
            else:
                notices += _said(request, meter)
            costs.append({**_defined(request, self.bare, meter), "notices": notices, **results})
        return Conversation(costs, [_written(request, meter) for request in self.requests])


def _defined(request: Request, bare: Request, meter: Meter) -> dict[str, int]:
    """Returns the size of the definitions that `bare` has not: the server's, and those that the client adds for it."""
    sums = {"definitions": 0, "the client's tools for resources": 0}
    for tool in request.body["tools"]:
        if tool["name"] not in bare.tools:
            kind = "definitions" if tool["name"].startswith("mcp__") else "the client's tools for resources"
            sums[kind] += meter.text(json.dumps(tool, ensure_ascii=False, separators=(",", ":")))
    return {kind: number for kind, number in sums.items() if number}


def _written(request: Request, meter: Meter) -> int:
    """Returns the size of the arguments of all uses of tools."""
    blocks = (
        block for message in request.body["messages"] if message["role"] == "assistant" for block in message["content"]
    )
    return sum(meter.text(json.dumps(block["input"], ensure_ascii=False)) for block in blocks if "input" in block)


def _said(request: Request, meter: Meter) -> int:
    """Returns the size of what the client has sent since the model's last turn, without the results of tools."""
    return sum(meter.text(block["text"]) for block in request.news if block["type"] == "text")


def _images(request: Request) -> list[bytes]:
    """Returns the images among the results of the last turn's tools."""
    results = [block["content"] for block in request.news if block["type"] == "tool_result"]
    parts = [part for content in results if not isinstance(content, str) for part in content]
    return [base64.b64decode(part["source"]["data"]) for part in parts if part["type"] == "image"]
