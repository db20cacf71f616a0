"""A batch (`run_many`): decided on once, executed exactly as it was sent, and answered in order."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ipybox import ApprovalRequest, CodeExecutionError, CodeExecutionResult, CodeExecutor
from ipybox.errors import ExecutionCancelledError
from ipybox.tool_exec.approval.request import accepts_batches
from tests import servers
from tests.audit.lines import events
from tests.code_exec.cells import text
from tests.conftest import Mode
from tests.faults.processes import until_there
from tests.servers import WAIT

pytestmark = pytest.mark.asyncio(loop_scope="module")

RULES = """
rules:
- {effect: deny, args: {text: {pattern: "^drop"}}}
- {effect: allow, args: {text: {pattern: "^free"}}}
"""
#: Calls `put` with these texts, and prints what became of each.
PUT = """
from mcptools.app import put
texts = {texts!r}
for outcome in put.run_many([put.Params(text=text) for text in texts]):
    print(repr(outcome) if isinstance(outcome, Exception) else outcome)
"""


#: Changes a batch after the file `asked` says that the person looks at it, and then removes the file.
CHANGES = """
import threading
from pathlib import Path
from mcptools.app import put

params_list = [put.Params(text=text) for text in "abc"]
outcomes = []
batch = threading.Thread(target=lambda: outcomes.extend(put.run_many(params_list)))
batch.start()
while not Path("asked").exists():
    batch.join(0.01)
for params in params_list:
    params.text = "evil"
params_list.append(put.Params(text="evil"))
Path("asked").unlink()
batch.join()
print(outcomes)
"""

#: Sends a batch from a thread, and ignores interrupts until it is answered.
IGNORES = """
import signal, threading, time
from pathlib import Path
from mcptools.app import put

signal.signal(signal.SIGINT, lambda *_: Path("interrupted").touch())
outcomes = []
params_list = [put.Params(text=text) for text in ("hold", "b", "c")]
threading.Thread(target=lambda: outcomes.extend(put.run_many(params_list))).start()
while not outcomes:
    time.sleep(0.01)
"""

#: Sends a batch from a thread, and fails once its first call has arrived.
FAILS = """
import threading, time
from pathlib import Path
from mcptools.app import put

params_list = [put.Params(text=text) for text in ("hold", "b", "c")]
threading.Thread(target=put.run_many, args=(params_list,)).start()
while not Path("arrived").exists():
    time.sleep(0.01)
1 / 0
"""


class Store:
    """Functions of an application, and what they were called with."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.running = self.most = 0
        self.hangs, self.goes_on = asyncio.Event(), asyncio.Event()
        self.three = asyncio.Barrier(3)

    async def put(self, text: str) -> str:
        """Stores a text."""
        self.texts.append(text)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if text.startswith("free meet"):
                await self.three.wait()
            if text == "hang":
                self.hangs.set()
                await asyncio.sleep(10 * WAIT)
            if text == "hold":
                self.hangs.set()
                await self.goes_on.wait()
            if text == "bad":
                raise ValueError("no such text")
            return f"stored {text}"
        finally:
            self.running -= 1


class Person:
    """Decides on each request as told, and keeps them."""

    def __init__(self) -> None:
        self.requests: list[ApprovalRequest] = []
        self.reason: str | None = None

    async def decide(self, request: ApprovalRequest) -> None:
        self.requests.append(request)
        await (request.accept() if self.reason is None else request.reject(self.reason))

    @accepts_batches
    async def decide_many(self, request: ApprovalRequest) -> None:
        await self.decide(request)


@pytest.fixture(scope="module")
def store() -> Store:
    return Store()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def caller(
    tmp_path_factory: pytest.TempPathFactory, mode: Mode, store: Store, shared: None
) -> AsyncIterator[CodeExecutor]:
    workspace = tmp_path_factory.mktemp("batches")
    rules = workspace / "ipybox.yaml"
    rules.write_text(RULES)
    async with CodeExecutor(
        working_dir=workspace, sandbox=mode.sandbox, approval_policy=rules, audit="full", tools=[store.put]
    ) as running:
        yield running


