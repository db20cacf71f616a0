"""An agent of OpenAI's Agents SDK that acts with code: `python openai_agents_agent.py MODEL "your question"`."""

import asyncio
import sys

from agents import Agent, Model, Runner, ToolOutputImage, ToolOutputText, function_tool

from ipybox import CodeExecutor


def make_agent(executor: CodeExecutor, model: Model | str) -> Agent:
    """Returns an agent with one tool."""

    @function_tool
    async def run_python(code: str) -> list[ToolOutputText | ToolOutputImage]:
        """Executes Python code in an IPython cell. Variables persist between cells. Errors come back as text."""
        result = await executor.execute(code, raise_errors=False)
        blocks = await asyncio.to_thread(result.for_model)
        return [
            ToolOutputText(text=block["text"])
            if block["type"] == "text"
            else ToolOutputImage(image_url=f"data:{block['mimeType']};base64,{block['data']}")
            for block in blocks
        ]

    return Agent(name="coder", model=model, tools=[run_python])


async def main(model: str, question: str) -> None:
    """Answers a question."""
    async with CodeExecutor() as executor:
        print((await Runner.run(make_agent(executor, model), question)).final_output)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
