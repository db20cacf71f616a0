"""The example of OpenAI's Agents SDK with a model that follows the script."""

import json
from typing import Any

from agents import Model, ModelResponse, Runner, Usage, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from openai_agents_agent import make_agent
from script import ANSWER, CELLS, QUESTION, Seen, main

from ipybox import CodeExecutor


class Scripted(Model):
    """Follows the script."""

    turn = 0

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """Calls the tool, or answers."""
        turn, self.turn = self.turn, self.turn + 1
        if turn == len(CELLS):
            text = ResponseOutputText(text=ANSWER, type="output_text", annotations=[])
            item: Any = ResponseOutputMessage(
                id="answer", role="assistant", type="message", status="completed", content=[text]
            )
        else:
            arguments = json.dumps({"code": CELLS[turn]})
            item = ResponseFunctionToolCall(
                name="run_python", call_id=f"call{turn}", arguments=arguments, type="function_call"
            )
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        """Is not needed."""
        raise NotImplementedError


async def converse(executor: CodeExecutor) -> Seen:
    """Returns what the model saw."""
    set_tracing_disabled(True)
    result = await Runner.run(make_agent(executor, Scripted()), QUESTION, max_turns=20)
    items: list[Any] = result.to_input_list()
    blocks = [block for item in items if item.get("type") == "function_call_output" for block in item["output"]]
    return Seen(
        texts=[block["text"] for block in blocks if block["type"] == "input_text"],
        images=[block["image_url"][:30] for block in blocks if block["type"] == "input_image"],
        answer=result.final_output,
    )


main(converse)
