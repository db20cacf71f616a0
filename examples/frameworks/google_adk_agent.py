"""An agent of Google's ADK that acts with code: `python google_adk_agent.py MODEL "your question"`."""

import asyncio
import sys
from typing import Any

from cell_for_model import DESCRIPTION, run_cell
from google.adk.agents import Agent
from google.adk.models import BaseLlm
from google.adk.runners import InMemoryRunner
from google.genai import types

from ipybox import CodeExecutor


def make_agent(executor: CodeExecutor, model: BaseLlm | str) -> Agent:
    """Returns an agent with one tool. ADK moves the images of its result to where the model sees them."""

    async def run_python(code: str) -> dict[str, Any]:
        text, images = await run_cell(executor, code)
        return {
            "output": text,
            "images": [types.Part.from_bytes(data=image.data, mime_type=image.media_type) for image in images],
        }

    run_python.__doc__ = DESCRIPTION
    return Agent(name="coder", model=model, tools=[run_python])


async def main(model: str, question: str) -> None:
    """Answers a question, and prints all events."""
    async with CodeExecutor() as executor:
        await InMemoryRunner(make_agent(executor, model)).run_debug(question)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
