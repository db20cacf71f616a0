"""An agent of OpenAI's Agents SDK that acts with code: `python openai_agents_agent.py MODEL "your question"`."""

import asyncio
import base64
import sys

from agents import Agent, Model, Runner, ToolOutputImage, ToolOutputText, function_tool
from cell_for_model import DESCRIPTION, run_cell

from ipybox import CodeExecutor


def make_agent(executor: CodeExecutor, model: Model | str) -> Agent:
    """Returns an agent with one tool."""

    @function_tool(description_override=DESCRIPTION)
    async def run_python(code: str) -> list[ToolOutputText | ToolOutputImage]:
        text, images = await run_cell(executor, code)
        urls = [f"data:{image.media_type};base64,{base64.b64encode(image.data).decode()}" for image in images]
        return [ToolOutputText(text=text), *(ToolOutputImage(image_url=url) for url in urls)]

    return Agent(name="coder", model=model, tools=[run_python])


async def main(model: str, question: str) -> None:
    """Answers a question."""
    async with CodeExecutor() as executor:
        print((await Runner.run(make_agent(executor, model), question)).final_output)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
