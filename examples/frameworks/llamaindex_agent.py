"""An agent of LlamaIndex that acts with code. Pass `make_agent` a model of your own, such as `OpenAI(model=…)`."""

import asyncio
import base64

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ImageBlock, TextBlock
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.tools import FunctionTool

from ipybox import CodeExecutor


def make_agent(executor: CodeExecutor, model: FunctionCallingLLM) -> FunctionAgent:
    """Returns an agent with one tool; `await make_agent(executor, model).run(question)` answers a question."""

    async def run_python(code: str) -> list[TextBlock | ImageBlock]:
        """Executes Python code in an IPython cell. Variables persist between cells. Errors come back as text."""
        result = await executor.execute(code, raise_errors=False)
        blocks = await asyncio.to_thread(result.for_model)
        return [
            TextBlock(text=block["text"])
            if block["type"] == "text"
            else ImageBlock(image=base64.b64decode(block["data"]), image_mimetype=block["mimeType"])
            for block in blocks
        ]

    tool = FunctionTool.from_defaults(async_fn=run_python)
    return FunctionAgent(tools=[tool], llm=model, streaming=False)
