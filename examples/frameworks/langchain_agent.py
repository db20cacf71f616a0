"""An agent of LangChain that acts with code: `python langchain_agent.py anthropic:MODEL "your question"`."""

import asyncio
import base64
import sys
from typing import Any

from cell_for_model import DESCRIPTION, run_cell
from langchain.agents import create_agent
from langchain.tools import tool
from langchain_core.language_models import BaseChatModel

from ipybox import CodeExecutor


def make_agent(executor: CodeExecutor, model: BaseChatModel | str) -> Any:
    """Returns an agent with one tool."""

    @tool(description=DESCRIPTION)
    async def run_python(code: str) -> list[dict[str, str]]:
        text, images = await run_cell(executor, code)
        return [
            {"type": "text", "text": text},
            *(
                {"type": "image", "base64": base64.b64encode(image.data).decode(), "mime_type": image.media_type}
                for image in images
            ),
        ]

    return create_agent(model, tools=[run_python])


async def main(model: str, question: str) -> None:
    """Answers a question."""
    async with CodeExecutor() as executor:
        answered = await make_agent(executor, model).ainvoke({"messages": [("user", question)]})
        print(answered["messages"][-1].text)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
