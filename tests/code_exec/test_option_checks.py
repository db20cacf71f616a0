"""Options and arguments of a wrong type: errors that say what to give, before anything starts."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ipybox import CodeExecutor, Executor
from tests.servers import WAIT

TYPES: list[tuple[str, object, str]] = [
    ("memory_limit", "1G", "must be an int in bytes, such as 2 << 30 for 2 GiB, or 0 for no limit, not '1G'"),
    ("memory_limit", 1.5e9, "must be an int in bytes"),
    ("memory_limit", True, "must be an int in bytes"),
    ("process_limit", "5", "must be an int, or None for no limit, not '5'"),
    ("cpu_seconds", "5", "must be a number of seconds"),
    ("notebook_bytes", "x", "must be an int in bytes, or 0 to keep nothing"),
    ("kernel_env", {"A": 1}, "the value of A must be a str, not int"),
    ("kernel_env", {"A": None}, "the value of A must be a str, not NoneType"),
    ("kernel_env", {1: "a"}, "1 must be a str"),
    ("kernel_env", ["A=1"], "must be a dict of environment variables, not list"),
    ("variables", "A=1", "must be a dict of environment variables, not str"),
    ("images_dir", 3, "must be a path, not 3"),
    ("working_dir", b"x", "must be a path, not b'x'"),
    ("tool_server_port", "8900", "must be a port from 0 to 65535, not '8900'"),
    ("kernel_gateway_host", 3, "must be a str, not 3"),
    ("log_level", 10, "must be one of DEBUG, INFO, WARNING, ERROR, CRITICAL, not 10"),
    ("sandbox", "yes", "must be True or False, not 'yes'"),
    ("approve_shell_cmds", 1, "must be True or False, not 1"),
    ("connect_timeout", "x", "must be a number of seconds"),
    ("approver", 3, "must be a function that accepts an ApprovalRequest, not 3"),
    ("tools", {"a": print}, "must be a list of functions, not dict"),
    ("preload", "numpy", "must be a list of module names, not str"),
    ("allowed_domains", "example.org", "must be a list of hosts, not str"),
]
VALUES: list[tuple[str, object, str]] = [
    ("tool_server_port", 99999, "must be a port from 0 to 65535, not 99999"),
    ("kernel_gateway_port", -1, "must be a port from 0 to 65535, not -1"),
    ("log_level", "debug", "must be one of DEBUG, INFO, WARNING, ERROR, CRITICAL, not 'debug'"),
    ("connect_timeout", 0, "must be a positive number of seconds"),
    ("kernel_env", {"A=B": "secret"}, "'A=B' is not a valid environment variable name"),
    ("kernel_env", {"": "secret"}, "'' is not a valid environment variable name"),
    ("kernel_env", {"A": "secret\0"}, "the value of A contains a null character"),
]


@pytest.mark.parametrize("executor", [CodeExecutor, Executor])
@pytest.mark.parametrize(
    ("option", "value", "said", "error"),
    [*((*each, TypeError) for each in TYPES), *((*each, ValueError) for each in VALUES)],
)
def test_a_wrong_option_is_an_error_of_the_constructor(
    executor: Any, option: str, value: object, said: str, error: type[Exception]
):
    with pytest.raises(error, match=f"^{option}.*{said}") as raised:
        executor(**{option: value})
    assert "secret" not in str(raised.value)


ARGUMENTS: list[tuple[dict[str, Any], str]] = [
    ({"code": 1}, "code must be a str, not 1"),
    ({"code": None}, "code must be a str, not None"),
    ({"code": b"1"}, "code must be a str, not b'1'"),
    ({"code": "ran = 1", "env": ["A"]}, "env must be a dict, not list"),
    ({"code": "ran = 1", "variables": [1]}, "variables must be a dict, not list"),
    ({"code": "ran = 1", "timeout": "3"}, "timeout='3' must be a number"),
]


@pytest.mark.kernel
async def test_a_wrong_argument_is_an_error_before_the_code_runs(tmp_path: Path):
    async with CodeExecutor(working_dir=tmp_path) as executor:
        for arguments, said in ARGUMENTS:
            with pytest.raises(TypeError, match=said):
                await executor.execute(**arguments)
            with pytest.raises(TypeError, match=said):
                await anext(executor.stream(**arguments))
        with pytest.raises(TypeError, match="approver must be a function that accepts an ApprovalRequest, not 3"):
            await executor.execute("1", approver=3)  # pyright: ignore[reportArgumentType] - that is tested
        left = executor.stream("1")
        assert (await executor.execute("'ran' in globals()")).text == "False"
    for use in (lambda: executor.execute("1"), lambda: anext(left), lambda: executor.get("x"), executor.reset):
        with pytest.raises(RuntimeError, match="the code executor has been stopped"):
            await use()


@pytest.mark.kernel
def test_a_wrong_argument_of_the_plain_executor_is_the_same_error(tmp_path: Path):
    with Executor(working_dir=tmp_path) as executor:
        for arguments, said in ARGUMENTS:
            with pytest.raises(TypeError, match=said):
                executor.run(**arguments)
        with pytest.raises(TypeError, match="approver must be a function that accepts an ApprovalRequest, not 3"):
            executor.run("1", approver=3)  # pyright: ignore[reportArgumentType] - that is tested


WITHOUT_ASYNCIO = """
from ipybox import CodeExecutor
executor = CodeExecutor()
for use in (executor.start, executor.__aenter__, executor.prepare, executor.stop):
    work = use()
    try:
        work.send(None)
    except RuntimeError as exc:
        assert "needs a running asyncio event loop: without asyncio, run ipybox.Executor" in str(exc), exc
    else:
        raise AssertionError(use)
try:
    executor.execute("1").send(None)
except RuntimeError as exc:
    assert "has not been started" in str(exc), exc
"""


def test_another_kind_of_event_loop_is_an_error_that_says_what_to_use():
    """As trio's, which runs coroutines the same way."""
    command = [sys.executable, "-W", "error", "-c", WITHOUT_ASYNCIO]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, check=False)
    assert (done.returncode, done.stderr) == (0, "")
