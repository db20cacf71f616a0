"""A session as a notebook: what executors have kept, and what their audit log has."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import nbformat
import pytest

from ipybox import ApprovalRequest, CodeExecutionError, CodeExecutor, Executor
from ipybox.errors import ExecutionTimeoutError
from ipybox.kernel_mgr import timeouts
from tests.code_exec.cells import SLEEPS, SWALLOWS_INTERRUPTS, begun
from tests.conftest import Mode

TABLE = "import pandas as pd, sys\nprint('table', file=sys.stderr)\npd.DataFrame({'a': [1, 2]})"
PLOT = "import matplotlib.pyplot as plt\nplt.plot([1, 4, 9])\nplt.show()"
CALLS = """
from mcptools.app import double
print(double.run(double.Params(x=2, api_key="hunter2hunter2")).result)
double.run(double.Params(x=7, api_key="fr0m-the-env"))
"""
LOST = "**State was lost here.** "


def double(x: int, api_key: str) -> int:
    """Doubles a number."""
    return 2 * x


async def decide(request: ApprovalRequest) -> None:
    if request.tool_args["x"] > 5:
        await request.reject("too large")
    else:
        await request.accept(by="alice", because="small")


def cells(notebook: nbformat.NotebookNode) -> list[dict[str, Any]]:
    """Returns the cells of a notebook, which has to be valid, also after it was written and read."""
    nbformat.validate(notebook)
    read = cast(Any, nbformat).reads(cast(Any, nbformat).writes(notebook), as_version=nbformat.NO_CONVERT)
    assert read == notebook
    assert (read["nbformat"], read["nbformat_minor"]) == (4, 5)
    return json.loads(json.dumps(notebook["cells"]))


def run(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture(autouse=True)
def short_interrupt_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "INTERRUPT_GRACE", 0.5)


@pytest.mark.slow
async def test_a_session_becomes_a_notebook_while_it_runs_and_when_it_is_over(
    tmp_path: Path, mode: Mode, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SERVICE_TOKEN", "fr0m-the-env")
    options: dict[str, Any] = {"sandbox": mode.sandbox, "tools": [double], "approver": decide, "audit": "full"}
    async with CodeExecutor(working_dir=tmp_path, **options) as executor:
        result = await executor.execute(TABLE)
        await executor.execute(PLOT)
        with pytest.raises(CodeExecutionError) as rejected:
            await executor.execute(CALLS)
        await executor.reset()
        await executor.execute("6 * 7")
        table, plot, calls, lost, value = shown = cells(executor.notebook())

    (warning, frame), (image,), (printed, error) = (cell["outputs"] for cell in (table, plot, calls))
    assert warning == {"output_type": "stream", "name": "stderr", "text": "table\n"}
    assert (frame["output_type"], frame["execution_count"]) == ("execute_result", 1)
    assert frame["data"] == dict(cast(Any, result.outputs[-1]).data)
    assert "<table" in frame["data"]["text/html"]
    assert image["output_type"] == "display_data"
    assert image["data"]["image/png"].startswith("iVBOR")
    assert printed["text"] == "4\n"
    assert (error["output_type"], error["ename"]) == ("error", "ToolRunnerError")
    assert error["evalue"] == "call to app.double was rejected: too large"
    assert error["traceback"][-1] == f"ToolRunnerError: {error['evalue']}"
    assert lost["source"].startswith(f"{LOST}The kernel was reset: ")
    assert (value["execution_count"], value["outputs"][0]["data"]) == (4, {"text/plain": "42"})
    first, second = calls["metadata"]["ipybox"]["tool_calls"]
    assert first.items() >= {"server_name": "app", "tool_name": "double", "outcome": "ok"}.items()
    assert first["arguments"] == second["arguments"] | {"x": 2} == {"x": 2, "api_key": "[redacted]"}
    assert first["decision"] == {"accepted": True, "by": "alice", "reason": "small"}
    assert second["decision"] == {"accepted": False, "by": "application", "reason": "too large"}
    assert (second["outcome"], second["error"]) == ("rejected", "too large")
    assert "hunter2" not in json.dumps(shown)
    assert "fr0m-the-env" not in json.dumps(shown)
    assert 'Params(x=2, api_key="[redacted]")' in calls["source"]
    assert 'Params(x=7, api_key="${SERVICE_TOKEN}")' in calls["source"]
    assert "${SERVICE_TOKEN}" in "\n".join(error["traceback"])

    (alone,) = cells(result.to_notebook())
    assert alone == table
    (alone,) = cells(rejected.value.to_notebook())
    assert alone == calls | {"id": "cell-1"}

    done = run("ipybox", "notebook", "default", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("default.ipynb: default ")
    logged = cells(cast(Any, nbformat).read(tmp_path / "default.ipynb", as_version=nbformat.NO_CONVERT))
    assert "the audit log doesn't record them" in logged[0]["source"]
    assert [cell.get("outputs") for cell in logged[1:]] == [[], [], [], None, []]
    assert [cell["source"] for cell in logged[1:]] == [cell["source"] for cell in shown]
    assert logged[3]["metadata"]["ipybox"]["tool_calls"] == calls["metadata"]["ipybox"]["tool_calls"]

    cast(Any, nbformat).write(executor.notebook(), tmp_path / "live.ipynb")
    done = run("nbconvert", "--to", "html", "live.ipynb", "default.ipynb", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in ("live", "default"):
        page = (tmp_path / f"{name}.html").read_text()
        assert "State was lost here." in page
        assert ('src="data:image/png;base64,iVBOR' in page) == ("ToolRunnerError" in page) == (name == "live")


async def test_it_shows_where_the_kernel_was_replaced_and_what_ended_without_an_exception(tmp_path: Path, mode: Mode):
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox) as executor:
        await executor.execute("x = 1")
        with pytest.raises(CodeExecutionError, match="died"):
            await executor.execute("print('before', flush=True); import os; os.kill(os.getpid(), 9)")
        with pytest.raises(ExecutionTimeoutError) as info:
            await executor.execute(SWALLOWS_INTERRUPTS, timeout=2)
        await executor.execute("2")
        first, died, lost, timeout, lost_again, last = cells(executor.notebook())
        async with executor.sibling() as sibling:
            assert cells(sibling.notebook()) == []
    assert [cell["execution_count"] for cell in (first, died, timeout, last)] == [1, 2, 3, 4]
    assert died["outputs"][-1]["ename"] == "CodeExecutionError"
    assert [cell["source"].startswith(f"{LOST}The kernel died") for cell in (lost, lost_again)] == [True, True]
    assert timeout["metadata"]["ipybox"]["outcome"] == "timeout"
    assert "its state is lost" in timeout["outputs"][-1]["evalue"]
    assert timeout["metadata"]["ipybox"]["notices"][0].startswith("The kernel died")
    assert cells(info.value.to_notebook())[0]["outputs"] == timeout["outputs"]


async def test_the_audit_log_shows_the_same_losses_of_state(tmp_path: Path, mode: Mode):
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox, audit="full") as executor:
        with pytest.raises(ExecutionTimeoutError):
            await executor.execute(SWALLOWS_INTERRUPTS, timeout=2)
        with pytest.raises(CodeExecutionError):
            await executor.execute("import os; os.kill(os.getpid(), 9)")
        running = await begun(executor, SLEEPS)
        await executor.reset()
        with pytest.raises(CodeExecutionError, match="reset while"):
            await running
        kept = cells(executor.notebook())
    done = run("ipybox", "notebook", "default", "--output", "-", cwd=tmp_path)
    assert done.stderr == ""
    logged = json.loads(done.stdout)["cells"][1:]
    assert [cell["cell_type"] for cell in kept] == ["code", "markdown"] * 3
    assert ["".join(cell["source"]) for cell in logged] == [cell["source"] for cell in kept]


def test_an_executor_without_an_event_loop_has_it_also_after_its_end(tmp_path: Path, mode: Mode):
    with Executor(working_dir=tmp_path, sandbox=mode.sandbox) as executor:
        executor.run("'a value'")
        running = cells(executor.notebook())
    assert running[0]["outputs"][0]["data"] == {"text/plain": "'a value'"}
    assert cells(executor.notebook()) == running


async def test_without_room_for_it_nothing_is_kept(tmp_path: Path, mode: Mode):
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox, notebook_bytes=0) as executor:
        result = await executor.execute("1")
        with pytest.raises(CodeExecutionError) as info:
            await executor.execute("1 / 0")
    for export in (result.to_notebook, info.value.to_notebook, executor.notebook):
        with pytest.raises(RuntimeError, match="`notebook_bytes` above 0"):
            export()
