"""What a consumer of a stream has had when it is asked to accept a tool call."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from ipybox import ApprovalRequest, CodeExecutionChunk, CodeExecutor
from tests import servers
from tests.conftest import Mode

pytestmark = pytest.mark.asyncio(loop_scope="module")

CALLS = 20

#: How code puts out `1`, `2` and so on before each call.
PRINT = "print(i)"
STDERR = "import sys; print(i, file=sys.stderr)"
DISPLAY = "display({'text/plain': str(i)}, raw=True)"
CHILD = "import subprocess; subprocess.run(['echo', str(i)])"
BOTH = "import sys; sys.stdout.write(str(i)[:-1]); sys.stderr.write(str(i)[-1:]); display({'text/plain': ''}, raw=True)"
LARGE = "print(' ' * 1_000_000 + str(i))"

CALL = "scripted.run_sync('echo', {'text': str(i)})"
ASYNC_CALL = "await scripted.run('echo', {'text': str(i)})"
IN_THREAD = f"import threading; t = threading.Thread(target=lambda: {CALL}); t.start(); t.join()"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor(tmp_path_factory: pytest.TempPathFactory, mode: Mode, shared: None) -> AsyncIterator[CodeExecutor]:
    workspace = tmp_path_factory.mktemp("workspace")
    servers.register(workspace, scripted=servers.scripted())
    async with CodeExecutor(working_dir=workspace, sandbox=mode.sandbox) as executor:
        await executor.execute("from registered import scripted")
        yield executor


@pytest.mark.parametrize("call", [CALL, ASYNC_CALL, IN_THREAD])
@pytest.mark.parametrize("put_out", [PRINT, STDERR, DISPLAY, CHILD, BOTH, LARGE])
async def test_what_was_put_out_before_a_call_comes_before_its_request(executor: CodeExecutor, put_out: str, call: str):
    code = f"for i in range({CALLS}):\n    {put_out}\n    {call}"
    had, expected = "", ""
    requests = 0
    async for item in executor.stream(code, chunks=True):
        match item:
            case CodeExecutionChunk(text=text):
                had += text
            case ApprovalRequest(tool_args={"text": number}):
                expected += number
                assert "".join(had.split()) == expected
                requests += 1
                await item.accept()
            case _:
                pass

    assert requests == CALLS


async def test_what_an_earlier_cell_left_running_is_asked_about_without_a_wait(executor: CodeExecutor):
    await executor.execute(
        "import threading\n"
        "go = threading.Event()\n"
        "def late(i=7):\n"
        "    go.wait()\n"
        f"    {PRINT}\n"
        f"    {CALL}\n"
        "thread = threading.Thread(target=late)\n"
        "thread.start()"
    )
    requests = 0
    async for item in executor.stream("go.set(); thread.join()", chunks=True):
        if isinstance(item, ApprovalRequest):
            requests += 1
            await item.accept()

    assert requests == 1


async def test_a_call_in_a_forked_child_is_asked_about(executor: CodeExecutor):
    child = f"import os\ni = 1\nif os.fork() == 0:\n    {CALL}\n    os._exit(0)\n"
    code = f"{child}print(os.waitstatus_to_exitcode(os.wait()[1]))"
    requests, had = 0, ""
    async for item in executor.stream(code, chunks=True):
        match item:
            case ApprovalRequest():
                requests += 1
                await item.accept()
            case CodeExecutionChunk(text=text):
                had += text
            case _:
                pass

    assert (requests, had) == (1, "0\n")
