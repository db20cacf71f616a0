import errno
import os
import subprocess
from collections.abc import Mapping

import pytest

from ipybox.kernel_mgr.limits.kernel_processes import SPARE_MEMORY, KernelProcesses
from ipybox.kernel_mgr.limits.process_tree import LinuxTree, PortableTree, Process, Snapshot, read_proc
from ipybox.kernel_mgr.limits.resource_limits import UNATTRIBUTED

ROOT, GATEWAY, TEMPLATE, A, B = 1, 5, 6, 10, 20

GATEWAY_COMMAND = b"python\0-P\0-m\0ipybox.guest.gateway\0--tools\0"
TEMPLATE_COMMAND = b"python\0-P\0-m\0ipybox.guest.template\0" + b"5\0" * 2


class Processes(LinuxTree):
    """Processes that a test sets: parents, command lines, and start times, which are the ids if not given."""

    def __init__(self, parents: Mapping[int, int], **kernels: int):
        self.found, self.started, self.memory = dict(parents), dict[int, float](), dict[int, int]()
        self.outside = 0
        super().__init__(ROOT)
        self.commands = {ROOT: b"sandbox\0" + GATEWAY_COMMAND, GATEWAY: GATEWAY_COMMAND}
        for kernel, pid in kernels.items():
            self.rename(pid, kernel)

    def rename(self, pid: int, kernel: str) -> None:
        self.commands[pid] = f"python\0-P\0-m\0ipybox.guest.kernel\0/x/kernel-{kernel}.json\0".encode()

    def snapshot(self) -> Snapshot:
        found = {
            pid: Process(parent, self.started.get(pid, float(pid)), True, self.memory.get(pid, 1), 0.0)
            for pid, parent in self.found.items()
        }
        return Snapshot(found, self.outside)

    def command(self, pid: int) -> bytes:
        return self.commands.get(pid, b"python\0")


def poll(
    trees: KernelProcesses, processes: Processes, parents: Mapping[int, int] | None = None
) -> dict[str, list[int]]:
    """Returns the processes by their owners."""
    processes.found = dict(parents or processes.found)
    trees.poll()
    return {owner: trees.pids(owner) for owner in trees.owners.values()}


class Every:
    """All kernels have run cells."""

    def __contains__(self, _: object) -> bool:
        return True


EVERY = Every()
SANDBOX = {ROOT: 0, 2: ROOT, 3: ROOT, GATEWAY: 2}


def test_the_gateway_and_what_is_as_old_are_helpers_and_kernels_that_were_there_before_the_first_poll_are_not():
    processes = Processes({**SANDBOX, A: GATEWAY, 11: A, B: GATEWAY}, a=A, b=B)
    trees = KernelProcesses(processes, EVERY)
    assert poll(trees, processes) == {"a": [A, 11], "b": [B]}


def test_without_a_gateway_all_but_the_root_counts():
    processes = Processes(SANDBOX)
    del processes.commands[GATEWAY]
    trees = KernelProcesses(processes, EVERY)
    assert poll(trees, processes) == {UNATTRIBUTED: [2, 3, GATEWAY]}


def test_a_process_with_the_command_line_of_the_gateway_is_no_helper():
    # It left its kernel's tree before the first poll, and is listed before the gateway.
    processes = Processes({ROOT: 0, 30: ROOT, 2: ROOT, GATEWAY: 2, 31: 30, A: GATEWAY}, a=A)
    processes.commands[30] = GATEWAY_COMMAND
    processes.rename(31, "b")
    trees = KernelProcesses(processes, EVERY)
    assert poll(trees, processes) == {UNATTRIBUTED: [30, 31], "a": [A]}


def test_processes_belong_to_the_kernel_that_they_were_first_seen_below():
    processes = Processes({**SANDBOX, A: GATEWAY, B: GATEWAY, 11: A, 12: 11, 21: B}, a=A, b=B)
    trees = KernelProcesses(processes, EVERY)
    assert poll(trees, processes) == {"a": [A, 11, 12], "b": [B, 21]}

    # 11 has ended, and its child is the sandbox's now; 13 was never seen below its kernel.
    left = {**SANDBOX, A: GATEWAY, B: GATEWAY, 12: 2, 13: 2, 14: 12}
    assert poll(trees, processes, left) == {"a": [A, 12, 14], "b": [B], UNATTRIBUTED: [13]}

    assert poll(trees, processes, {**SANDBOX, B: GATEWAY}) == {"b": [B]}


