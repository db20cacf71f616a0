"""What all programs of this folder do: an example of `examples/frameworks/` runs with a model that follows a script.

    python of_X.py '["x = 41", …]'

The model calls the tool with each cell in turn, then answers. The programs print what the tool gave it as JSON.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from ipybox import ApprovalRequest, CodeExecutor

CELLS: list[str] = json.loads(sys.argv[1])
QUESTION = "Please follow the script."
ANSWER = "It is done."


class Seen(NamedTuple):
    """What a model saw: the texts of all cells, the starts of all images as they were sent, and its answer."""

    texts: list[str]
    images: list[str]
    answer: str


def pay(amount: int) -> str:
    """Pays an amount."""
    return f"paid {amount}"


async def decide(request: ApprovalRequest) -> None:
    """Decides as a user would."""
    if request.tool_args["amount"] < 100:
        await request.accept()
    else:
        await request.reject("it is too much")


def main(converse: Callable[[CodeExecutor], Coroutine[Any, Any, Seen]]) -> None:
    """Runs a conversation with an executor, and prints what the model saw."""

    async def run() -> Seen:
        async with CodeExecutor(tools=[pay], approver=decide) as executor:
            return await converse(executor)

    print(json.dumps(asyncio.run(run())._asdict()))
