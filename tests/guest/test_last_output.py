"""A cell whose kernel dies has all output that was flushed before, and an error that says how the process ended."""

import os
import socket
from collections.abc import Iterator
from typing import Literal

import pytest

from ipybox import CodeExecutionError, CodeExecutor
from ipybox.guest import last_output
from ipybox.guest.last_output import KernelOutput, LastOutput
from ipybox.kernel_mgr.kernel_channels import describe_exit
from tests.code_exec.cells import text
from tests.servers import WAIT

CODE_7 = "the kernel died: its process exited with code 7"
KILLED = ": its process was killed by signal 9 (SIGKILL)"
CRASH = "import ctypes; ctypes.string_at(0)"


def by_signal(number: int, name: str) -> str:
    return f"the kernel died: its process was killed by signal {number} ({name})"


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("code", "shown", "reason"),
    [
        pytest.param("print('a', flush=True); os._exit(7)", "a", CODE_7, id="exit"),
        pytest.param(
            "print('a', flush=True); os.abort()", "a\nFatal Python error: Aborted", by_signal(6, "SIGABRT"), id="abort"
        ),
        pytest.param(
            "print('a'); os.system('echo b'); sys.stdout.flush(); os.kill(os.getpid(), 9)",
            "a\nb",
            by_signal(9, "SIGKILL"),
            id="kill",
        ),
        pytest.param(
            "signal.setitimer(signal.ITIMER_REAL, 0.01); signal.pause()", "", by_signal(14, "SIGALRM"), id="alarm"
        ),
        pytest.param("os.write(1, b'a'); os.write(2, b'b'); os._exit(7)", "ab", CODE_7, id="descriptors"),
        pytest.param("subprocess.run('echo a; echo b >&2', shell=True); os._exit(7)", "a\nb", CODE_7, id="child"),
        pytest.param(
            "for i in range(300): print(i, flush=True)\nos._exit(7)",
            "\n".join(map(str, range(300))),
            CODE_7,
            id="lines",
        ),
        pytest.param(
            "threading.Thread(target=lambda: (print('a', flush=True), os._exit(7))).start(); time.sleep(60)",
            "a",
            CODE_7,
            id="thread",
        ),
        pytest.param(
            f"print('a', flush=True)\n{CRASH}",
            "a\nFatal Python error: Segmentation fault",
            by_signal(11, "SIGSEGV"),
            id="crash",
        ),
        pytest.param(
            "get_ipython().kernel.iopub_thread.output.add([b'no', b'message', b'of', b'Jupyter']); os._exit(7)",
            "",
            CODE_7,
            id="forged",
        ),
    ],
)
async def test_flushed_output_and_the_reason_outlive_the_kernel(
    executor: CodeExecutor, code: str, shown: str, reason: str
):
    with pytest.raises(CodeExecutionError) as error:
        await executor.execute(f"import os, signal, subprocess, sys, threading, time\n{code}", timeout=WAIT)

    assert str(error.value) == reason
    assert (error.value.text or "").startswith(shown)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_crash_shows_the_line_of_the_code(executor: CodeExecutor):
    with pytest.raises(CodeExecutionError) as error:
        await executor.execute(f"x = 1\n\n{CRASH}", timeout=WAIT)

    first = next(line for line in (error.value.text or "").splitlines() if line.startswith("  File"))
    assert "ctypes" in first
    assert "line 3 in <module>" in (error.value.text or "")


@pytest.mark.asyncio(loop_scope="module")
async def test_what_a_dying_kernel_has_left_is_no_output_of_the_next_one(executor: CodeExecutor):
    with pytest.raises(CodeExecutionError):
        await executor.execute("import os; print('a', flush=True); os.write(1, b'b'); os._exit(7)", timeout=WAIT)

    assert await text(executor, "1") == "1"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"status": -9, "oom": True}, f"{KILLED} because the system ran out of memory (OOM killer)"),
        ({"status": -15, "oom": True}, ": its process was killed by signal 15 (SIGTERM)"),
        ({"status": -9, "oom": "yes"}, KILLED),
        ({"status": -40, "oom": False}, ": its process was killed by signal 40"),
        ({"status": 0}, ": its process exited with code 0"),
        ({"status": True}, ""),
        ({"status": 10**30}, ""),
        ({"status": "\x1b[2J"}, ""),
        ({}, ""),
        (None, ""),
        ([1], ""),
    ],
)  # fmt: skip
def test_only_numbers_of_a_reported_end_are_believed(content: object, reason: str):
    assert describe_exit(content) == reason


