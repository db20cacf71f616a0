"""The approvers of executions: of the call, of the constructor, or none; and those that don't decide."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ipybox import ApprovalRequest, CodeExecutionError, CodeExecutionResult, CodeExecutor
from ipybox.tool_exec.approval.policy import ApprovalPolicy
from tests import servers
from tests.conftest import Mode
from tests.servers import WAIT

pytestmark = pytest.mark.asyncio(loop_scope="module")

CALL = "from registered import scripted\nprint(scripted.run_sync('echo', {'text': 'hello'}))"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("approvers")
    servers.register(directory, scripted=servers.scripted())
    return directory


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor(workspace: Path, mode: Mode, shared: None) -> AsyncIterator[CodeExecutor]:
    """An executor whose own approver rejects all calls."""
    async with CodeExecutor(working_dir=workspace, sandbox=mode.sandbox, approver=rejecting("constructor")) as running:
        yield running


def rejecting(reason: str) -> Callable[[ApprovalRequest], Awaitable[object]]:
    async def reject(request: ApprovalRequest) -> None:
        await request.reject(reason)

    return reject


async def fails(executor: CodeExecutor, reason: str, **options: Any) -> None:
    with pytest.raises(CodeExecutionError, match=rf"ToolRunnerError: call to scripted\.echo was {reason}$"):
        await executor.execute(CALL, WAIT, **options)


async def test_the_approver_of_a_call_counts_before_that_of_the_constructor(executor: CodeExecutor):
    await fails(executor, "rejected: constructor")
    await fails(executor, "rejected: call", approver=rejecting("call"))
    assert (await executor.execute(CALL, approver=ApprovalRequest.accept)).text == "hello"


async def test_what_an_approver_changes_in_the_arguments_changes_no_call(executor: CodeExecutor):
    async def change_and_accept(request: ApprovalRequest) -> None:
        request.tool_args["text"] = "changed"
        await request.accept()
        request.tool_args.clear()

    assert (await executor.execute(CALL, approver=change_and_accept)).text == "hello"


async def test_a_sibling_has_the_same_approver(executor: CodeExecutor):
    async with executor.sibling() as sibling:
        await fails(sibling, "rejected: constructor")


async def test_a_stream_yields_the_request_to_its_consumer(executor: CodeExecutor):
    seen: list[str] = []
    async for item in executor.stream(CALL, WAIT):
        match item:
            case ApprovalRequest():
                seen.append(str(item))
                assert await item.accept()
                assert (await item.decided()).by == "application"
            case CodeExecutionResult():
                seen.append(item.text or "")
            case _:
                pytest.fail("a chunk that was not asked for")
    assert seen == ["scripted.echo(text='hello')", "hello"]


async def test_the_approver_of_the_constructor_decides_what_the_policy_asks_about(workspace: Path, mode: Mode):
    policy = ApprovalPolicy("rules:\n- {effect: allow, tool: pid}", workspace)
    async with CodeExecutor(
        working_dir=workspace, sandbox=mode.sandbox, approval_policy=policy, approver=rejecting("constructor")
    ) as executor:
        assert (await executor.execute("from registered import scripted\nscripted.run_sync('pid', {})", WAIT)).text
        await fails(executor, "rejected: constructor")


async def test_an_approver_that_fails_fails_the_call_and_the_next_one_works(executor: CodeExecutor):
    async def raises(_: ApprovalRequest) -> None:
        raise LookupError("no such rule")

    async def cancelled(_: ApprovalRequest) -> None:
        raise asyncio.CancelledError

    def plain(_: ApprovalRequest) -> bool:
        return True

    failed = "not approved: the approver failed"
    await fails(executor, f"{failed}: LookupError: no such rule", approver=raises)
    await fails(executor, f"{failed}: the approver was cancelled", approver=cancelled)
    await fails(executor, f"{failed}: TypeError: the approver is not an async function", approver=plain)
    assert (await executor.execute(CALL, approver=ApprovalRequest.accept)).text == "hello"


async def test_an_approver_that_returns_may_decide_later(executor: CodeExecutor):
    requests: asyncio.Queue[ApprovalRequest] = asyncio.Queue()

    async def accept_later() -> None:
        await (await requests.get()).accept()

    later = asyncio.create_task(accept_later())
    assert (await executor.execute(CALL, WAIT, approver=requests.put)).text == "hello"
    await later


async def test_a_call_fails_if_its_approver_returns_and_never_decides(workspace: Path, mode: Mode):
    requests: asyncio.Queue[ApprovalRequest] = asyncio.Queue()
    async with CodeExecutor(working_dir=workspace, sandbox=mode.sandbox, approval_timeout=0.3) as executor:
        await fails(executor, r"not approved: the approval request expired after 0\.3 s", approver=requests.put)
    assert requests.get_nowait().state == "expired"


async def test_an_approver_is_cancelled_with_its_execution(executor: CodeExecutor):
    requests: asyncio.Queue[ApprovalRequest] = asyncio.Queue()
    cancelled = asyncio.Event()

    async def wait(request: ApprovalRequest) -> None:
        requests.put_nowait(request)
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    execution = asyncio.create_task(executor.execute(CALL, WAIT, approver=wait))
    request = await requests.get()
    execution.cancel()
    async with asyncio.timeout(WAIT):
        await cancelled.wait()
    assert request.state == "cancelled"
    with pytest.raises(asyncio.CancelledError):
        await execution
