"""Functions of the application as tools of code: `CodeExecutor(tools=[…])`."""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import pytest
import pytest_asyncio
from pydantic import BaseModel

from ipybox import ApprovalRequest, CodeExecutionError, CodeExecutionResult, CodeExecutor
from ipybox.errors import ExecutionTimeoutError
from tests.audit.lines import events
from tests.code_exec.cells import text
from tests.conftest import Mode
from tests.servers import WAIT

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Order(BaseModel):
    id: int
    items: list[str]


#: Orders by their numbers, as an application has them in its memory.
ORDERS = {1: Order(id=1, items=["tea"])}


async def order(id: int) -> Order:  # noqa: A002 - a name that code may well use
    """Returns an order."""
    return ORDERS[id]


def delete_order(id: int) -> str:  # noqa: A002
    """Deletes an order."""
    return f"deleted {ORDERS.pop(id).id}"


def process(unit: Literal["decimal", "hexadecimal"] = "decimal") -> str:
    """Returns the id of the process that the function runs in."""
    return str(os.getpid()) if unit == "decimal" else hex(os.getpid())


def fails(path: str) -> int:
    """Fails."""
    raise LookupError(f"nothing at {path}")


class Waiting:
    """A function that waits, and what became of it."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def wait(self) -> None:
        """Waits for longer than any cell."""
        self.begun.set()
        try:
            await asyncio.sleep(10 * WAIT)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


@pytest.fixture(scope="module")
def waiting() -> Waiting:
    return Waiting()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def caller(
    tmp_path_factory: pytest.TempPathFactory, mode: Mode, waiting: Waiting, shared: None
) -> AsyncIterator[CodeExecutor]:
    """An executor whose code can call these functions, and whose policy denies one of them."""
    workspace = tmp_path_factory.mktemp("functions")
    rules = workspace / "ipybox.yaml"
    rules.write_text("default: allow\nrules:\n- {effect: deny, server: app, tool: delete_*}\n")
    async with CodeExecutor(
        working_dir=workspace,
        sandbox=mode.sandbox,
        approval_policy=rules,
        audit="full",
        tools=[order, delete_order, process, fails, waiting.wait],
    ) as running:
        yield running


async def test_code_calls_functions_with_types_in_the_process_of_the_application(caller: CodeExecutor):
    code = """
from mcptools.app import order, process
print(order.run(order.Params(id=1)).items[0])
print((await order.run_async(order.Params(id=1))).id)
print(process.run(process.Params()), process.run(process.Params(unit="hexadecimal")))
"""
    assert await text(caller, code) == f"tea\n1\n{os.getpid()} {hex(os.getpid())}"


async def test_a_failure_is_an_error_with_type_and_text_and_no_traceback_of_the_application(caller: CodeExecutor):
    with pytest.raises(CodeExecutionError) as error:
        await caller.execute("from mcptools.app import fails\nfails.run(fails.Params(path='x'))")

    assert str(error.value).splitlines()[-1] == "ToolRunnerError: LookupError: nothing at x"
    assert "test_functions.py" not in str(error.value)


async def test_the_policy_and_the_audit_log_name_the_server_app(caller: CodeExecutor):
    workspace = Path(await text(caller, "import os; print(os.getcwd())") or "")
    with pytest.raises(CodeExecutionError, match=r"call to app\.delete_order was rejected: denied by"):
        await caller.execute("from mcptools.app import delete_order\ndelete_order.run(delete_order.Params(id=1))")
    await caller.execute("from mcptools.app import order\norder.run(order.Params(id=1))")

    assert 1 in ORDERS
    denied, accepted = [line for line in events(workspace, "tool_call") if "order" in line["tool_name"]][-2:]
    assert (denied["server_name"], denied["tool_name"], denied["outcome"]) == ("app", "delete_order", "rejected")
    assert (accepted["server_name"], accepted["arguments"], accepted["outcome"]) == ("app", {"id": 1}, "ok")


async def test_code_that_forges_a_request_gets_a_refusal(caller: CodeExecutor):
    code = """
from ipybox.tool_exec.client import ToolRunner
from mcptools.app import CLIENT, order

def attempt(runner, tool, args):
    try:
        print(runner.run_sync(tool, args))
    except Exception as error:
        print(error)

attempt(ToolRunner.from_env("app", {"command": "true"}, seal=CLIENT._seal), "order", {"id": 1})
attempt(CLIENT, "order", {"id": "1"})
attempt(CLIENT, "order", {"id": 1, "self": 2})
attempt(CLIENT, "order.__globals__", {})
attempt(CLIENT, "exit", {})
"""
    known = "available: order, delete_order, process, fails, wait"
    assert (await text(caller, code) or "").splitlines() == [
        "'app' stands for the application's functions and takes no server parameters",
        "invalid arguments for order(): id: Input should be a valid integer",
        "invalid arguments for order(): self: Unexpected keyword argument",
        f"the application provides no function 'order.__globals__'; {known}",
        f"the application provides no function 'exit'; {known}",
    ]


async def test_the_timeout_of_a_cell_cancels_an_async_function(caller: CodeExecutor, waiting: Waiting):
    with pytest.raises(ExecutionTimeoutError):
        await caller.execute("from mcptools.app import wait\nwait.run(wait.Params())", timeout=2)

    async with asyncio.timeout(WAIT):
        await waiting.begun.wait()
        await waiting.cancelled.wait()
    assert await text(caller, "'usable'") == "'usable'"


async def test_a_sibling_calls_the_same_functions_through_the_same_package(caller: CodeExecutor):
    package = Path(await text(caller, "import os; print(os.getcwd())") or "") / "mcptools" / "app"
    before = package.stat().st_ino
    async with caller.sibling("other") as sibling:
        code = "from mcptools.app import order\nprint(order.run(order.Params(id=1)).items)"
        assert await text(sibling, code) == "['tea']"
    assert package.stat().st_ino == before


async def test_stream_asks_about_each_call(tmp_path: Path, mode: Mode):
    shown: list[str] = []
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox, tools=[order]) as executor:
        async for item in executor.stream("from mcptools.app import order\nprint(order.run(order.Params(id=1)).id)"):
            if isinstance(item, ApprovalRequest):
                shown.append(str(item))
                await item.accept()
            elif isinstance(item, CodeExecutionResult):
                assert item.text == "1"
    assert shown == ["app.order(id=1)"]


async def test_a_start_with_other_functions_replaces_the_package_and_old_modules_say_so(tmp_path: Path, mode: Mode):
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox, tools=[order, process]):
        assert (tmp_path / "mcptools" / "app" / "order.py").exists()
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox, tools=[process]) as executor:
        assert not (tmp_path / "mcptools" / "app" / "order.py").exists()
        assert await text(executor, "from mcptools.app import process\nprint(process.run(process.Params()))") == str(
            os.getpid()
        )
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox) as executor:
        with pytest.raises(CodeExecutionError, match=re.escape("the application provides no functions")):
            await executor.execute("from mcptools.app import process\nprint(process.run(process.Params()))")
