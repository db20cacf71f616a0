"""The agents of `examples/frameworks/`, each with its framework's model for tests."""

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
    assert image.startswith("Images:\n- ")
    assert seen["images"] == ["data:image/png;base64,iVBORw0K"]
    assert paid == "paid 5"
    assert "it is too much" in rejected
    assert seen["answer"] == "It is done."


def test_smolagents_keeps_state_and_gets_errors_decisions_and_a_final_answer(tmp_path: Path):
    cells = ["x = start + 1", "print(x)\nx + 1", "print('before')\n1 / 0", IMAGE]
    cells += [PAY.format("amount=5"), PAY.format("amount=500")]

    seen = output_of("of_smolagents.py", cells, tmp_path)

    nothing, state, error, image, paid, rejected, _ = seen["texts"]
    assert nothing == "Execution logs:\n(no output)\nLast output from code snippet:\nNone"
    assert state.endswith("Last output from code snippet:\n42")
    assert "before\n" in error
    assert "ZeroDivisionError: division by zero" in error
    assert "Images:\n- " in image
    assert "paid 5" in paid
    assert "rejected" in rejected
    assert seen["answer"] == "It is done."


def test_code_mode_of_fastmcp_calls_tools_from_a_kernel(tmp_path: Path):
    cells = [
        "first = await call_tool('add', {'x': 1, 'y': 2})\nreturn {'sum': first['result'], 'all': '''a\nb'''}",
        "await call_tool('add', {'x': 'one', 'y': 2})",
        "1 / 0",
    ]

    added, refused, failed = output_of("of_fastmcp.py", cells, tmp_path)

    assert json.loads(added) == {"sum": 3, "all": "a\nb"}
    assert "add" in refused
    assert failed.endswith("ZeroDivisionError: division by zero")
