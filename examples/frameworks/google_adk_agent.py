"""An agent of Google's ADK that acts with code: `python google_adk_agent.py MODEL "your question"`."""

import asyncio
import base64
import sys
from typing import Any

from google.adk.agents import Agent
from google.adk.models import BaseLlm
from google.adk.runners import InMemoryRunner
from google.genai import types

from ipybox import CodeExecutor


def make_agent(executor: CodeExecutor, model: BaseLlm | str) -> Agent:
    """Returns an agent with one tool. ADK moves the images of its result to where the model sees them."""

    async def run_python(code: str) -> dict[str, Any]:
        """Executes Python code in an IPython cell. Variables persist between cells. Errors come back as text."""
        result = await executor.execute(code, raise_errors=False)
        blocks = await asyncio.to_thread(result.for_model)
        return {
            "output": "\n".join(block["text"] for block in blocks if block["type"] == "text"),
            "images": [
                types.Part.from_bytes(data=base64.b64decode(block["data"]), mime_type=block["mimeType"])
                for block in blocks
                if block["type"] == "image"
            ],
        }

    return Agent(name="coder", model=model, tools=[run_python])


async def main(model: str, question: str) -> None:
    """Answers a question, and prints all events."""
    async with CodeExecutor() as executor:
        await InMemoryRunner(make_agent(executor, model)).run_debug(question)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
