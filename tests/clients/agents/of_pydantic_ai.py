"""The example of Pydantic AI with its own model for tests."""

from pydantic_ai import BinaryContent, ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai_agent import make_agent
from script import ANSWER, CELLS, QUESTION, Seen, main

from ipybox import CodeExecutor


def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Follows the script."""
    turn = sum(isinstance(message, ModelResponse) for message in messages)
    if turn == len(CELLS):
        return ModelResponse(parts=[TextPart(ANSWER)])
    (tool,) = info.function_tools
    return ModelResponse(parts=[ToolCallPart(tool.name, {"code": CELLS[turn]})])


async def converse(executor: CodeExecutor) -> Seen:
    """Returns what the model saw."""
    result = await make_agent(executor, FunctionModel(respond)).run(QUESTION)
    parts = [part for message in result.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)]
    content = [block for part in parts for block in part.content]
    return Seen(
        texts=[block for block in content if isinstance(block, str)],
        images=[block.data_uri[:30] for block in content if isinstance(block, BinaryContent)],
        answer=result.output,
    )


main(converse)
