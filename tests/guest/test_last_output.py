"""A cell whose kernel dies has all output that was flushed before, and an error that says how the process ended."""

import asyncio
import os
import socket
import struct
import sys
from collections.abc import AsyncIterator
from typing import Literal

import pytest
import pytest_asyncio

from ipybox import CodeExecutionError, CodeExecutor
from ipybox.guest import kernel_output
from ipybox.guest.kernel_output import MAX_PARTS, MIN_PARTS, RECEIVE_BYTES, GatewayOutput, KernelOutput
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
            "print('a'); get_ipython().kernel.iopub_thread.send_multipart([b'no message of Jupyter'] * 6)\n"
            "print('b', flush=True); os._exit(7)",
            "a\nb",
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


@pytest_asyncio.fixture
async def ends() -> AsyncIterator[tuple[GatewayOutput, KernelOutput]]:
    ours, theirs = socket.socketpair()
    gateway = GatewayOutput()
    with ours, theirs:
        gateway.send(ours)
        kernel = KernelOutput(theirs)
    yield gateway, kernel
    gateway.close()
    kernel.close()
    kernel._file.close()  # pyright: ignore[reportPrivateUsage] - which a kernel keeps as long as it lives
    for pair in kernel.pipes.values():
        for end in pair:
            os.close(end)


def message(first: bytes) -> list[bytes]:
    return [first, *[b""] * (MIN_PARTS - 1)]


def received_by(gateway: GatewayOutput) -> list[list[bytes]]:
    received: list[list[bytes]] = []
    gateway.receivers.add(received.append)
    return received


async def until(received: list[list[bytes]], count: int) -> list[list[bytes]]:
    async with asyncio.timeout(WAIT):
        while len(received) < count:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0)
    return received


@pytest.mark.asyncio
async def test_each_client_receives_each_message(ends: tuple[GatewayOutput, KernelOutput]):
    gateway, kernel = ends
    first, second = received_by(gateway), received_by(gateway)
    messages = [message(b"1"), [b""] * MAX_PARTS, message(b"3" * 2_000_000)]
    sending = asyncio.to_thread(lambda: [kernel.send_multipart(message) for message in messages])
    await asyncio.gather(sending, until(first, 3))

    assert first == second == messages


@pytest.mark.asyncio
async def test_what_was_sent_arrives_after_the_kernel_has_died(ends: tuple[GatewayOutput, KernelOutput]):
    gateway, kernel = ends
    received = received_by(gateway)
    for number in range(100):
        kernel.send_multipart(message(b"%d" % number))
    kernel.close()

    assert gateway.finish() == {"stdout": "", "stderr": ""}
    assert received == [message(b"%d" % number) for number in range(100)]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "sent",
    [struct.pack("<I", 1 << 20), bytes(4), struct.pack("<7I", 6, 1 << 31, 1, 1, 1, 1, 1), b"\xff" * 300],
    ids=["many_parts", "few_parts", "large", "no_message"],
)
async def test_what_is_no_message_ends_the_connection(ends: tuple[GatewayOutput, KernelOutput], sent: bytes):
    gateway, kernel = ends
    received = received_by(gateway)
    kernel.send_multipart(message(b"1"))
    connection = kernel._socket  # pyright: ignore[reportPrivateUsage]
    connection.send(sent)
    connection.settimeout(WAIT)

    assert await asyncio.to_thread(connection.recv, 1) == b""
    assert received == [message(b"1")]


@pytest.mark.asyncio
async def test_a_flood_of_small_messages_is_received_in_pieces(ends: tuple[GatewayOutput, KernelOutput]):
    gateway, kernel = ends
    received = received_by(gateway)
    large = message(bytes(10 * RECEIVE_BYTES))
    small = struct.pack("<I", MIN_PARTS) + bytes(4 * MIN_PARTS)
    kernel.send_multipart(large)
    kernel._socket.sendall(small * 1000)  # pyright: ignore[reportPrivateUsage]
    passed_on = 0
    while len(received) <= 1000:
        gateway._receive()  # pyright: ignore[reportPrivateUsage] - as the event loop does, once per step
        assert (len(received) - passed_on) * len(small) <= RECEIVE_BYTES + len(small)
        passed_on = len(received)


@pytest.mark.asyncio
async def test_of_a_kernel_that_has_died_a_bounded_number_of_pieces_is_received(
    ends: tuple[GatewayOutput, KernelOutput], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(kernel_output, "MAX_LEFT", 2)
    gateway, kernel = ends
    received = received_by(gateway)
    for _ in range(3):
        kernel.send_multipart(message(bytes(RECEIVE_BYTES)))
    gateway.finish()
    assert len(received) == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("written", [b"\xff" * 300_000, b"\x01" * 300_000, bytes(300_000), b"short"])
async def test_whatever_code_writes_to_the_file_is_read_within_bounds(
    ends: tuple[GatewayOutput, KernelOutput], written: bytes
):
    gateway, _ = ends
    file: int = gateway._fds[0]  # pyright: ignore[reportPrivateUsage]
    os.pwrite(file, written, 0)
    if len(written) < 100:
        os.ftruncate(file, len(written))

    assert gateway.finish() == {"stdout": "", "stderr": ""}


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["stdout", "stderr"])
async def test_what_was_written_to_a_descriptor_and_not_read_is_left(
    ends: tuple[GatewayOutput, KernelOutput], name: Literal["stdout", "stderr"]
):
    gateway, kernel = ends
    os.write(kernel.pipes[name][1], b"caf\xe9")
    texts = {"stdout": "", "stderr": ""} | {name: "caf\ufffd"}

    assert gateway.finish() == texts


@pytest.mark.asyncio
@pytest.mark.parametrize(("sends", "left"), [(False, "reason"), (True, "")], ids=["before", "after"])
async def test_what_has_left_the_pipe_arrives_once_if_the_kernel_ends_around_its_sending(
    ends: tuple[GatewayOutput, KernelOutput], sends: bool, left: str
):
    gateway, kernel = ends
    received = received_by(gateway)
    for size in (40_000, 60_000, 50_000):  # the room for it is used again
        os.write(kernel.pipes["stdout"][1], b"%d" % size + bytes(size))
        kernel.read("stdout", lambda data: kernel.send_multipart(message(data)))

    def end(data: bytes) -> None:
        if sends:
            kernel.send_multipart(message(data))
        raise SystemExit

    os.write(kernel.pipes["stderr"][1], b"reason")
    with pytest.raises(SystemExit):
        kernel.read("stderr", end)

    assert gateway.finish() == {"stdout": "", "stderr": left}
    assert [len(message[0]) for message in received][:3] == [40_005, 60_005, 50_005]
    assert received[3:] == ([message(b"reason")] if sends else [])


@pytest.mark.asyncio
@pytest.mark.parametrize("sends", [False, True], ids=["nothing", "descriptors"])
async def test_a_kernel_whose_gateway_ends_before_its_request_ends_too(sends: bool):
    ours, theirs = socket.socketpair()
    gateway = GatewayOutput()
    command = [sys.executable, "-P", "-m", "ipybox.guest.kernel", "file", str(os.getpid()), "0", "0"]
    with theirs:
        process = await asyncio.create_subprocess_exec(*command, stdin=theirs.fileno())
    with ours:
        if sends:
            gateway.send(ours)
    async with asyncio.timeout(WAIT):
        assert await process.wait() == 0
    gateway.close()
