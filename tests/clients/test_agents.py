"""The agents of `examples/frameworks/`, each with its framework's model for tests, or with a client of the endpoint."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.clients.runs import python_of, run
from tests.servers import ROOT

# What a framework gets does not depend on the sandbox.
pytestmark = pytest.mark.kernel

AGENTS = ROOT / "tests" / "clients" / "agents"
EXAMPLES = ROOT / "examples" / "frameworks"

IMAGE = "from PIL import Image; display(Image.new('RGB', (2, 2), 'red'))"
PAY = "from mcptools.app import pay; print(pay.run(pay.Params({})))"


def output_of(program: str, cells: list[str], workspace: Path) -> Any:
    command = [python_of(".venv-mcp2"), str(AGENTS / program), json.dumps(cells)]
    return json.loads(run(command, workspace, PYTHONPATH=str(EXAMPLES)))


@pytest.mark.parametrize("framework", ["pydantic_ai", "openai_agents", "langchain", "llamaindex", "google_adk"])
def test_an_agent_keeps_state_and_gets_errors_images_and_decisions(framework: str, tmp_path: Path):
    cells = ["x = 41", "print(x)\nx + 1", "print('before')\n1 / 0", IMAGE]
    cells += [PAY.format("amount=5"), PAY.format("amount=500")]

    seen = output_of(f"of_{framework}.py", cells, tmp_path)

    nothing, state, error, image, paid, rejected = seen["texts"]
    assert nothing == "(no output)"
    assert state == "41\n42"
    assert error.startswith("before\n")
    assert error.endswith("ZeroDivisionError: division by zero")
    assert image == "(no output)"
    assert seen["images"] == ["data:image/png;base64,iVBORw0K"]
    assert paid == "paid 5"
    assert "it is too much" in rejected
    assert seen["answer"] == "It is done."


def test_smolagents_keeps_state_and_gets_errors_decisions_and_a_final_answer(tmp_path: Path):
    cells = ["x = start + 1", "print(x)\nx + 1", "print('before')\n1 / 0", IMAGE]
    cells += [PAY.format("amount=5"), PAY.format("amount=500")]

    seen = output_of("of_smolagents.py", cells, tmp_path)

    nothing, state, error, image, paid, rejected, _ = seen["texts"]
    assert nothing == "Execution logs:\n\nLast output from code snippet:\nNone"
    assert state.endswith("Last output from code snippet:\n42")
    assert "before\n" in error
    assert "ZeroDivisionError: division by zero" in error
    assert "Image: " in image
    assert "paid 5" in paid
    assert "rejected" in rejected
    assert seen["answer"] == "It is done."


def test_endpoint_streams_output_errors_and_approvals(tmp_path: Path):
    pay = "from mcptools.app import pay\nprint(pay.run(pay.Params(customer='ada', amount={})))"

    state, error, paid, rejected = output_of(
        "of_fastapi.py", ["x = 41\nprint(x)\nx + 1", "1 / 0", pay.format(5), pay.format(500)], tmp_path
    )

    assert "".join(event.get("text", "") for event in state).split() == ["41", "42"]
    assert state[-1] == {"done": True, "notices": []}
    assert error[-1]["error"].endswith("ZeroDivisionError: division by zero")
    assert paid[0] == {"approve": "app.pay(customer='ada', amount=5)"}
    assert "".join(event.get("text", "") for event in paid) == "paid 5 to ada\n"
    assert rejected[0] == {"approve": "app.pay(customer='ada', amount=500)"}
    assert "the user declined" in rejected[-1]["error"]


def test_pydantic_ai_example_runs_without_a_key_and_orders_what_the_user_accepts(tmp_path: Path):
    command = [python_of(".venv-mcp2"), str(EXAMPLES / "pydantic_ai_agent.py")]

    accepted, declined = (run(["sh", "-c", f'echo {answer} | "$0" "$1"', *command], tmp_path) for answer in "yn")

    for printed in (accepted, declined):
        assert "NameError: name 'stock' is not defined" in printed
        assert "{'paper': 40, 'toner': 2, 'pens': 17}" in printed
        assert printed.count("? [y/n] ") == 1
    assert accepted.endswith("The last cell ended with: ordered 10 x toner\n")
    assert declined.rstrip().endswith("the user declined")
