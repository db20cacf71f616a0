"""The audit log of an executor: cells, tool calls and decisions of real kernels, with and without a sandbox."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio

from ipybox import ApprovalRequest, CodeExecutionError, CodeExecutor, generate_mcp_sources
from ipybox.audit import writer
from ipybox.audit.audit import AuditLog
from ipybox.audit.records import MAX_ARGUMENTS, MAX_CODE
from ipybox.errors import AuditError, ExecutionCancelledError
from tests import servers
from tests.audit.lines import digest, events, log_of, steady
from tests.audit.test_log import file_size_limit, held_lock
from tests.conftest import Fifo, Mode

CALL = "from registered import scripted; print(scripted.run_sync('{tool}', {arguments}))"
ECHO = CALL.format(tool="echo", arguments="{'text': 'hello', 'api_key': 'k3y'}")
SESSION = {"session_name": "default"}
RULES = "rules:\n- {effect: allow, tool: echo, args: {text: hello}}\n- {effect: deny, tool: fail}\n"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    directory = tmp_path / "workspace"
    directory.mkdir()
    (directory / ".env").write_text("PASSPHRASE=correct-horse\n")
    servers.register(directory, scripted=servers.scripted())
    return directory


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workspace of `confined`."""
    directory = tmp_path_factory.mktemp("attacked")
    servers.register(directory, scripted=servers.scripted())
    return directory


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def confined(attacked: Path, shared: None) -> AsyncIterator[CodeExecutor]:
    """An executor in the sandbox, for all attacks."""
    async with CodeExecutor(working_dir=attacked, sandbox=True, audit="full") as executor:
        yield executor


async def fails(executor: CodeExecutor, code: str, timeout: float = 20) -> str:
    with pytest.raises((CodeExecutionError, TimeoutError)) as info:
        await executor.execute(code, timeout)
    return str(info.value)


async def test_cells_and_their_tool_calls_are_recorded(workspace: Path, mode: Mode):
    env = {"GREETING_TOKEN": "hello-from-env"}
    async with CodeExecutor(working_dir=workspace, sandbox=mode.sandbox, kernel_env=env, audit="full") as executor:
        await executor.execute(ECHO)
        await fails(executor, "print('before'); x = 'correct-horse hello-from-env'; 1 / 0")
        await fails(executor, CALL.format(tool="fail", arguments="{'text': 'not correct-horse'}"))
        await executor.reset()

    session, decision, call, cell = log_of(workspace)[:4]
    assert steady(session) == {"event": "session", **SESSION, "action": "start", "sandbox": mode.sandbox}
    names = {"server_name": "scripted", "tool_name": "echo"}
    arguments = {"text": "hello", "api_key": "k3y"}
    hashed = {"arguments_hash": digest(arguments)}
    assert steady(decision) == {"event": "decision", **SESSION, **names, **hashed, "accepted": True, "by": "auto"}
    redacted = {"arguments": {"text": "hello", "api_key": "[redacted]"}}
    assert steady(call) == {"event": "tool_call", **SESSION, **names, **redacted, **hashed, "outcome": "ok"}
    code = {"code": ECHO.replace("k3y", "[redacted]"), "code_hash": digest(ECHO), "code_chars": len(ECHO)}
    assert steady(cell) == {"event": "cell", **SESSION, **code, "outcome": "ok", "output_chars": 5}
    assert {line["session_id"] for line in log_of(workspace)} == {session["session_id"]}
    assert decision["cell_id"] == call["cell_id"] == cell["cell_id"]
    assert decision["tool_call_id"] == call["tool_call_id"]
    assert session["time"] < decision["time"] <= call["time"] <= cell["time"]
    assert 0 < call["duration"] <= cell["duration"]

    _, failed, failing = events(workspace, "cell")
    assert failed["code"] == "print('before'); x = '${PASSPHRASE} ${GREETING_TOKEN}'; 1 / 0"
    assert (failed["outcome"], failed["output_chars"]) == ("error", len("before"))
    _, call = events(workspace, "tool_call")
    said = {"outcome": "error", "error_type": "tool_error", "error": "not ${PASSPHRASE}"}
    assert call.items() >= {**said, "cell_id": failing["cell_id"]}.items()
    assert [line["action"] for line in events(workspace, "session")] == ["start", "reset", "stop"]


