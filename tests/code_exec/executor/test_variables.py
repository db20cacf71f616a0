"""Variables that an execution gets and that the application reads, and environment variables of one execution."""

import asyncio
import contextlib
import json
import secrets
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas  # pyright: ignore[reportMissingTypeStubs] - it has none
import pyarrow  # pyright: ignore[reportMissingTypeStubs] - it has none
import pytest

from ipybox import CodeExecutionError, CodeExecutionResult, CodeExecutor
from ipybox.errors import ExecutionCancelledError, ExecutionTimeoutError, VariableError
from tests.code_exec.cells import SLEEPS, begun
from tests.conftest import Fifo

pytestmark = pytest.mark.asyncio(loop_scope="module")

pd: Any = pandas
pa: Any = pyarrow

#: A dict that takes long to be sent.
SLOW = """
class Slow(dict):
    def __iter__(self):
        import os, time
        pipe = os.open(path, os.O_WRONLY)
        os.write(pipe, b"begun\\n")
        os.close(pipe)
        time.sleep(600)
slow = Slow(a=1)
"""


async def test_variables_go_into_a_cell_and_back(executor: CodeExecutor):
    given = {"x": [1, {"y": "\ud83d"}], "name": "ada"}

    result = await executor.execute("x.append(name.title()); x", variables=given)

    assert result.text == r"[1, {'y': '\ud83d'}, 'Ada']"
    assert await executor.get("x") == [1, {"y": "\ud83d"}, "Ada"]
    assert given["x"] == [1, {"y": "\ud83d"}]


async def test_a_stream_gets_variables_and_environment(executor: CodeExecutor):
    items = [
        item
        async for item in executor.stream(
            "import os; print(word, os.environ['A'])", variables={"word": "hello"}, env={"A": "b"}
        )
    ]

    assert [item.text for item in items if isinstance(item, CodeExecutionResult)] == ["hello b"]


async def test_data_frames_go_into_a_cell_and_back(executor: CodeExecutor):
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", None]}, index=["p", "q"])

    result = await executor.execute("twice = frame.assign(a=frame.a * 2); type(frame)", variables={"frame": frame})

    assert result.text == "pandas.DataFrame"
    pd.testing.assert_frame_equal(await executor.get("twice"), frame.assign(a=[2, 4]))
    await executor.execute("import pyarrow; table = pyarrow.table({'a': [1]})")
    assert (await executor.get("table")).equals(pa.table({"a": [1]}))


async def test_a_cell_whose_variables_can_not_be_set_does_not_run(executor: CodeExecutor):
    await executor.execute("ran = False; first = 0; import sys")
    # As where it is not installed.
    await executor.execute("sys.modules['pyarrow'] = None")
    with pytest.raises(VariableError, match="second is a table, which requires pyarrow in the application and"):
        await executor.execute("ran = True", variables={"first": 1, "second": pd.DataFrame({"a": [1]})})
    with pytest.raises(VariableError, match=r"first\[0\] is of type bytes"):
        await executor.execute("ran = True", variables={"first": [b""]})
    with pytest.raises(ValueError, match="'a-b' can't name a variable"):
        await executor.execute("ran = True", variables={"first": 1, "a-b": 1})

    assert [await executor.get("ran"), await executor.get("first")] == [False, 0]
    await executor.reset()  # for the other tests, which need pyarrow


async def test_reading_leaves_no_trace(executor: CodeExecutor):
    trace = "print(sorted(k for k in globals() if k != 'x'), In, Out, get_ipython().execution_count - COUNT)"
    await executor.execute("x = 1")
    before = await executor.execute(trace.replace("COUNT", "0"))

    assert await executor.get("x") == 1

    assert (await executor.execute(trace.replace("COUNT", "1"))).text == before.text


async def test_what_can_not_be_read_is_an_error(executor: CodeExecutor):
    await executor.execute("values = {'a': [object()]}")

    with pytest.raises(VariableError, match="the kernel has no variable missing"):
        await executor.get("missing")
    with pytest.raises(VariableError, match=r"values\.a\[0\] is of type object, which can't be sent"):
        await executor.get("values")
    with pytest.raises(ValueError, match=r"'values\.a' can't name a variable"):
        await executor.get("values.a")


async def test_the_error_of_a_variable_with_a_long_key_is_bounded(executor: CodeExecutor):
    await executor.execute("long = {'k' * (9 << 20): b''}")
    with pytest.raises(VariableError, match=r"characters not shown") as caught:
        await executor.get("long")
    assert len(str(caught.value)) < 9 << 20


