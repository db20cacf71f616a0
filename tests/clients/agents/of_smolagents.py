"""The executor for smolagents with a model that follows the script. Its images are files."""

import json
from typing import Any

from script import ANSWER, CELLS, QUESTION, Seen, pay
from smolagents import CodeAgent, LogLevel, Model
from smolagents.memory import ActionStep
from smolagents.models import ChatMessage, MessageRole
from smolagents_executor import IpyboxExecutor

from ipybox import ApprovalRequest, Executor

CODE = [*CELLS, f"final_answer({ANSWER!r})"]


class Scripted(Model):
    """Follows the script."""

    turn = 0

    def generate(self, *args: Any, **kwargs: Any) -> ChatMessage:
        """Writes the next cell."""
        turn, self.turn = self.turn, self.turn + 1
        return ChatMessage(role=MessageRole.ASSISTANT, content=f"<code>\n{CODE[turn]}\n</code>")


def decide(request: ApprovalRequest) -> bool:
    """Decides as a user would, without a reason."""
    return request.tool_args["amount"] < 100


with Executor(tools=[pay], approver=decide) as executor:
    agent = CodeAgent(
        tools=[], model=Scripted(), executor=IpyboxExecutor(executor), verbosity_level=LogLevel.OFF, max_steps=20
    )
    answer = agent.run(QUESTION, additional_args={"start": 40})
    steps = [step for step in agent.memory.steps if isinstance(step, ActionStep)]
    texts = [str(step.error.message) if step.error else str(step.observations) for step in steps]
    print(json.dumps(Seen(texts, [], str(answer))._asdict()))