async def test_hashes_take_the_place_of_code_and_arguments_if_that_is_chosen(workspace: Path):
    async with CodeExecutor(working_dir=workspace, audit="hash") as executor:
        await executor.execute(CALL.format(tool="echo", arguments="{'text': 'PIN 1234'}"))
        await fails(executor, CALL.format(tool="fail", arguments="{'text': 'PIN 1234'}"))
    assert "1234" not in (workspace / ".ipybox" / "audit.jsonl").read_text()
    (first, second) = events(workspace, "tool_call")
    assert first["arguments_hash"] == second["arguments_hash"] == digest({"text": "PIN 1234"})
    assert "code" not in events(workspace, "cell")[0]


async def test_it_is_recorded_how_cells_end(workspace: Path, fifo: Fifo):
    async with CodeExecutor(working_dir=workspace, audit="full") as executor:
        await fails(executor, "print('x' * 10); import time; time.sleep(60)", timeout=0.5)
        begins = f"import time; open({str(fifo.path)!r}, 'w').write('begun\\n'); time.sleep(60)"
        cell = asyncio.create_task(executor.execute(begins))
        await fifo.until("begun")
        executor.cancel()
        with pytest.raises(ExecutionCancelledError):
            await cell
        async for _ in executor.stream("print('first', flush=True); import time; time.sleep(60)", chunks=True):
            break
        await fails(executor, "import os; os.kill(os.getpid(), 9)")
        await executor.execute("1")
    outcomes = [(line["outcome"], line["output_chars"]) for line in events(workspace, "cell")]
    assert outcomes == [("timeout", 10), ("cancelled", 0), ("cancelled", 0), ("error", 0), ("ok", outcomes[-1][1])]
    # On a busy machine an interrupt can take longer than its grace, which is one more restart.
    actions = dict.fromkeys(line["action"] for line in events(workspace, "session"))
    assert list(actions) == ["start", "restart", "stop"]


async def test_decisions_say_who_made_them(workspace: Path, fifo: Fifo):
    (workspace / "ipybox.yaml").write_text(RULES)

    async def decide(code: str, *decisions: str | bool | None) -> None:
        answers = list(decisions)
        with suppress(CodeExecutionError):
            async for item in executor.stream(code):
                if isinstance(item, ApprovalRequest):
                    match answers.pop(0):
                        case str(reason):
                            await item.reject(reason)
                        case True:
                            await item.accept(by="alice", because="she knows it")
                        case False:
                            await item.reject()
                        case None:
                            pass
        assert answers == []

    async with CodeExecutor(
        working_dir=workspace, approval_policy=workspace / "ipybox.yaml", approval_timeout=0.3, audit="hash"
    ) as executor:
        await decide(CALL.format(tool="echo", arguments="{'text': 'hello'}"))
        await decide(CALL.format(tool="fail", arguments="{'text': 'x'}"))
        for answer in (True, False, "too early", None):
            await decide(CALL.format(tool="pid", arguments="{}"), answer)
        call = CALL.format(tool="pid", arguments={})
        late = f"def call():\n    try: {call}\n    finally: open({str(fifo.path)!r}, 'w').write('over\\n')\n"
        await executor.execute(f"{late}import threading; threading.Timer(0.1, call).start()")
        await fifo.until("over")

    decisions = [(line["accepted"], line["by"], line.get("reason")) for line in events(workspace, "decision")]
    assert decisions == [
        (True, "rule", "allowed by ipybox.yaml:2"),
        (False, "rule", "denied by ipybox.yaml:3"),
        (True, "alice", "she knows it"),
        (False, "application", None),
        (False, "application", "too early"),
        (False, "timeout", "the approval request expired after 0.3 s"),
        (
            False,
            "nobody",
            "the call was made while no cell was running",
        ),
    ]
    calls = events(workspace, "tool_call")
    assert [line["outcome"] for line in calls] == ["ok", "rejected", "ok", *["rejected"] * 4]
    assert "cell_id" not in calls[-1], "it was made between two cells"


