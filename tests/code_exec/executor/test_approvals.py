"""Tests that a tool call runs only after it was accepted, and what code and application see of that."""

import asyncio
from contextlib import aclosing, closing
from pathlib import Path

import pytest

from ipybox import ApprovalRequest, CodeExecutionChunk, CodeExecutionError, CodeExecutionResult, CodeExecutor
from ipybox.errors import ApprovalExpiredError
from tests import servers
from tests.code_exec.cells import text
from tests.conftest import Fifo
from tests.servers import WAIT

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def decide(executor: CodeExecutor, code: str, *decisions: str) -> CodeExecutionResult:
    """Executes code and accepts, rejects or ignores each of its calls."""
    pending = list(decisions)
    async for item in executor.stream(code, timeout=WAIT):
        match item:
            case ApprovalRequest():
                match pending.pop(0):
                    case "accept":
                        await item.accept()
                    case "reject":
                        await item.reject()
                    case _:
                        pass
            case CodeExecutionResult():
                assert pending == []
                return item
            case CodeExecutionChunk():
                pytest.fail("a chunk that was not asked for")
    raise AssertionError


async def test_execute_accepts_all_calls(approver: CodeExecutor):
    assert await text(approver, "call('a') + call('b')") == "'ab'"


async def test_a_request_shows_exactly_what_will_be_called(approver: CodeExecutor):
    requests: list[ApprovalRequest] = []
    async for item in approver.stream("scripted.run_sync('echo', {'text': 'ä', 'more': [1, None]})"):
        if isinstance(item, ApprovalRequest):
            requests.append(item)
            await item.accept()

    assert [(request.server_name, request.tool_name) for request in requests] == [("scripted", "echo")]
    assert requests[0].tool_args == {"text": "ä", "more": [1, None]}
    assert requests[0].server_params == servers.scripted()
    assert str(requests[0]) == "scripted.echo(text='ä', more=[1, None])"


@pytest.mark.parametrize(
    ("decision", "reason"),
    [
        ("reject", "ToolRunnerError: call to scripted.echo was rejected"),
        ("ignore", "ToolRunnerError: call to scripted.echo was not approved: the approval request expired after 1 s"),
    ],
)
async def test_a_call_that_is_not_accepted_fails_with_the_reason_and_the_next_one_works(
    approver: CodeExecutor, decision: str, reason: str
):
    with pytest.raises(CodeExecutionError) as error:
        await decide(approver, "print('before')\ncall('x')", decision)

    assert str(error.value).splitlines()[-1] == reason
    assert "----> 2 call('x')" in str(error.value)
    assert "tools/http.py" not in str(error.value)
    assert error.value.text == "before"
    assert await decide(approver, "call('y')", "accept") == CodeExecutionResult("'y'", [])


@pytest.mark.parametrize("answer", [True, False])
async def test_an_approver_that_returns_an_answer_instead_of_deciding_fails_the_call(
    approver: CodeExecutor, answer: bool
):
    async def returns(request: ApprovalRequest) -> bool:
        return answer

    with pytest.raises(CodeExecutionError, match=f"the approver returned {answer} without deciding"):
        await approver.execute("call('x')", approver=returns)


async def test_code_can_handle_a_rejection(approver: CodeExecutor):
    code = """
from ipybox.guest.tools.client import ToolRunnerError
for text in "abc":
    try:
        print(call(text))
    except ToolRunnerError as e:
        print(e)
"""
    result = await decide(approver, code, "accept", "reject", "accept")
    assert result.text == "a\ncall to scripted.echo was rejected\nc"


async def test_calls_are_decided_in_any_order(approver: CodeExecutor):
    code = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor() as pool:
    print(*pool.map(call, "ab"))
