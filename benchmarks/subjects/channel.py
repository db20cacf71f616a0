"""The subject's end of the conversation with `benchmarks.subject`: one JSON object per line each way.

    → {"operation": "execute", "arguments": {"count": 40}}
    ← {"value": [0.0061, ...]}        or {"error": "..."}

A line `{"started": true}` goes before. What libraries print goes to stderr.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Operation = Callable[..., Awaitable[Any]]

# Whatever else writes to stdout must not end up between the answers.
_answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)


def say_started() -> None:
    """Tells the benchmark that the first thing of interest has happened."""
    _write({"started": True})


async def serve(operations: Mapping[str, Operation]) -> None:
    """Does what the benchmark asks for until it closes our standard input."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        request = json.loads(line)
        try:
            value = await operations[request["operation"]](**request["arguments"])
        except Exception as exc:
            _write({"error": f"{type(exc).__name__}: {exc}"})
        else:
            _write({"value": value})


def _write(message: Mapping[str, Any]) -> None:
    _answers.write(json.dumps(message) + "\n")