async def test_executors_that_share_a_gateway_are_told_apart(workspace: Path):
    async with CodeExecutor(working_dir=workspace, audit="hash") as executor, executor.sibling("other") as other:
        await asyncio.gather(executor.execute(ECHO), other.execute(ECHO))
    calls, cells = events(workspace, "tool_call"), events(workspace, "cell")
    assert {line["session_name"] for line in calls} == {"default", "other"}
    places = [{(line["session_id"], line["session_name"], line["cell_id"]) for line in part} for part in (calls, cells)]
    assert places[0] == places[1]
    assert len(places[0]) == 2


async def test_what_is_long_is_cut(workspace: Path):
    code = f"{CALL.format(tool='echo', arguments='dict(text=long)')} # {'y' * 20_000}"
    async with CodeExecutor(working_dir=workspace, audit="full") as executor:
        await executor.execute(f"long = 'x' * 1_000_000 + 'z'\n{code}")
    (call,), (cell,) = events(workspace, "tool_call"), events(workspace, "cell")
    assert call["arguments"]["text"].endswith("x[... truncated, 1,000,001 characters in total ...]")
    assert call["arguments_hash"] == digest({"text": "x" * 1_000_000 + "z"})
    assert len(json.dumps(call["arguments"])) < MAX_ARGUMENTS
    assert len(cell["code"]) < MAX_CODE + 100


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "attack",
    [
        pytest.param("open('.ipybox/audit.jsonl', 'a').write('x')", id="append"),
        pytest.param("open('.ipybox/audit.jsonl', 'w')", id="truncate"),
        pytest.param("os.truncate('.ipybox/audit.jsonl', 0)", id="truncate_by_path"),
        pytest.param("os.unlink('.ipybox/audit.jsonl')", id="unlink"),
        pytest.param("os.rename('.ipybox/audit.jsonl', 'away')", id="rename"),
        pytest.param("open('x', 'w').close(); os.replace('x', '.ipybox/audit.jsonl')", id="replace"),
        pytest.param("os.symlink('x', '.ipybox/audit.9.jsonl')", id="link_for_a_full_file"),
        pytest.param("os.link('.ipybox/audit.jsonl', 'alias'); open('alias', 'w')", id="hard_link"),
        pytest.param("os.chmod('.ipybox/audit.jsonl', 0o666)", id="mode"),
        pytest.param("os.rename('.ipybox', 'away')", id="rename_directory"),
        pytest.param("os.makedirs('evil', exist_ok=True); os.replace('evil', '.ipybox')", id="replace_directory"),
        pytest.param("subprocess.run(['mount', '-o', 'remount,rw', '.ipybox'], check=True)", id="remount"),
    ],
)
async def test_code_in_the_sandbox_can_not_change_the_log(confined: CodeExecutor, attacked: Path, attack: str):
    before = (attacked / ".ipybox" / "audit.jsonl").read_bytes()
    said = await fails(confined, f"import os, subprocess\n{attack}")
    assert any(error in said for error in ("Read-only", "OSError", "PermissionError", "CalledProcessError")), said
    after = (attacked / ".ipybox" / "audit.jsonl").read_bytes()
    assert after.startswith(before)
    assert events(attacked, "cell")[-1]["code"].endswith(attack)