def test_a_kernel_is_found_once_it_has_its_command_line():
    processes = Processes({**SANDBOX, A: GATEWAY})
    trees = KernelProcesses(processes, EVERY)
    assert poll(trees, processes) == {UNATTRIBUTED: [A]}
    processes.rename(A, "a")
    assert poll(trees, processes) == {"a": [A]}


def test_a_kernel_stays_the_same_whatever_it_calls_itself():
    processes = Processes({**SANDBOX, A: GATEWAY, B: GATEWAY}, a=A, b=B)
    trees = KernelProcesses(processes, EVERY)
    poll(trees, processes)
    processes.rename(A, "b")
    processes.commands[B] = GATEWAY_COMMAND
    assert poll(trees, processes) == {"a": [A], "b": [B]}


@pytest.mark.parametrize("parent", [A, 2, GATEWAY], ids=["in_its_kernel", "left_its_kernel", "adopted_by_the_gateway"])
def test_a_process_that_calls_itself_another_kernel_is_not_that_kernel(parent: int):
    processes = Processes({**SANDBOX, A: GATEWAY, B: GATEWAY}, a=A, b=B)
    trees = KernelProcesses(processes, EVERY)
    poll(trees, processes)
    processes.rename(30, "b")
    owners = poll(trees, processes, {**SANDBOX, A: GATEWAY, 30: parent, B: GATEWAY})
    assert owners == ({"a": [A, 30], "b": [B]} if parent == A else {"a": [A], "b": [B], UNATTRIBUTED: [30]})


def test_a_kernel_that_its_gateway_restarts_keeps_its_id():
    processes = Processes({**SANDBOX, A: GATEWAY, 11: A}, a=A)
    trees = KernelProcesses(processes, EVERY)
    poll(trees, processes)
    processes.rename(40, "a")
    assert poll(trees, processes, {**SANDBOX, 11: 2, 40: GATEWAY}) == {"a": [11, 40]}


@pytest.mark.parametrize("pid", [3, 21], ids=["helper", "daemon"])
def test_a_process_with_the_id_of_one_that_ended_is_not_that_one(pid: int):
    processes = Processes({**SANDBOX, A: GATEWAY, B: GATEWAY, 21: B}, a=A, b=B)
    trees = KernelProcesses(processes, EVERY)
    poll(trees, processes)
    processes.started[pid] = 100.0
    sandbox = {helper: parent for helper, parent in SANDBOX.items() if helper != pid}
    owners = poll(trees, processes, {**sandbox, A: GATEWAY, B: GATEWAY, pid: 2})
    assert owners == {"a": [A], "b": [B], UNATTRIBUTED: [pid]}


def test_the_template_and_what_it_forks_are_helpers_until_the_gateway_adopts_it():
    processes = Processes({**SANDBOX, TEMPLATE: GATEWAY, A: GATEWAY, 7: TEMPLATE, 30: 7}, a=A)
    processes.commands |= dict.fromkeys((TEMPLATE, 7, 30), TEMPLATE_COMMAND)
    trees = KernelProcesses(processes, EVERY)
    assert poll(trees, processes) == {"a": [A]}

    adopted = {**SANDBOX, TEMPLATE: GATEWAY, A: GATEWAY, 30: GATEWAY}
    assert poll(trees, processes, adopted) == {"a": [A], UNATTRIBUTED: [30]}
    processes.rename(30, "b")
    assert poll(trees, processes) == {"a": [A], "b": [30]}


@pytest.mark.parametrize("parent", [A, 2, GATEWAY], ids=["in_its_kernel", "left_its_kernel", "adopted_by_the_gateway"])
def test_a_process_that_calls_itself_the_template_is_not_it(parent: int):
    processes = Processes({**SANDBOX, TEMPLATE: GATEWAY, A: GATEWAY, 30: parent}, a=A)
    processes.commands |= dict.fromkeys((TEMPLATE, 30), TEMPLATE_COMMAND)
    trees = KernelProcesses(processes, EVERY)
    assert poll(trees, processes) == ({"a": [A, 30]} if parent == A else {"a": [A], UNATTRIBUTED: [30]})