@pytest.fixture
def ends() -> Iterator[tuple[LastOutput, KernelOutput]]:
    """What the gateway keeps, and the kernel has."""
    ours, theirs = socket.socketpair()
    last = LastOutput()
    with ours, theirs:
        last.send(ours)
        kernel = KernelOutput(theirs)
    yield last, kernel
    last.close()
    kernel._copies.close()  # pyright: ignore[reportPrivateUsage] - which a kernel keeps as long as it lives
    for pair in kernel.pipes.values():
        for end in pair:
            os.close(end)


def message(number: int, size: int = 0) -> list[bytes]:
    return [b"topic", b"", b"%d" % number, bytes(size)]


def test_messages_after_the_last_one_that_has_arrived_are_left(ends: tuple[LastOutput, KernelOutput]):
    last, kernel = ends
    messages = [message(number) for number in range(3)]
    for each in messages:
        kernel.add(each)
    remains = last.read()

    assert remains.after(b"1") == messages[2:]
    assert remains.after(b"2") == []
    assert remains.after(b"unknown") == remains.messages == messages
    assert remains.texts == {"stdout": "", "stderr": ""}


@pytest.mark.parametrize("size", [100, last_output.HALF // 3, last_output.HALF // 2 + 1])
def test_the_newest_messages_replace_the_oldest(ends: tuple[LastOutput, KernelOutput], size: int):
    last, kernel = ends
    count = 3 * last_output.HALF // size
    for number in range(count):
        kernel.add(message(number, size))
    left = last.read().messages

    assert left == [message(number, size) for number in range(count - len(left), count)]
    assert last_output.HALF // (size + 100) <= len(left) < count


def test_a_message_that_is_too_large_or_no_bytes_is_not_kept_whole(ends: tuple[LastOutput, KernelOutput]):
    last, kernel = ends
    kernel.add(message(1, last_output.HALF))
    kernel.add([*message(2), memoryview(bytes(8)).cast("d")])  # pyright: ignore[reportArgumentType] - as comms send
    kernel.add(message(3))

    assert last.read().after(None) == [message(3)]
    assert last.read().after(b"2") == [message(3)]


@pytest.mark.parametrize("written", [b"\xff" * 300_000, b"\x01" * 300_000, bytes(300_000), b"short"])
def test_whatever_code_writes_in_their_place_is_read_within_bounds(
    ends: tuple[LastOutput, KernelOutput], written: bytes
):
    last, _ = ends
    file: int = last._fds[0]  # pyright: ignore[reportPrivateUsage]
    os.pwrite(file, written, 0)
    if len(written) < 100:
        os.ftruncate(file, len(written))
    assert sum(map(len, last.read().messages)) <= 2 * last_output.HALF


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_what_was_written_to_a_descriptor_and_not_read_is_left(
    ends: tuple[LastOutput, KernelOutput], name: Literal["stdout", "stderr"]
):
    last, kernel = ends
    os.write(kernel.pipes[name][1], b"caf\xe9")
    texts = {"stdout": "", "stderr": ""} | {name: "caf\ufffd"}

    assert last.read().texts == texts


@pytest.mark.parametrize("size", [0, last_output.HALF])
def test_what_was_read_from_a_descriptor_is_left_until_the_message_that_has_it(
    ends: tuple[LastOutput, KernelOutput], size: int
):
    last, kernel = ends

    def read(name: str, data: bytes) -> None:
        os.write(kernel.pipes[name][1], data)
        assert kernel.read(name) == data

    read("stdout", b"a")
    read("stderr", b"b")
    kernel.add([b"stream.stdout", *message(1, size)[1:]])
    read("stdout", b"c")

    assert last.read().texts == {"stdout": "c", "stderr": "b"}


def test_what_has_left_the_pipe_is_left_even_if_the_kernel_ends_at_that_moment(
    ends: tuple[LastOutput, KernelOutput], monkeypatch: pytest.MonkeyPatch
):
    last, kernel = ends
    move = last_output._move  # pyright: ignore[reportPrivateUsage]

    def move_and_end(pipe: int, place: memoryview) -> int:
        move(pipe, place)
        raise SystemExit

    for size in (40_000, 60_000, 50_000):  # the room for it is used again
        os.write(kernel.pipes["stdout"][1], b"%d" % size + bytes(size))
        assert len(kernel.read("stdout")) > size
        kernel.add([b"stream.stdout", *message(1)[1:]])
    os.write(kernel.pipes["stderr"][1], b"reason")
    monkeypatch.setattr(last_output, "_move", move_and_end)
    with pytest.raises(SystemExit):
        kernel.read("stderr")

    assert last.read().texts == {"stdout": "", "stderr": "reason"}