async def test_reading_waits_for_its_turn(executor: CodeExecutor):
    running = await begun(executor, f"late = 1\n{SLEEPS}")

    with pytest.raises(TimeoutError, match="an earlier execution is still running"):
        await executor.get("late", timeout=0.1)
    reading = asyncio.create_task(executor.get("late"))
    executor.cancel()
    with pytest.raises(ExecutionCancelledError):
        await running

    assert await reading == 1


async def test_reading_can_time_out_and_be_cancelled(executor: CodeExecutor, workspace: Path):
    path = workspace / secrets.token_hex(4)
    with closing(Fifo(path)) as has_begun:
        await executor.execute(SLOW, variables={"path": path.name})

        with pytest.raises(ExecutionTimeoutError, match="the kernel was interrupted and keeps its state"):
            await executor.get("slow", timeout=2)
        await has_begun.line()
        reading = asyncio.create_task(executor.get("slow"))
        await has_begun.line()
        assert executor.cancel()
        with pytest.raises(ExecutionCancelledError):
            await reading

    assert (await executor.execute("len(slow)")).text == "1"


async def test_a_dead_kernel_is_reported_and_not_replaced(executor: CodeExecutor):
    with pytest.raises(CodeExecutionError):
        await executor.execute("kept = 1; import os; os._exit(1)")

    for _ in range(2):
        with pytest.raises(CodeExecutionError, match="its variables are lost"):
            await executor.get("kept")

    assert "The kernel died or was restarted" in (await executor.execute("1")).notices[0]
    with pytest.raises(VariableError, match="the kernel has no variable kept"):
        await executor.get("kept")


@pytest.mark.parametrize("code", ["pass", "1 / 0", "import time; time.sleep(600)", "await asyncio.sleep(600)"])
async def test_environment_variables_are_restored(executor: CodeExecutor, code: str):
    await executor.execute(
        "import asyncio, os; os.environ['KEPT'] = 'before'; os.environ.pop('ADDED', None); passed = False"
    )
    check = "assert os.environ['KEPT'] == os.environ['ADDED'] == 'during'; os.environ['KEPT'] = 'changed'\n"

    with contextlib.suppress(CodeExecutionError, TimeoutError):
        await executor.execute(check + "passed = True\n" + code, 2, env={"KEPT": "during", "ADDED": "during"})

    assert await executor.get("passed")
    assert (await executor.execute("os.environ['KEPT'], os.environ.get('ADDED')")).text == "('before', None)"


async def test_the_time_zone_of_a_cell_is_that_of_its_environment(executor: CodeExecutor):
    before = (await executor.execute("import time; time.tzname")).text

    assert (await executor.execute("time.tzname[0]", env={"TZ": "ABC-3"})).text == "'ABC'"
    assert (await executor.execute("time.tzname")).text == before


async def test_secrets_of_the_environment_of_a_cell_are_not_in_its_notebook(executor: CodeExecutor):
    with pytest.raises(CodeExecutionError) as caught:
        await executor.execute(
            "import os; raise ValueError(os.environ['API_TOKEN'])", env={"API_TOKEN": "fr0m-the-cell-9x"}
        )

    shown = json.dumps(caught.value.to_notebook())
    assert "fr0m-the-cell-9x" not in shown
    assert "ValueError: ${API_TOKEN}" in shown


@pytest.mark.parametrize(
    "env", [{"": "a"}, {"A=B": "a"}, {"A": "\0"}, {"A": "\ud83d"}, {"A": 1}, {"A": "b" * (2 << 20)}]
)
async def test_impossible_environment_variables_are_refused(executor: CodeExecutor, env: dict[str, str]):
    with pytest.raises((TypeError, ValueError), match=r"^env: |variables are too large"):
        await executor.execute("ran = True", env=env)


async def test_replies_of_hostile_code_are_refused(executor: CodeExecutor):
    await executor.execute("""
x = 1
kernel = get_ipython().kernel
send = kernel.session.send
def forged(stream, kind, content=None, *args, **kwargs):
    if kind == "execute_reply" and isinstance(content, dict) and "ipybox_encoding" in content:
        content["ipybox_encoding"] = "pickle"
    return send(stream, kind, content, *args, **kwargs)
kernel.session.send = forged
""")

    with pytest.raises(VariableError, match="x was sent in an unknown encoding"):
        await executor.get("x")
    await executor.reset()
