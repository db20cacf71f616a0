"""A child that code forks off the kernel ends with its code, and is no second kernel."""

import pytest

from ipybox import CodeExecutor

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Seconds that the parent waits for a child that may not end.
SOON = 20
CODE = """
import os, sys, warnings
warnings.filterwarnings("ignore", message="This process .* is multi-threaded")  # since Python 3.12
{before}
child = os.fork()
if child == 0:
    {does}
if child != 0:
    print("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("before", ["", "import asyncio; await asyncio.sleep(0)"], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("does", "expected"),
    [
        pytest.param("print('child')", "child\nstatus 0", id="end_of_the_code"),
        pytest.param("sys.exit()", "status 0", id="exit"),
        pytest.param("sys.exit(3)", "status 3", id="exit_with_a_status"),
        pytest.param("sys.exit('the reason')", "the reason\nstatus 1", id="exit_with_a_reason"),
        pytest.param("os._exit(4)", "status 4", id="exit_at_once"),
        pytest.param("raise KeyboardInterrupt", "KeyboardInterrupt\nstatus 130", id="interrupt"),
        pytest.param("raise ValueError('of the child')", "ValueError: of the child\nstatus 1", id="error"),
        pytest.param("print('no newline', end=''); sys.stdout.flush()", "no newlinestatus 0", id="unfinished_line"),
    ],
)
async def test_a_forked_child_ends_like_a_program(executor: CodeExecutor, before: str, does: str, expected: str):
    result = await executor.execute(CODE.format(before=before, does=does), timeout=SOON)

    assert result.text is not None
    assert result.text.endswith(expected)
    assert "/IPython/" not in result.text
    assert (await executor.execute("child == 0")).text == "False"


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("if os.fork() == 0: await asyncio.sleep(0)", id="await"),
        pytest.param("if os.fork() == 0: await asyncio.sleep(60)", id="wait"),
        pytest.param(
            "async def forks():\n    if os.fork() == 0: raise ValueError\nawait asyncio.create_task(forks())",
            id="error_of_a_task",
        ),
        pytest.param(
            "def forks():\n    os.fork()\nasyncio.get_running_loop().call_soon(forks); await asyncio.sleep(0.1)",
            id="callback",
        ),
    ],
)
async def test_a_forked_child_does_not_return_to_the_kernels_event_loop(executor: CodeExecutor, code: str):
    result = await executor.execute(
        f"import asyncio, os\n{code}\nprint('status', os.waitstatus_to_exitcode(os.wait()[1]))", timeout=SOON
    )

    assert result.text is not None
    assert result.text.endswith("status 1")
    assert len(result.text.splitlines()) > 1  # which says why


async def test_a_forked_child_flushes_a_stream_of_its_own(executor: CodeExecutor):
    code = CODE.format(before="", does="sys.stdout = open('child.txt', 'w'); print('written')")

    assert (await executor.execute(code, timeout=SOON)).text == "status 0"
    assert (await executor.execute("open('child.txt').read()")).text == "'written\\n'"