@pytest.fixture(autouse=True)
def fresh(store: Store) -> None:
    store.texts.clear()
    store.running = store.most = 0
    store.hangs.clear()
    store.goes_on.clear()


async def lines(caller: CodeExecutor, code: str, approver: Any) -> list[str]:
    async with asyncio.timeout(WAIT):
        return ((await caller.execute(code, approver=approver)).text or "").splitlines()


async def test_a_batch_is_one_request_for_what_no_rule_decides(caller: CodeExecutor, store: Store):
    person = Person()
    printed = await lines(caller, PUT.format(texts=["a", "drop b", "free c", "bad", "e"]), person.decide_many)

    assert printed == [
        "stored a",
        "ToolRunnerError('call to app.put was rejected: denied by ipybox.yaml:3')",
        "stored free c",
        "ToolRunnerError('ValueError: no such text')",
        "stored e",
    ]
    assert store.texts == ["a", "free c", "bad", "e"], "one after the other, in this order"
    assert store.most == 1
    (request,) = person.requests
    assert request.calls == [{"text": "a"}, {"text": "bad"}, {"text": "e"}]
    assert str(request) == "3 calls to app.put: (text='a'), (text='bad'), (text='e')"
    with pytest.raises(ValueError, match="the request is about 3 calls"):
        _ = request.tool_args


async def test_a_batch_that_is_rejected_runs_only_what_a_rule_allows(caller: CodeExecutor, store: Store):
    person = Person()
    person.reason = "not today"
    printed = await lines(caller, PUT.format(texts=["a", "free b", "c"]), person.decide_many)

    rejected = "ToolRunnerError('call to app.put was rejected: not today')"
    assert printed == [rejected, "stored free b", rejected]
    assert store.texts == ["free b"]
    assert len(person.requests) == 1


async def test_other_approvers_and_streams_get_one_request_per_call(caller: CodeExecutor, store: Store):
    person = Person()
    code = PUT.format(texts=["a", "free b", "c"])
    stored = ["stored a", "stored free b", "stored c"]
    assert await lines(caller, code, person.decide) == stored
    assert [request.tool_args["text"] for request in person.requests] == ["a", "c"]

    for batches in (False, True):
        seen: list[list[dict[str, Any]]] = []
        async for event in caller.stream(code, WAIT, batches=batches):
            if isinstance(event, ApprovalRequest):
                seen.append(event.calls)
                await event.accept()
            elif isinstance(event, CodeExecutionResult):
                assert (event.text or "").splitlines() == stored
        assert seen == ([[{"text": "a"}, {"text": "c"}]] if batches else [[{"text": "a"}], [{"text": "c"}]])


async def test_code_can_not_change_a_batch_that_a_person_looks_at(caller: CodeExecutor, store: Store):
    asked = Path(await text(caller, "import os; print(os.getcwd())") or "") / "asked"
    async for event in caller.stream(CHANGES, WAIT, batches=True):
        if isinstance(event, ApprovalRequest):
            assert event.calls == [{"text": "a"}, {"text": "b"}, {"text": "c"}]
            asked.touch()
            await servers.until(lambda: not asked.exists())
            event.calls[0]["text"] = "evil"
            await event.accept()
        elif isinstance(event, CodeExecutionResult):
            assert event.text == "['stored a', 'stored b', 'stored c']"
    assert store.texts == ["a", "b", "c"]


async def test_an_answer_is_good_for_no_other_batch(caller: CodeExecutor, store: Store):
    person = Person()
    await lines(caller, PUT.format(texts=["a", "b"]) * 2, person.decide_many)

    assert [request.calls for request in person.requests] == [[{"text": "a"}, {"text": "b"}]] * 2
    assert len({request.id for request in person.requests}) == 2


async def test_code_chooses_how_many_calls_run_concurrently(caller: CodeExecutor, store: Store):
    code = """
from mcptools.app import put
params = [put.Params(text=f"free meet {n}") for n in range(9)]
outcomes = await put.run_many_async(params, concurrency=3)
print(outcomes == [f"stored free meet {n}" for n in range(9)], put.run_many([]))
for concurrency in (0, 65):
    try:
        put.run_many(params, concurrency=concurrency)
    except ValueError as error:
        print(error)
"""
    assert await text(caller, code) == (
        "True []\nconcurrency must be from 1 to 64, not 0\nconcurrency must be from 1 to 64, not 65"
    )
    assert store.most == 3
    assert len(store.texts) == 9


