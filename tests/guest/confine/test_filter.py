"""The filter itself: what it denies of each machine."""

import fcntl
import os
import signal
import socket
import struct

import pytest

from ipybox.guest import confine
from tests.guest.child import USERS
from tests.guest.confine.child import ConfinedChild
from tests.guest.confine.in_child import CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWUTS, HIGH_HALF


@pytest.mark.parametrize("user", USERS)
def test_an_unknown_machine_is_refused(user: str):
    # A personality that lets the machine appear as one of 32 bits.
    code = """
    ctypes.CDLL(None).personality(8)
    try:
        confine.confine()
    except OSError as error:
        print(os.uname().machine, error)
"""
    machine, message = ConfinedChild(user, in_srt=False).run(code.strip()).split(" ", 1)

    assert machine not in confine.MACHINES
    assert f"the system call filter doesn't support linux on {machine}, only Linux on 64-bit x86_64" in message


def evaluate(machine: str, architecture: int, number: int, arguments: tuple[int, ...] = ()) -> int:
    """Runs the filter as the kernel would."""
    data = struct.pack("=IIQ6Q", number, architecture, 0, *(*arguments, *[0] * 6)[:6])
    program = confine.program(machine)
    accumulator, position = 0, 0
    while True:
        code, value, if_true, if_false = program[position]
        position += 1
        if code == confine.RETURN:
            return value
        if code == confine.LOAD:
            (accumulator,) = struct.unpack_from("=I", data, value)
            continue
        if code == confine.AND:
            accumulator &= value
            continue
        tests = {
            confine.IF_EQUAL: accumulator == value,
            confine.IF_AT_LEAST: accumulator >= value,
            confine.IF_ANY_BIT: accumulator & value != 0,
        }
        position += if_true if tests[code] else if_false


@pytest.mark.parametrize("machine", confine.MACHINES)
def test_the_filter_denies_what_is_listed_and_nothing_else(machine: str):
    column, architecture = confine.MACHINES[machine]
    denied = {numbers[column] for numbers in confine.DENIED.values()} - {None}
    calls = (confine.CLONE3, confine.SOCKET, confine.SOCKETPAIR, confine.SCHED_SETATTR)
    special = {call[column] for call in calls}

    for number in range(1024):
        if number not in special:
            expected = confine.DENY if number in denied else confine.ALLOW
            assert evaluate(machine, architecture, number) == expected, number
    assert evaluate(machine, architecture, confine.CLONE3[column]) == confine.ABSENT


@pytest.mark.parametrize("machine", confine.MACHINES)
def test_the_filter_ends_programs_of_other_architectures_and_denies_x32(machine: str):
    _, architecture = confine.MACHINES[machine]
    for other in (0x40000003, 0x40000028, 0):  # i386, 32-bit ARM
        assert evaluate(machine, other, 1) == confine.KILL
    for number in (confine.X32_BIT, confine.X32_BIT | 39, 0xFFFFFFFF):
        assert evaluate(machine, architecture, number) == confine.DENY