"""
    requests: list[ApprovalRequest] = []
    async for item in approver.stream(code, timeout=WAIT):
        if isinstance(item, ApprovalRequest):
            requests.append(item)
            if len(requests) == 2:
                for request in sorted(requests, key=lambda request: request.tool_args["text"], reverse=True):
                    await request.accept()
        elif isinstance(item, CodeExecutionResult):
            assert item.text == "a b"

    assert len(requests) == 2


async def test_a_late_decision_is_an_error(approver: CodeExecutor):
    items = approver.stream("call('late')")
    request = await anext(items)
    assert isinstance(request, ApprovalRequest)
    with pytest.raises(CodeExecutionError, match="expired"):
        await anext(items)
    with pytest.raises(ApprovalExpiredError, match=r"the decision on scripted\.echo came too late"):
        await request.accept()
    assert request.state == "expired"

    assert await decide(approver, "call('next')", "accept") == CodeExecutionResult("'next'", [])


async def test_the_timeout_counts_the_wait_for_an_approval(approver: CodeExecutor):
    with pytest.raises(TimeoutError, match=r"exceeded 0\.3 s: the kernel was interrupted and keeps its state"):
        async for _ in approver.stream("call('never approved')", timeout=0.3):
            pass

    assert await decide(approver, "call('next')", "accept") == CodeExecutionResult("'next'", [])


async def test_leaving_a_stream_withdraws_its_request(approver: CodeExecutor):
    requests: list[ApprovalRequest] = []
    async with aclosing(approver.stream("call('left')")) as items:
        async for item in items:
            assert isinstance(item, ApprovalRequest)
            requests.append(item)
            break
    async with asyncio.timeout(WAIT):
        assert not await requests[0].decided()
    assert requests[0].state == "cancelled"
    assert not await requests[0].accept()

    assert await decide(approver, "call('next')", "accept") == CodeExecutionResult("'next'", [])


async def test_a_call_while_no_code_is_executed_is_refused(approver: CodeExecutor):
    workspace = Path(await text(approver, "import os; print(os.getcwd())") or "")
    orders, outcomes = Fifo(workspace / "orders"), Fifo(workspace / "outcomes")
    code = f"""
import threading
def in_background():
    with open({str(orders.path)!r}) as lines:
        lines.readline()
    try:
        outcome = call("background")
    except Exception as e:
        outcome = str(e)
    with open({str(outcomes.path)!r}, "w") as lines:
        print(outcome, file=lines)
threading.Thread(target=in_background).start()
"""
    with closing(orders), closing(outcomes):
        assert await text(approver, code) is None
        orders.send("the execution has ended")
        assert await outcomes.line() == (
            "call to scripted.echo was not approved: the call was made while no cell was running"
        )
    assert await decide(approver, "call('next')", "accept") == CodeExecutionResult("'next'", [])


async def test_reset_stops_the_mcp_servers_which_start_again_at_their_next_call(approver: CodeExecutor):
    # The last test of this fixture: the kernel's names are gone after it.
    code = "from registered import scripted\nscripted.run_sync('pid', {})"
    first = (await text(approver, code) or "").strip("'")
    again = (await text(approver, code) or "").strip("'")
    await approver.reset()
    assert not servers.is_alive(int(first))
    fresh = (await text(approver, code) or "").strip("'")

    assert first == again != fresh


async def test_a_failing_tool_is_an_error_with_its_text(approver: CodeExecutor):
    with pytest.raises(CodeExecutionError) as error:
        await approver.execute("from registered import scripted\nscripted.run_sync('fail', {'text': 'it broke'})")

    assert str(error.value).splitlines()[-1] == "ToolRunnerError: it broke"


async def test_errors_show_the_line_also_where_all_of_a_tools_module_was_imported(executor: CodeExecutor):
    await executor.execute("from ipybox.tool_exec.client import ToolRunner\nCLIENT = ToolRunner('clock', {})")

    with pytest.raises(CodeExecutionError, match=r"----> 2 1 / 0"):
        await executor.execute("word = 'y'\n1 / 0")
