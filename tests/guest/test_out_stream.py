"""What is written to the descriptors of stdout and stderr is output of the cell, and no output ends the kernel."""

import pytest

from ipybox import CodeExecutionError, CodeExecutor
from ipybox.guest.protocol import MAX_MESSAGE_BYTES
from ipybox.guest.streams import MAX_TEXT
from tests.code_exec.cells import text

pytestmark = pytest.mark.asyncio(loop_scope="module")

IMPORTS = "import faulthandler, logging, os, subprocess, sys, threading, time\n"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        pytest.param(
            "subprocess.run('echo 2; echo 3 >&2', shell=True, stdout=sys.stdout, stderr=sys.stderr)", "2\n3", id="run"
        ),
        pytest.param("subprocess.Popen(['echo', '2'], stdout=sys.stdout).wait()", "2", id="Popen"),
        pytest.param("subprocess.run(['sh', '-c', 'echo 2 >&2'], stderr=sys.stdout)", "2", id="stderr_to_stdout"),
        pytest.param(
            "os.write(sys.stdout.fileno(), b'2\\n'); os.write(sys.stderr.fileno(), b'3\\n')", "2\n3", id="write"
        ),
        pytest.param("os.fdopen(sys.stdout.fileno(), 'w', closefd=False).write('2\\n')", "2", id="open"),
        pytest.param("open('/dev/stdout', 'w').write('2\\n')", "2", id="dev"),
        pytest.param(
            "with open(os.devnull, 'w') as null, os.fdopen(os.dup(sys.stdout.fileno()), 'w') as saved:\n"
            "    os.dup2(null.fileno(), sys.stdout.fileno()); os.system('echo hidden')\n"
            "    os.dup2(saved.fileno(), sys.stdout.fileno())\n"
            "os.system('echo 2')",
            "2",
            id="redirected",
        ),
    ],
)  # fmt: skip
async def test_a_descriptor_of_a_stream_leads_to_the_cell_in_order(executor: CodeExecutor, code: str, expected: str):
    assert await text(executor, f"{IMPORTS}print(1)\n{code};\nprint(4)") == f"1\n{expected}\n4"


@pytest.mark.parametrize(
    "end", ["os.close(1)", "os.dup2(os.open(os.devnull, os.O_WRONLY), 1)"], ids=["closed", "replaced"]
)
async def test_the_thread_that_collects_output_waits_although_code_has_taken_its_descriptor_away(
    executor: CodeExecutor, end: str
):
    await executor.execute(f"{IMPORTS}{end}")
    code = "poll.register(get_ipython().kernel.iopub_thread.socket.pipes['stdout'][0]); print(poll.poll(0))"
    assert await text(executor, f"import select; poll = select.poll(); {code}") == "[]"
    await executor.reset()


async def test_faulthandler_prints_to_the_cell(executor: CodeExecutor):
    printed = await text(executor, f"{IMPORTS}def here():\n    faulthandler.dump_traceback(all_threads=False)\nhere()")

    assert (printed or "").splitlines()[0] == "Stack (most recent call first):"
    assert "in here" in (printed or "").splitlines()[1]


@pytest.mark.parametrize("end", ["; print('end')", "; print('end', file=sys.stderr)"])
async def test_output_in_a_message_that_would_be_too_large_is_sent_in_several(
    executor: CodeExecutor, monkeypatch: pytest.MonkeyPatch, end: str
):
    monkeypatch.setattr("ipybox.kernel_mgr.remote_kernel.MAX_MESSAGE_BYTES", 1 << 24)
    await executor.reset()  # the next connection has this limit
    printed = await text(executor, f"{IMPORTS}keep = 1; print('\N{SNOWMAN}' * 6_000_000){end}")

    assert (printed or "").count("\N{SNOWMAN}") == 6_000_000
    assert (printed or "").endswith("\nend")
    assert await text(executor, "keep") == "1"


@pytest.mark.parametrize(
    "display",
    [
        f"display({{'text/plain': 'x' * {MAX_MESSAGE_BYTES}}}, raw=True)",
        "kernel.session.send(kernel.iopub_socket, 'display_data', {}, parent=kernel.get_parent(), buffers=["
        f"memoryview(bytearray({MAX_MESSAGE_BYTES})).cast('d')])",
    ],
    ids=["text", "buffer"],
)
async def test_a_display_that_is_too_large_is_dropped_and_the_cell_says_so(executor: CodeExecutor, display: str):
    printed = await text(executor, f"kernel = get_ipython().kernel\nprint(1, flush=True)\n{display}\nprint(2)")

    dropped = "a display of 256 MiB was discarded here: it exceeds the message size limit"
    assert printed == f"1\n{dropped}\n2"


@pytest.mark.parametrize(
    "end",
    ["os.close(connection.fileno())", "connection.shutdown(2)", "connection.sendall(b'\\xff' * 100)"],
    ids=["closed", "shut_down", "garbage"],
)
async def test_a_kernel_that_can_send_no_output_ends_and_a_cell_does_not_wait_for_it(executor: CodeExecutor, end: str):
    with pytest.raises(CodeExecutionError, match="its process exited with code 1"):
        await executor.execute(f"import os; connection = get_ipython().kernel.iopub_thread.socket._socket; {end}")
    assert await text(executor, "1") == "1"


@pytest.mark.parametrize("output", [f"print('x' * {MAX_TEXT // 2})", "display('x')"], ids=["text", "messages"])
async def test_code_waits_when_much_output_has_not_been_sent(executor: CodeExecutor, output: str):
    code = f"""import time
thread = get_ipython().kernel.iopub_thread
thread.schedule(lambda: time.sleep(0.5))
start = time.monotonic()
while time.monotonic() < start + 0.4:
    {output}
print(time.monotonic() > start + 0.45)
"""
    printed = await text(executor, code)

    assert (printed or "").endswith("True")