BAD = {
    "unserializable": ("put.Params.model_construct(text=object())", "params_list[1].text is of type object"),
    "no params": ("{'text': 'c'}", "params_list[1] of put: the argument is a dict"),
    "huge": ("put.Params(text='x' * (64 << 20))", "3 calls to put at once: they are 64 MiB, and the limit is 64 MiB"),
    "many": ("*[a] * 9999", "10,001 calls to put at once: the limit is 10,000; none was sent"),
}


@pytest.mark.parametrize("bad", BAD)
async def test_a_batch_that_can_not_be_sent_is_an_error_and_nothing_runs(caller: CodeExecutor, store: Store, bad: str):
    member, problem = BAD[bad]
    code = f"from mcptools.app import put\na = put.Params(text='free')\nput.run_many([a, {member}, a])"
    with pytest.raises(CodeExecutionError) as error:
        await caller.execute(code)

    assert problem in str(error.value)
    assert store.texts == []


async def test_a_batch_without_a_list_is_an_error(caller: CodeExecutor, store: Store):
    with pytest.raises(CodeExecutionError, match=r"run_many of put takes a list of Params\(\.\.\.\)"):
        await caller.execute("from mcptools.app import put\nput.run_many(put.Params(text='free'))")
    assert store.texts == []


async def test_a_batch_that_is_cancelled_starts_no_more_calls(caller: CodeExecutor, store: Store):
    person = Person()
    workspace = Path(await text(caller, "import os; print(os.getcwd())") or "")
    code = PUT.format(texts=["a", "hang", "c", "d"])
    running = asyncio.create_task(caller.execute(code, WAIT, approver=person.decide_many))
    async with asyncio.timeout(WAIT):
        await store.hangs.wait()
        assert caller.status.waits_for == "app.put: 1 of 4 calls are done"
        caller.cancel()
        with pytest.raises(ExecutionCancelledError) as error:
            await running
    assert error.value.notices[0].startswith("Before this error: app.put ×1 done, app.put ×1 sent (answer unknown)")
    assert error.value.notices[0].endswith(", 2 not started.")

    assert store.texts == ["a", "hang"]
    assert await text(caller, "print(1)") == "1"
    assert caller.status.waits_for == ""
    calls = events(workspace, "tool_call")[-4:]
    assert len({call["batch_id"] for call in calls}) == 1
    assert {call["arguments"]["text"]: (call["outcome"], call.get("error")) for call in calls} == {
        "a": ("ok", None),
        "hang": ("cancelled", None),
        "c": ("cancelled", "the batch was cancelled before this call"),
        "d": ("cancelled", "the batch was cancelled before this call"),
    }


async def test_a_batch_of_a_thread_starts_no_more_calls_once_its_cell_is_interrupted(
    caller: CodeExecutor, store: Store
):
    workspace = Path(await text(caller, "import os; print(os.getcwd())") or "")
    running = asyncio.create_task(caller.execute(IGNORES, WAIT, approver=Person().decide_many))
    async with asyncio.timeout(WAIT):
        await store.hangs.wait()
        caller.cancel()
        await until_there(workspace / "interrupted")
        store.goes_on.set()
        with pytest.raises(ExecutionCancelledError) as error:
            await running
    assert store.texts == ["hold"]
    assert error.value.notices == ["Before this error: app.put ×1 done, 2 not started."]


async def test_an_error_counts_the_calls_of_a_batch_that_has_not_ended(caller: CodeExecutor, store: Store):
    workspace = Path(await text(caller, "import os; print(os.getcwd())") or "")
    running = asyncio.create_task(caller.execute(FAILS, WAIT, approver=Person().decide_many))
    async with asyncio.timeout(WAIT):
        await store.hangs.wait()
        (workspace / "arrived").touch()
        with pytest.raises(CodeExecutionError) as error:
            await running
    store.goes_on.set()
    counted = 'Before this error: app.put ×1 sent (answer unknown): {"text": "hold"}, 2 not started.'
    assert error.value.notices == [counted]