def test_a_template_that_was_started_again_counts_because_it_could_be_any_process():
    processes = Processes({**SANDBOX, TEMPLATE: GATEWAY, A: GATEWAY}, a=A)
    processes.commands |= dict.fromkeys((TEMPLATE, 40), TEMPLATE_COMMAND)
    trees = KernelProcesses(processes, EVERY)
    poll(trees, processes)
    assert poll(trees, processes, {**SANDBOX, A: GATEWAY, 40: GATEWAY}) == {"a": [A], UNATTRIBUTED: [40]}


def test_a_kernel_that_calls_itself_the_template_stays_a_kernel_also_where_there_is_no_template():
    processes = Processes({**SANDBOX, A: GATEWAY, B: GATEWAY}, a=A, b=B)
    trees = KernelProcesses(processes, EVERY)
    poll(trees, processes)
    processes.commands[A] = processes.commands[30] = TEMPLATE_COMMAND
    owners = poll(trees, processes, {**SANDBOX, A: GATEWAY, B: GATEWAY, 30: GATEWAY})
    assert owners == {"a": [A], "b": [B], UNATTRIBUTED: [30]}


def test_the_first_kernel_that_is_one_small_process_and_ran_no_cell_is_the_spare_one_and_has_no_owner():
    processes = Processes({**SANDBOX, TEMPLATE: GATEWAY, A: GATEWAY, B: GATEWAY, 30: GATEWAY, 31: 30}, a=A, b=B, c=30)
    processes.commands[TEMPLATE] = TEMPLATE_COMMAND
    used = {"a"}
    trees = KernelProcesses(processes, used)
    assert poll(trees, processes) == {"a": [A], "c": [30, 31]}
    used.add("b")
    assert poll(trees, processes) == {"a": [A], "b": [B], "c": [30, 31]}
    alone = {**SANDBOX, TEMPLATE: GATEWAY, 30: GATEWAY}
    assert poll(trees, processes, alone) == {}
    processes.memory[30] = SPARE_MEMORY + 2
    assert poll(trees, processes, alone) == {"c": [30]}


def test_without_a_template_there_is_no_spare_kernel():
    processes = Processes({**SANDBOX, A: GATEWAY}, a=A)
    trees = KernelProcesses(processes, set[str]())
    assert poll(trees, processes) == {"a": [A]}


def test_memory_of_kernels_and_the_growth_of_helpers_count_but_not_the_template():
    processes = Processes({**SANDBOX, TEMPLATE: GATEWAY, A: GATEWAY, 11: A, 30: 2}, a=A)
    processes.commands[TEMPLATE] = TEMPLATE_COMMAND
    processes.memory = {GATEWAY: 100}
    trees = KernelProcesses(processes, EVERY)
    processes.memory = {GATEWAY: 170, 2: 0, TEMPLATE: 1000, A: 7, 11: 5, 30: 3}
    processes.outside = 20
    trees.poll()
    assert (trees.grown, trees.bound) == (70, 70 + 7 + 5 + 3 + 20)


@pytest.mark.parametrize("kind", [LinuxTree, PortableTree])
def test_a_root_that_has_ended_has_no_processes_and_no_memory(kind: type[LinuxTree] | type[PortableTree]):
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as root:
        tree = kind(root.pid)
        assert [*tree.snapshot().processes] == [root.pid]
        root.kill()
        os.waitid(os.P_PID, root.pid, os.WEXITED | os.WNOWAIT)
        assert tree.snapshot().processes == {}
    assert tree.snapshot().processes == kind(root.pid).snapshot().processes == {}
    assert tree.exact([root.pid]) == 0


@pytest.mark.parametrize(("code", "raises"), [(errno.EMFILE, True), (errno.EACCES, False)])
def test_a_lack_of_descriptors_is_no_process_that_has_ended(code: int, raises: bool, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> int:
        raise OSError(code, "")

    monkeypatch.setattr(os, "open", fail)
    if raises:
        with pytest.raises(OSError, match=str(code)):
            read_proc("/proc/self/stat")
    else:
        assert read_proc("/proc/self/stat") == b""
