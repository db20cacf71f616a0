"""An executor whose event loop is closed, or whose process was forked: the error helps, and no process stays."""

import copy
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ipybox import CodeExecutor, Executor
from tests.servers import WAIT

CLOSED = f"""
import asyncio, gc, os, sys
import psutil
from ipybox import CodeExecutor

async def started():
    executor = CodeExecutor()
    await executor.prepare()
    if sys.argv[1] != "prepared":
        await executor.start()
    return executor

async def use():
    calls = [executor.start, lambda: executor.sibling().start()]
    if sys.argv[1] != "prepared":
        calls += [executor.reset, lambda: executor.execute("1")]
    for call in calls:
        try:
            await call()
        except RuntimeError as exc:
            print(exc)
    if sys.argv[1] != "forgotten":
        await executor.stop()
        await executor.stop()

executor = asyncio.run(started())
processes = psutil.Process().children(recursive=True)
asyncio.run(use())
if sys.argv[1] == "forgotten":
    del executor
    gc.collect()
gone, left = psutil.wait_procs(processes, {WAIT})
print(len(gone) > 0, left)
"""

FORKED = """
import asyncio, gc, os
from ipybox import CodeExecutor

async def main():
    executor = CodeExecutor()
    await executor.start()
    if os.fork() == 0:
        try:
            await executor.execute("1")
        except RuntimeError as exc:
            print(exc, flush=True)
        await executor.stop()
        del executor
        gc.collect()
        os._exit(0)
    os.wait()
    print((await executor.execute("1 + 1")).text)
    await executor.stop()

asyncio.run(main())
"""


def run(code: str, directory: Path, *arguments: str) -> list[str]:
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=2 * WAIT, check=True)
    return done.stdout.splitlines()


@pytest.mark.kernel  # without the fixture `mode`: what ends a gateway ends its sandbox
@pytest.mark.parametrize("end", ["prepared", "stopped", "forgotten"])
def test_an_executor_whose_event_loop_is_closed_says_so_and_leaves_no_process(tmp_path: Path, end: str):
    *errors, left = run(CLOSED, tmp_path, end)
    assert len(errors) == (2 if end == "prepared" else 4)
    for error in errors:
        assert error.startswith("the code executor was started in an event loop that is closed now: create another one")
    assert left == "True []"


@pytest.mark.kernel
def test_a_forked_child_is_told_so_and_does_not_stop_the_executor(tmp_path: Path):
    assert run(FORKED, tmp_path) == [
        "the executor was started in the parent process and can't be used in a forked child: create another one here",
        "2",
    ]


@pytest.mark.parametrize("kind", [CodeExecutor, Executor])
@pytest.mark.parametrize("work", [pickle.dumps, copy.deepcopy])
def test_an_executor_is_not_copied(kind: type, work: Callable[[object], object], tmp_path: Path):
    with pytest.raises(TypeError, match=r"a code executor can't be copied or pickled, .*: create one in each process"):
        work(kind(working_dir=tmp_path))


@pytest.mark.parametrize("kind", ["CodeExecutor", "Executor"])
def test_a_deleted_working_directory_is_named(kind: str, tmp_path: Path):
    code = (
        f"import os, ipybox\nos.rmdir(os.getcwd())\ntry: ipybox.{kind}()\nexcept FileNotFoundError as exc: print(exc)"
    )
    (directory := tmp_path / "deleted").mkdir()
    reason = "the working directory of this process was deleted: change to another one or set `working_dir`"
    assert run(code, directory) == [f"[Errno 2] {reason}"]


def test_a_working_directory_needs_a_name_in_utf_8(tmp_path: Path):
    (directory := Path(os.fsdecode(os.fsencode(tmp_path) + b"/w\xff"))).mkdir()
    with pytest.raises(ValueError, match=r"working directory is not valid UTF-8: '.*w\\udcff': rename it"):
        CodeExecutor(working_dir=directory)
