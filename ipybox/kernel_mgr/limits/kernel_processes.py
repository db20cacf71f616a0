"""Attributes the processes below a gateway to its kernels, and recognizes helpers, for `LimitMonitor`.

Code in a kernel can rename its processes, restart them repeatedly, and leave its process tree. So a process's command
line counts only if its place in the tree and its start time agree: the operating system reports both, and no process
can change them. The result does not depend on when polling starts.
"""

import math
import re
from collections import Counter
from collections.abc import Container

from ipybox.kernel_mgr.limits.process_tree import LinuxTree, PortableTree, Process
from ipybox.kernel_mgr.limits.resource_limits import UNATTRIBUTED

#: The command line of the gateway. The command lines of the sandbox around it only end with it.
GATEWAY = re.compile(rb"[^\0]*\0-P\0-m\0ipybox\.guest\.gateway\0")

#: The command line of the template process, from which kernels are forked.
TEMPLATE = re.compile(rb"[^\0]*\0-P\0-m\0ipybox\.guest\.template\0")

#: The command line of a kernel, which contains its id in a file name.
KERNEL = re.compile(rb"[^\0]*\0-P\0-m\0ipybox\.guest\.kernel\0[^\0]*/kernel-([\w-]{1,100})\.json\0")

#: Bytes by which a spare kernel's memory may exceed the template's before it counts towards the limits.
SPARE_MEMORY = 64 << 20


class KernelProcesses:
    """Separates helpers from the processes of each kernel, including daemons.

    The gateway is the oldest process with its command line. Helpers are the gateway, all processes that are at least as
    old (the sandbox around it), and the template with its descendants. The template is a child of the gateway with the
    template's command line that is older than any process that could run code. A process that it forks for a kernel has
    the kernel's command line before it leaves the template's tree. A kernel is a child of the gateway with a kernel's
    command line; if two claim the same id, the first one keeps it.

    Other processes belong to the kernel that they descend from, or descended from when first seen. A process that left
    its kernel's tree before that is unattributed.

    Args:
        tree: The processes below the gateway, or below the sandbox around it. The gateway must be running.
        used: The ids of the kernels that ran cells. One of the others may be a spare kernel.
    """

    def __init__(self, tree: LinuxTree | PortableTree, used: Container[str] = ()):
        self._tree = tree
        self._used = used
        self._processes, self._outside_before = tree.snapshot()
        self._memory_before = {pid: process.memory for pid, process in self._processes.items()}
        started = {pid: process.started for pid, process in self._processes.items()}
        candidates = [pid for pid in started if GATEWAY.match(tree.command(pid))]
        # Without a gateway, only the root is a helper.
        self._gateway = min(candidates, key=started.__getitem__, default=tree.root)
        self._gateway_started = started.get(self._gateway, math.inf)
        self._template: int | None = None
        self._kernels: dict[str, int] = {}
        self._known: dict[int, str] = {}
        #: The earliest start time of a process that is not a helper.
        self._code_since = math.inf
        #: The owner of each process at the last poll, parents first: the id of a kernel or `UNATTRIBUTED`. Helpers and
        #: a spare kernel have none.
        self.owners: dict[int, str] = {}
        #: Bytes by which the memory of helpers has grown, except the template and its forks: code can't affect those.
        self.grown = 0
        #: An upper bound of the memory that counts: of owned processes, outside of processes, and `grown`.
        self.bound = 0

    def poll(self) -> dict[int, Process]:
        """Polls the processes and returns them, parents first; none if the root has ended."""
        before, (self._processes, outside) = self._processes, self._tree.snapshot()
        known, self._known, self.grown = self._known, {}, 0
        for kernel, pid in tuple(self._kernels.items()):
            if pid not in self._processes:
                del self._kernels[kernel]
        templates, sizes = dict[int, int](), Counter[str]()
        self.bound = max(0, outside - self._outside_before)
        for pid, process in self._processes.items():
            same = (earlier := before.get(pid)) is not None and earlier.started == process.started
            owner = self._known.get(process.parent) or (known.get(pid) if same else None)
            if process.parent in templates or (same and pid == self._template):
                owner = None
            elif not owner and process.started > self._gateway_started:
                owner = self._find_owner(pid, process)
            if owner is not None:
                self._known[pid] = owner
                sizes[owner] += 1
                self.bound += process.memory
            elif process.parent in templates or pid == self._template:
                templates[pid] = process.memory
            else:
                self.grown += max(0, process.memory - self._memory_before.get(pid, 0))
        self.bound += self.grown
        self.owners = self._known.copy()
        for kernel, pid in self._kernels.items():
            if templates and kernel not in self._used and sizes[kernel] == 1:
                memory = self._processes[pid].memory
                if memory <= max(templates.values()) + SPARE_MEMORY:
                    del self.owners[pid]
                    self.bound -= memory
                break  # only the first one is exempt, because code can pose as a spare kernel
        return self._processes

    def pids(self, owner: str) -> list[int]:
        """Returns the processes of an owner, parents before children."""
        return [pid for pid, found in self.owners.items() if found == owner]

    def _find_owner(self, pid: int, process: Process) -> str | None:
        """Returns the owner of a process that is not in a kernel's tree; None if it is the template."""
        command = self._tree.command(pid) if process.parent == self._gateway else b""
        if process.started < self._code_since and TEMPLATE.match(command):
            self._template = pid
            return None
        self._code_since = min(self._code_since, process.started)
        if match := KERNEL.match(command):
            kernel = match[1].decode()
            if self._kernels.setdefault(kernel, pid) == pid:  # only the first one with the id, while it lives
                return kernel
        return UNATTRIBUTED
