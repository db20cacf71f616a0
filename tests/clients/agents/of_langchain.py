"""The example of LangChain with its own model for tests."""

from typing import Any

from langchain_agent import make_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from script import ANSWER, CELLS, QUESTION, Seen, main

from ipybox import CodeExecutor


class Scripted(GenericFakeChatModel):
    """A model that takes tools."""

    def bind_tools(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the model itself, which knows the tool by its name."""
        return self


async def converse(executor: CodeExecutor) -> Seen:
    """Returns what the model saw."""
    calls = [
        AIMessage("", tool_calls=[{"name": "run_python", "args": {"code": code}, "id": f"call{turn}"}])
        for turn, code in enumerate(CELLS)
    ]
    model = Scripted(messages=iter([*calls, AIMessage(ANSWER)]))
    answered = await make_agent(executor, model).ainvoke({"messages": [("user", QUESTION)]}, {"recursion_limit": 50})
    results = [message for message in answered["messages"] if isinstance(message, ToolMessage)]
    blocks: list[Any] = [block for message in results for block in message.content]
    return Seen(
        texts=[block["text"] for block in blocks if block["type"] == "text"],
        images=[
            f"data:{block['mime_type']};base64,{block['base64']}"[:30] for block in blocks if block["type"] == "image"
        ],
        answer=answered["messages"][-1].text,
    )


main(converse)
