"""The example of Google's ADK with a model that follows the script."""

import base64
from collections.abc import AsyncGenerator

from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types
from google_adk_agent import make_agent
from script import ANSWER, CELLS, QUESTION, Seen, main

from ipybox import CodeExecutor

seen: list[types.FunctionResponse] = []


class Scripted(BaseLlm):
    """Follows the script."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse]:
        """Calls the tool, or answers."""
        parts = [part for content in llm_request.contents for part in content.parts or []]
        seen[:] = [part.function_response for part in parts if part.function_response is not None]
        if len(seen) == len(CELLS):
            part = types.Part.from_text(text=ANSWER)
        else:
            part = types.Part.from_function_call(name="run_python", args={"code": CELLS[len(seen)]})
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


async def converse(executor: CodeExecutor) -> Seen:
    """Returns what the model saw."""
    runner = InMemoryRunner(make_agent(executor, Scripted(model="scripted")))
    events = await runner.run_debug(QUESTION, quiet=True)
    blobs = [part.inline_data for response in seen for part in response.parts or []]
    last = events[-1].content
    return Seen(
        texts=[(response.response or {})["output"] for response in seen],
        images=[
            f"data:{blob.mime_type};base64,{base64.b64encode(blob.data or b'').decode()}"[:30]
            for blob in blobs
            if blob is not None
        ],
        answer=(last.parts or [])[0].text or "" if last is not None else "",
    )


main(converse)
