"""A Python executor for smolagents' `CodeAgent`: `CodeAgent(tools=[], model=model, executor=IpyboxExecutor(executor))`.

The code runs in another process: functions of your program that it may call are `tools` of ipybox' `Executor`.
"""

import json
from typing import Any

from smolagents import Tool
from smolagents.local_python_executor import CodeOutput, PythonExecutor

from ipybox import Executor, Result

#: A class of its own, which no `except Exception` of the model's code catches, carries the answer out of the cell.
FINAL_ANSWER = """
class FinalAnswer(BaseException):
    pass

def final_answer(answer):
    import json
    raise FinalAnswer(json.dumps(answer, default=str))
"""


class IpyboxExecutor(PythonExecutor):
    """Executes the code of an agent in an IPython kernel.

    Args:
        executor: A running executor, which the caller stops.
    """

    def __init__(self, executor: Executor):
        self._executor = executor

    def send_tools(self, tools: dict[str, Tool]) -> None:
        """Defines `final_answer`."""
        if others := tools.keys() - {"final_answer"}:
            raise ValueError(f"pass {', '.join(sorted(others))} to `Executor(tools=…)` as functions")
        self._executor.run(FINAL_ANSWER)

    def send_variables(self, variables: dict[str, Any]) -> None:
        """Sets variables whose values are JSON."""
        self._executor.run(f"import json; globals().update(json.loads({json.dumps(variables)!r}))")

    def __call__(self, code_action: str) -> CodeOutput:
        """Executes a cell. Its error becomes the agent's observation."""
        done = self._executor.run(code_action, raise_errors=False)
        if done.error is not None and done.error.name == "FinalAnswer":
            return CodeOutput(output=json.loads(done.error.value or "null"), logs=done.text or "", is_final_answer=True)
        logs = "\n".join(block["text"] for block in done.for_model(images=False))
        if done.error is not None:
            raise RuntimeError(logs)
        value = next((each.data["text/plain"] for each in done.outputs if isinstance(each, Result)), None)
        return CodeOutput(output=value, logs=f"{logs}\n", is_final_answer=False)
