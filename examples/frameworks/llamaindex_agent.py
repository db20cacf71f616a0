"""An agent of LlamaIndex that acts with code. Pass `make_agent` a model of your own, such as `OpenAI(model=…)`."""

from cell_for_model import DESCRIPTION, run_cell
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ImageBlock, TextBlock
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.tools import FunctionTool

from ipybox import CodeExecutor


def make_agent(executor: CodeExecutor, model: FunctionCallingLLM) -> FunctionAgent:
    """Returns an agent with one tool; `await make_agent(executor, model).run(question)` answers a question."""

    async def run_python(code: str) -> list[TextBlock | ImageBlock]:
        text, images = await run_cell(executor, code)
        blocks = [ImageBlock(image=image.data, image_mimetype=image.media_type) for image in images]
        return [TextBlock(text=text), *blocks]

    tool = FunctionTool.from_defaults(async_fn=run_python, description=DESCRIPTION)
    return FunctionAgent(tools=[tool], llm=model, streaming=False)
