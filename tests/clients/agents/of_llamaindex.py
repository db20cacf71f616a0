"""The example of LlamaIndex with its own model for tests."""

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llamaindex_agent import make_agent
from script import ANSWER, CELLS, QUESTION, Seen, main

from ipybox import CodeExecutor

seen: list[ChatMessage] = []


def respond(messages: Sequence[ChatMessage], **kwargs: Any) -> ChatMessage:
    """Follows the script."""
    seen[:] = [message for message in messages if message.role == "tool"]
    if len(seen) == len(CELLS):
        return ChatMessage(role="assistant", content=ANSWER)
    call = ToolCallBlock(tool_call_id=str(len(seen)), tool_name="run_python", tool_kwargs={"code": CELLS[len(seen)]})
    return ChatMessage(role="assistant", blocks=[call])


async def converse(executor: CodeExecutor) -> Seen:
    """Returns what the model saw."""
    agent = make_agent(executor, MockFunctionCallingLLM(response_generator=respond))
    answer = await agent.run(QUESTION)
    blocks = [block for message in seen for block in message.blocks]
    return Seen(
        texts=[block.text for block in blocks if isinstance(block, TextBlock)],
        images=[
            f"data:{block.image_mimetype};base64,{bytes(block.image or b'').decode()}"[:30]
            for block in blocks
            if isinstance(block, ImageBlock)
        ],
        answer=str(answer),
    )


main(converse)
