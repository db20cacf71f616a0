"""An agent of Pydantic AI that acts with code: `python pydantic_ai_agent.py [MODEL "your question"]`.

Without arguments a script is the model, so that no key is needed. With `anthropic:MODEL` it is a real one, which needs
`pydantic-ai-slim[anthropic]` and ANTHROPIC_API_KEY. Other providers have extras and keys of their own.
"""

import asyncio
import base64
import sys
import tempfile

from pydantic_ai import Agent, BinaryContent, ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, FunctionModel

from ipybox import ApprovalRequest, CodeExecutor

INSTRUCTIONS = "Code can import stock and order from mcptools.app: `stock.run(stock.Params(item=…))` returns a str."
QUESTION = "Order 10 of each item of paper, toner and pens of which fewer than 5 are left."

#: What the scripted model writes: its first cell fails, the others go on from there.
SCRIPT = (
    "levels = {item: stock.run(stock.Params(item=item)) for item in ('paper', 'toner', 'pens')}",
    "from mcptools.app import order, stock\n"
    "levels = {item: int(stock.run(stock.Params(item=item))) for item in ('paper', 'toner', 'pens')}\n"
    "levels",
    "for item, left in levels.items():\n"
    "    if left < 5:\n"
    "        print(order.run(order.Params(item=item, quantity=10)))",
)


def stock(item: str) -> str:
    """Returns how many of an item are left."""
    return str({"paper": 40, "toner": 2, "pens": 17}[item])


def order(item: str, quantity: int) -> str:
    """Orders an item."""
    return f"ordered {quantity} x {item}"


def make_agent(executor: CodeExecutor, model: Model | str) -> Agent:
    """Returns an agent with one tool."""
    agent = Agent(model, instructions=INSTRUCTIONS)

    @agent.tool_plain(sequential=True)
    async def run_python(code: str) -> list[str | BinaryContent]:
        """Executes Python code in an IPython cell. Variables persist between cells. Errors come back as text."""
        result = await executor.execute(code, raise_errors=False)
        blocks = await asyncio.to_thread(result.for_model)
        return [
            block["text"]
            if block["type"] == "text"
            else BinaryContent(base64.b64decode(block["data"]), media_type=block["mimeType"])
            for block in blocks
        ]

    return agent


def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Stands for a model: writes the cells of the script, then answers."""
    turn = sum(isinstance(message, ModelResponse) for message in messages)
    if turn == len(SCRIPT):
        (result,) = messages[-1].parts
        return ModelResponse(
            parts=[TextPart(f"The last cell ended with: {result.content[0].strip().splitlines()[-1]}")]
        )
    return ModelResponse(parts=[ToolCallPart(info.function_tools[0].name, {"code": SCRIPT[turn]})])


async def ask(request: ApprovalRequest) -> None:
    """Asks the user about each call that changes something. Other tools are MCP servers that you registered."""
    if request.tool_name == "stock" or await asyncio.to_thread(input, f"{request}? [y/n] ") == "y":
        await request.accept()
    else:
        await request.reject("the user declined")


async def main(model: Model | str, question: str) -> None:
    """Answers a question, and prints the cells that the model wrote."""
    workspace = tempfile.mkdtemp(prefix="agent-")
    async with CodeExecutor(working_dir=workspace, tools=[stock, order], approver=ask) as executor:
        result = await make_agent(executor, model).run(question)
    for message in result.all_messages():
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                print(f"--- code\n{part.args_as_dict()['code']}")
            elif isinstance(part, ToolReturnPart):
                print(f"--- output\n{part.content[0]}")
    print(f"--- answer\n{result.output}")


if __name__ == "__main__":
    asyncio.run(main(*(sys.argv[1:3] if len(sys.argv) > 2 else (FunctionModel(scripted), QUESTION))))
