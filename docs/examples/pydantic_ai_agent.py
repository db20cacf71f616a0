"""An agent of Pydantic AI that acts with code: `python pydantic_ai_agent.py anthropic:MODEL "your question"`."""

import asyncio
import sys

from cell_for_model import DESCRIPTION, run_cell
from pydantic_ai import Agent, BinaryContent
from pydantic_ai.models import Model

from ipybox import ApprovalRequest, CodeExecutor


def make_agent(executor: CodeExecutor, model: Model | str) -> Agent:
    """Returns an agent with one tool."""
    agent = Agent(model)

    @agent.tool_plain(description=DESCRIPTION, sequential=True)
    async def run_python(code: str) -> list[str | BinaryContent]:
        text, images = await run_cell(executor, code)
        return [text, *(BinaryContent(image.data, media_type=image.media_type) for image in images)]

    return agent


async def ask(request: ApprovalRequest) -> None:
    """Asks the user about each tool call of the code; tools are MCP servers that you registered, or `tools=[…]`."""
    if await asyncio.to_thread(input, f"{request}? ") == "y":
        await request.accept()
    else:
        await request.reject("the user declined")


async def main(model: str, question: str) -> None:
    """Answers a question."""
    async with CodeExecutor(approver=ask) as executor:
        print((await make_agent(executor, model).run(question)).output)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