@pytest.mark.asyncio(loop_scope="module")
async def test_what_the_sandbox_and_the_tool_server_refuse_is_recorded(confined: CodeExecutor, attacked: Path):
    await fails(confined, "open('/etc/new', 'w')")
    (denial,) = events(attacked, "denial")[-1:]
    assert denial["by"] == "sandbox"
    assert denial["message"].startswith("The sandbox refused to write /etc/new")
    assert denial["cell_id"] == events(attacked, "cell")[-1]["cell_id"]

    made_up = "ToolRunner.from_env('evil', {'command': 'sh'}).run_sync('x', {})"
    await fails(confined, f"from ipybox.tool_exec.client import ToolRunner\n{made_up}")
    denial = events(attacked, "denial")[-1]
    assert denial["by"] == "tool_server"
    assert "is not registered in this workspace with these parameters" in denial["message"]
    assert "evil" in denial["message"]


async def test_no_tool_runs_while_it_can_not_be_recorded(workspace: Path):
    log = AuditLog(workspace)
    async with CodeExecutor(working_dir=workspace, audit=log) as executor:
        await executor.execute(ECHO)
        with file_size_limit(log.file.path.stat().st_size + 10):
            said = await fails(executor, ECHO)
            assert "call to scripted.echo was not made: can't write the audit log: " in said
            with pytest.raises(AuditError, match="No space left"):
                await executor.execute("1")
        assert (await executor.execute("1")).text == "1"
    assert [line["missing"] for line in events(workspace, "gap")] == [3]


async def test_a_process_that_holds_the_logs_lock_holds_up_tool_calls_only(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(writer, "WRITE_LIMIT", 1.0)
    async with CodeExecutor(working_dir=workspace, audit="full") as executor, executor.sibling("other") as other:
        await executor.execute(ECHO)
        with held_lock(workspace):
            call = asyncio.create_task(fails(executor, ECHO))
            for number in range(3):
                assert (await other.execute(f"{number}")).text == f"{number}"
            assert not call.done()
            assert (
                "echo was not made: can't write the audit log: nothing could be written for 1 s; end the" in await call
            )
            await other.reset()
            assert (await other.execute("'after'")).text == "'after'"
        assert (await executor.execute(ECHO)).text == "hello"

    assert events(workspace, "gap") == []
    cells = [(line["session_name"], line["outcome"]) for line in events(workspace, "cell")]
    own = [cell for cell in cells if cell[0] == "default"]
    assert (own, len(cells)) == ([("default", "ok"), ("default", "error"), ("default", "ok")], 7)
    assert [line["outcome"] for line in events(workspace, "tool_call")] == ["ok", "rejected", "ok"]


async def test_log_that_can_not_be_opened_is_an_error_before_anything_starts(workspace: Path):
    (workspace / ".ipybox").touch()
    with pytest.raises(AuditError, match=r"can't write the audit log: .*\.ipybox is not a directory"):
        CodeExecutor(working_dir=workspace, audit="full")


async def test_registrations_are_recorded_as_they_were_written(workspace: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CREDENTIAL", "fr0m-the-env")
    log = AuditLog(workspace)
    params = servers.scripted() | {"env": {"API_KEY": "literal", "X": "${CREDENTIAL}", "Y": "fr0m-the-env"}}
    await generate_mcp_sources("scripted", params, workspace / "mcptools", audit=log)
    (workspace / "mcptools" / "scripted" / "echo.py").touch()
    with pytest.raises(ValueError, match="not a valid"):
        await generate_mcp_sources("no/name", params, workspace / "mcptools", audit=log)
    log.close()

    done, failed = events(workspace, "registration")
    assert done.items() >= {"server_name": "scripted", "outcome": "ok", "new": True}.items()
    assert "echo" in done["tools"]
    assert done["server_params"]["env"] == {"API_KEY": "[redacted]", "X": "${CREDENTIAL}", "Y": "${CREDENTIAL}"}
    assert (failed["server_name"], failed["outcome"]) == ("no/name", "error")
    assert "no/name" in failed["error"]
