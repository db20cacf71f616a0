"""`CodeExecutor(approval_policy=…)`: rules decide on tool calls of a real kernel, outside of it."""

import asyncio
from pathlib import Path

import pytest

from ipybox import ApprovalRequest, CodeExecutionError, CodeExecutionResult, CodeExecutor
from ipybox.errors import PolicyError
from ipybox.tool_exec.approval.policy import ApprovalPolicy
from tests import servers
from tests.conftest import Mode

POLICY = """\
rules:
  - effect: allow
    tool: echo
    args: {text: [allowed]}
  - effect: deny
    tool: echo
    args: {text: {pattern: ^denied}}
"""


def call(text: str) -> str:
    return f"from registered import scripted; print(scripted.run_sync('echo', {{'text': {text!r}}}))"


async def asked(executor: CodeExecutor, text: str, *reasons: str) -> list[str]:
    """Returns the calls that are yielded, which are rejected if there is a reason, and last what is printed."""
    seen: list[str] = []
    async for item in executor.stream(call(text)):
        if isinstance(item, ApprovalRequest):
            seen.append(str(item))
            await (item.reject(*reasons) if reasons else item.accept())
        elif isinstance(item, CodeExecutionResult):
            seen.append(item.text or "")
    return seen


async def test_allowed_calls_run_denied_ones_fail_with_their_rule_and_others_reach_the_application(
    tmp_path: Path, mode: Mode
):
    servers.register(tmp_path, scripted=servers.scripted())
    file = tmp_path / "ipybox.yaml"
    file.write_text(POLICY)
    denied = "call to scripted.echo was rejected: denied by ipybox.yaml:5"
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox, approval_policy=file) as executor:
        assert await asked(executor, "allowed") == ["allowed"]
        assert await asked(executor, "other") == ["scripted.echo(text='other')", "other"]
        with pytest.raises(CodeExecutionError, match=f"{denied}$"):
            await asked(executor, "denied")
        with pytest.raises(CodeExecutionError, match=r"call to scripted\.echo was rejected: not on Sundays$"):
            await asked(executor, "other", "not on Sundays")

        assert (await executor.execute(call("allowed"))).text == "allowed"
        with pytest.raises(CodeExecutionError, match=f"{denied}$"):
            await executor.execute(call("denied"))
        in_background = (
            f"import threading; t = threading.Thread(target=lambda: exec({call('denied')!r})); t.start(); t.join()"
        )
        assert "denied by ipybox.yaml:5" in ((await executor.execute(in_background)).text or "")


async def test_execute_rejects_what_the_policy_asks_about_unless_its_approver_accepts_it(tmp_path: Path, mode: Mode):
    servers.register(tmp_path, scripted=servers.scripted())
    seen: list[str] = []

    async def approve(request: ApprovalRequest) -> None:
        seen.append(str(request))
        await (request.accept() if request.tool_args["text"] == "wanted" else request.reject("not wanted"))

    policy = ApprovalPolicy(POLICY, tmp_path)
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox, approval_policy=policy) as executor:
        with pytest.raises(CodeExecutionError, match=r"was rejected: .* use `stream`, or pass an `approver`$"):
            await executor.execute(call("other"))
        assert (await executor.execute(call("wanted"), approver=approve)).text == "wanted"
        with pytest.raises(CodeExecutionError, match=r"was rejected: not wanted$"):
            await executor.execute(call("other"), approver=approve)
        assert (await executor.execute(call("allowed"), approver=approve)).text == "allowed"
        with pytest.raises(CodeExecutionError, match="denied by policy:5"):
            await executor.execute(call("denied"), approver=approve)

    assert seen == ["scripted.echo(text='wanted')", "scripted.echo(text='other')"]


async def test_an_approver_that_takes_too_long_is_cancelled_and_the_call_fails(tmp_path: Path):
    servers.register(tmp_path, scripted=servers.scripted())
    cancelled = asyncio.Event()

    async def approve(_: ApprovalRequest) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with CodeExecutor(working_dir=tmp_path, approval_timeout=0.2) as executor:
        with pytest.raises(CodeExecutionError, match=r"was not approved: the approval request expired after 0\.2 s$"):
            await executor.execute(call("other"), approver=approve)
        assert cancelled.is_set()
        assert (await executor.execute(call("other"))).text == "other"


async def test_policy_may_be_made_by_the_application(tmp_path: Path):
    servers.register(tmp_path, scripted=servers.scripted())
    policy = ApprovalPolicy("default: deny", tmp_path, source="the rules of the house")
    async with CodeExecutor(working_dir=tmp_path, approval_policy=policy) as executor:
        with pytest.raises(CodeExecutionError, match=r"denied by the default of the rules of the house$"):
            await executor.execute(call("any"))


def test_wrong_policy_is_an_error_before_anything_starts(tmp_path: Path):
    file = tmp_path / "ipybox.yaml"
    file.write_text("rules: yes")
    with pytest.raises(PolicyError, match=r"^ipybox\.yaml:1: 'rules' must be a list"):
        CodeExecutor(working_dir=tmp_path, approval_policy=file)
