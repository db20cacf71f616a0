"""An agent of LangChain that acts with code: `python langchain_agent.py anthropic:MODEL "your question"`."""

import asyncio
import sys
from typing import Any

from langchain.agents import create_agent
from langchain.tools import tool
from langchain_core.language_models import BaseChatModel

from ipybox import CodeExecutor


def make_agent(executor: CodeExecutor, model: BaseChatModel | str) -> Any:
    """Returns an agent with one tool."""

    @tool
    async def run_python(code: str) -> list[dict[str, str]]:
        """Executes Python code in an IPython cell. Variables persist between cells. Errors come back as text."""
        result = await executor.execute(code, raise_errors=False)
        blocks = await asyncio.to_thread(result.for_model)
        names = {"data": "base64", "mimeType": "mime_type"}
        return [{names.get(key, key): value for key, value in block.items()} for block in blocks]

    return create_agent(model, tools=[run_python])


async def main(model: str, question: str) -> None:
    """Answers a question."""
    async with CodeExecutor() as executor:
        answered = await make_agent(executor, model).ainvoke({"messages": [("user", question)]})
        print(answered["messages"][-1].text)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
