"""Ground truths of the Berkeley Function Calling Leaderboard as code actions: each call and state is as without ipybox.

`make bfcl` runs all 800 tasks in each mode and way, CI a sample of 192 that `SEED` picks; `BFCL_TASKS` is the number
of tasks per test.
"""

import json
import os
import random
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
import pytest_asyncio

from ipybox import ApprovalRequest, CodeExecutor, generate_mcp_sources
from tests.bfcl import tasks
from tests.bfcl.tasks import SUITES, Call, Instances, Task
from tests.conftest import Mode
from tests.seed import SEED
from tests.servers import ROOT

SERVER = Path(__file__).with_name("server.py")

#: How many of the 200 tasks of its suite each test runs.
COUNT = int(os.environ.get("BFCL_TASKS", "12"))

#: The one call of all ground truths that its own schema forbids: an integer is passed as a string.
BREAKS_ITS_SCHEMA = Call("close_ticket", {"ticket_id": "ticket_001"})

# What an agent would write, with what each call returned or raised on one line.
CODE = """
import json
from ipybox.errors import ToolRunnerError
from pydantic import ValidationError
from mcptools.bfcl import {modules}

def outcome(tool, **arguments):
    try:
        return tool.run(tool.Params(**arguments))
    except ToolRunnerError as error:
        return ["failed", str(error)]
    except ValidationError as error:
        return ["refused"]

begin_task.run(begin_task.Params(id={id!r}))
print(json.dumps([{calls}, json.loads(final_state.run(final_state.Params()))]))
"""


@dataclass
class Sessions:
    """Sessions of one application, the generated module of each tool, and the calls that the application approved.

    `asked` is None if it approves none.
    """

    executors: list[CodeExecutor]
    modules: dict[str, str]
    asked: list[tuple[str, dict[str, Any]]] | None


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workspace")


@pytest.fixture(scope="module", autouse=True)
def benchmark_is_importable() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(tasks.INSTALLED)])
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def modules(workspace: Path) -> dict[str, str]:
    """The generated module of each tool, in the workspace of all sessions."""
    path = os.pathsep.join(map(str, (ROOT, tasks.INSTALLED)))
    params = {"command": sys.executable, "args": [str(SERVER)], "env": {"PYTHONPATH": path}}
    generated = await generate_mcp_sources("bfcl", params, workspace / "mcptools")
    modules = {tool: module for module, tool in generated.wire_names.items()}
    assert len(modules) == len(tasks.tools()) + 2
    return modules


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["approved", "four"])
async def sessions(
    request: pytest.FixtureRequest, mode: Mode, workspace: Path, modules: dict[str, str], shared: None
) -> AsyncIterator[Sessions]:
    """A session whose calls the application approves, and four at a time whose calls nobody approves."""
    asked: list[tuple[str, dict[str, Any]]] = []

    async def approve(request: ApprovalRequest) -> None:
        asked.append((request.tool_name, request.tool_args))
        await request.accept()

    approver = approve if request.param == "approved" else None
    first = CodeExecutor(working_dir=workspace, sandbox=mode.sandbox, approver=approver)
    async with AsyncExitStack() as stack:
        executors = [first, *(first.sibling() for _ in range(3 if request.param == "four" else 0))]
        for executor in executors:
            await stack.enter_async_context(executor)
        yield Sessions(executors, modules, asked if approver else None)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("suite", SUITES)
async def test_calls_and_states_are_those_of_direct_calls(
    request: pytest.FixtureRequest, sessions: Sessions, suite: str
):
    todo = random.Random(f"{SEED} {request.node.name}").sample(tasks.tasks(suite), COUNT)
    waiting = iter(todo)
    found: dict[str, list[Any]] = {}

    async def work(executor: CodeExecutor) -> None:
        for task in waiting:
            await executor.execute(literal_code_of(task, sessions.modules))
            found[task.id] = json.loads((await executor.execute(code_of(task, sessions.modules))).text or "")

    async with anyio.create_task_group() as group:
        for executor in sessions.executors:
            group.start_soon(work, executor)
    different = [task.id for task in todo if found[task.id] != direct(task)]
    assert different == []
    if sessions.asked is not None:
        calls = [call for task in todo for call in with_bookends(task) if call != BREAKS_ITS_SCHEMA]
        assert sessions.asked == [(call.tool, call.arguments) for call in calls]
        sessions.asked.clear()


def code_of(task: Task, modules: dict[str, str]) -> str:
    """Return a task's ground truth as one code action, with the generated module of each tool."""
    imported = ", ".join(sorted({modules[call.tool] for call in with_bookends(task)}))
    calls = [f"outcome({modules[call.tool]}, **{call.arguments!r})" for call in task.calls]
    return CODE.format(modules=imported, id=task.id, calls=", ".join(calls))


def literal_code_of(task: Task, modules: dict[str, str]) -> str:
    """Return code that only creates the arguments of a task's calls, written out so that the kernel checks them."""
    calls = [call for call in task.calls if call != BREAKS_ITS_SCHEMA]
    lines = [f"from mcptools.bfcl import {modules[call.tool]}\n" for call in calls]
    for call in calls:
        arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
        lines.append(f"{modules[call.tool]}.Params({arguments})\n")
    return "".join(lines)


def with_bookends(task: Task) -> list[Call]:
    """Return all calls of a task's code action."""
    return [Call("begin_task", {"id": task.id}), *task.calls, Call("final_state", {})]


def direct(task: Task) -> list[Any]:
    """Return what the code action of a task must print: each call's result or error, and the final state."""
    instances = Instances(task)
    return [*(outcome(instances, call) for call in task.calls), instances.state()]


def outcome(instances: Instances, call: Call) -> Any:
    """Return what a direct call of a tool returns or raises."""
    if call == BREAKS_ITS_SCHEMA:
        return ["refused"]
    try:
        return instances.call(call.tool, call.arguments)
    except Exception as error:
        return ["failed", f"{type(error).__name__}: {error}"]