@pytest.mark.parametrize("machine", confine.MACHINES)
@pytest.mark.parametrize("high", [0, HIGH_HALF, 0xFFFFFFFF << 32], ids=["low", "one_high_bit", "all_high_bits"])
def test_the_filter_looks_at_the_low_half_of_arguments(machine: str, high: int):
    column, architecture = confine.MACHINES[machine]

    def action(call: tuple[int, int], *arguments: int) -> int:
        return evaluate(machine, architecture, call[column], tuple(high | argument for argument in arguments))

    threads = 0x003D0F00  # what the C library passes to clone() for a thread
    assert action(confine.CLONE, threads) == action(confine.CLONE, signal.SIGCHLD) == confine.ALLOW
    for bit in (CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWNET, 0x02000000, 0x08000000, 0x20000000):
        assert action(confine.CLONE, bit | signal.SIGCHLD) == confine.DENY
    for request, expected in ((0x5401, confine.ALLOW), (0x5412, confine.DENY), (0x541C, confine.DENY)):
        assert action(confine.IOCTL, 0, request) == expected
    for command in range(2048):  # those of Linux begin at 1024; F_SETDELEG is 1040
        denied = command in (fcntl.F_SETLEASE, 1040)
        assert action(confine.FCNTL, 3, command) == (confine.DENY if denied else confine.ALLOW)
    for family in range(64):
        assert action(confine.SOCKET, family) == (confine.ALLOW if family in (2, 10, 16) else confine.DENY)
        stream = action(confine.SOCKETPAIR, family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        assert stream == (confine.ALLOW if family == socket.AF_UNIX else confine.DENY)
    for kind in range(16):
        pair = action(confine.SOCKETPAIR, socket.AF_UNIX, kind | socket.SOCK_CLOEXEC)
        assert pair == (confine.ALLOW if kind in (1, 5) else confine.DENY)


@pytest.mark.parametrize("machine", confine.MACHINES)
@pytest.mark.parametrize("high", [0, HIGH_HALF], ids=["low", "high_bit"])
def test_the_filter_lets_a_process_change_itself_only(machine: str, high: int):
    column, architecture = confine.MACHINES[machine]

    def allows(call: tuple[int, int], *arguments: int) -> bool:
        outcome = evaluate(machine, architecture, call[column], arguments)
        assert outcome in (confine.ALLOW, confine.DENY)
        return outcome == confine.ALLOW

    null, low_only, high_only, both = 0, 0x1000, 0x5 << 32, 0x7FFF00001000
    for who in (0, 1, 2, 12345, 0xFFFFFFFF):
        is_own, process = who == 0, high | who
        for call in (confine.SCHED_SETAFFINITY, confine.SCHED_SETATTR):
            assert allows(call, process, 8, both) == is_own
        for which in range(4):
            assert allows(confine.SETPRIORITY, high | which, process, 19) == (is_own and which != confine.PRIO_USER)
            assert allows(confine.IOPRIO_SET, high | which, process) == (is_own and which != confine.IOPRIO_WHO_USER)
        for policy in (0, 1, 2, 3, 5, 6, 0x40000000):
            assert allows(confine.SCHED_SETSCHEDULER, process, high | policy, both) == (is_own or policy == 0)
        for address in (null, low_only, high_only, both):
            assert allows(confine.PRLIMIT64, process, 7, address, both) == (is_own or address == null)


@pytest.mark.parametrize("machine", confine.MACHINES)
@pytest.mark.parametrize("high", [0, HIGH_HALF], ids=["low", "high_bit"])
@pytest.mark.parametrize(("user", "denied"), [(0, 0o6000), (1000, 0o4000)], ids=["root", "ordinary"])
def test_the_filter_lets_no_program_become_privileged(
    machine: str, high: int, user: int, denied: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(os, "geteuid", lambda: user)
    column, architecture = confine.MACHINES[machine]
    numbers = {number: index for calls, index in confine.CHMOD.values() if (number := calls[column]) is not None}
    assert len(numbers) == (4 if machine == "x86_64" else 3)

    for number, index in numbers.items():
        for mode in (0, 0o644, 0o755, 0o777, 0o1777, 0o2755, 0o4755, 0o4000, 0o6711, 0o7777):
            arguments = [0o7777] * 4
            arguments[index] = high | mode
            expected = confine.DENY if mode & denied else confine.ALLOW
            assert evaluate(machine, architecture, number, tuple(arguments)) == expected, (number, oct(mode))


def test_numbers_are_unique():
    for column in (0, 1):
        numbers = [number for call in confine.DENIED.values() if (number := call[column]) is not None]
        numbers += [number for call, _ in confine.CHMOD.values() if (number := call[column]) is not None]
        numbers += [confine.PRLIMIT64[column], confine.SETPRIORITY[column], confine.IOPRIO_SET[column]]
        numbers += [confine.SCHED_SETAFFINITY[column], confine.SCHED_SETATTR[column]]
        numbers += [confine.SCHED_SETSCHEDULER[column], confine.SOCKET[column], confine.SOCKETPAIR[column]]
        numbers += [confine.FCNTL[column]]
        assert len(numbers) == len(set(numbers))
