"""Finds out which processes below a gateway are helpers, and which kernel each of the others belongs to.

Code in a kernel can rename its processes, restart them repeatedly, and leave its process tree. So the command line of
a process counts only if the place in the tree and the start time agree: the operating system reports both, and no
process can change them. The time of the first poll does not matter. `LimitMonitor` uses this.
"""

import math
import re
from collections.abc import Collection, Mapping

from ipybox.kernel_mgr.limits.process_tree import LinuxTree, PortableTree
from ipybox.kernel_mgr.limits.resource_limits import UNATTRIBUTED

#: The command line of the gateway. The command lines of the sandbox around it only end with it.
GATEWAY = re.compile(rb"[^\0]*\0-P\0-m\0ipybox\.guest\.gateway\0")

#: The command line of the template process, which kernels are forked off.
TEMPLATE = re.compile(rb"[^\0]*\0-P\0-m\0ipybox\.guest\.template\0")

#: The command line of a kernel, which contains its id in a file name.
KERNEL = re.compile(rb"[^\0]*\0-P\0-m\0ipybox\.guest\.kernel\0[^\0]*/kernel-([\w-]{1,100})\.json\0")


class KernelProcesses:
    """Distinguishes helpers and the processes of each kernel, including daemons.

    The gateway is the oldest process with its command line. Helpers are the gateway and all processes that are at least
    as old: the sandbox around it. So is the template that starts with the gateway, with what is below it: a child of
    the gateway with that command line, and older than all that could run code. A process that it forks for a kernel has
    the kernel's command line before it leaves it. A kernel is a child of the gateway with a kernel's command line; if
    two claim the same id, it belongs to the first one.

    Other processes belong to the kernel that they are below, or else to the kernel below which they were first seen. A
    process that left its kernel's tree earlier is unattributed, because its kernel is unknown.

    Args:
        tree: The processes below the gateway, or below the sandbox around it. The gateway must run.
    """

    def __init__(self, tree: LinuxTree | PortableTree):
        self._tree = tree
        candidates = [pid for pid in tree.parents() if GATEWAY.match(tree.command(pid))]
        # Without a gateway, only the root is a helper.
        self._gateway = min(candidates, key=tree.start_time, default=tree.root)
        self._gateway_started = tree.start_time(self._gateway)
        self._started: dict[int, float] = {}
        self._owners: dict[int, str] = {}
        self._kernels: dict[str, int] = {}
        #: The earliest start time of a process that is no helper.
        self._code_since = math.inf
        #: The gateway, the sandbox around it and the template, at the last poll.
        self.helpers: set[int] = set()
        #: The template, and what is below it. Code has no influence on their memory.
        self.templates: set[int] = set()

    @property
    def kernels(self) -> set[str]:
        """The ids of the kernels that had processes at the last poll."""
        return self.owners - {UNATTRIBUTED}

    @property
    def owners(self) -> set[str]:
        """The ids of these kernels, and `UNATTRIBUTED` if there were unattributed processes."""
        return set(self._owners.values())

    def look(self, parents: Mapping[int, int]) -> None:
        """Updates the processes and their owners, from the result of `LinuxTree.parents`."""
        before, self._owners, self.helpers, self.templates = self._owners, {}, set(), set()
        self._started = {pid: started for pid, started in self._started.items() if pid in parents}
        self._kernels = {kernel: pid for kernel, pid in self._kernels.items() if pid in parents}
        for pid, parent in parents.items():
            if parent in self.templates or (parent == self._gateway and self._is_template(pid)):
                self.templates.add(pid)
                self.helpers.add(pid)
                continue
            owner = self._owners.get(parent)
            if owner:
                if pid not in self._started:
                    self._started[pid] = self._tree.start_time(pid)
            else:
                owner = self._find_owner(pid, parent, before)
            if owner is None:
                self.helpers.add(pid)
            else:
                self._owners[pid] = owner

    def pids(self, owner: str | None) -> list[int]:
        """Returns the processes of a kernel, or the unattributed ones, parents before children."""
        return [pid for pid, found in self._owners.items() if found == owner]

    def spare(self, used: Collection[str]) -> tuple[str, int] | None:
        """Returns the id and the process of a spare kernel: the oldest kernel that is one process and ran no cell.

        The gateway has one at most. Code can pretend to be another one, and gains one process that does not count.

        Args:
            used: The ids of the kernels that ran cells.
        """
        if not self.templates:
            return None
        unused = [
            (self._started[pid], kernel, pid)
            for kernel, pid in self._kernels.items()
            if kernel not in used and self.pids(kernel) == [pid]
        ]
        return min(unused)[1:] if unused else None

    def _is_template(self, pid: int) -> bool:
        if self._started.get(pid, 0.0) >= self._code_since or self._tree.start_time(pid) >= self._code_since:
            return False
        return TEMPLATE.match(self._tree.command(pid)) is not None

    def _find_owner(self, pid: int, parent: int, before: Mapping[int, str]) -> str | None:
        """Returns the owner of a process that is not below a process of a kernel; None if it is a helper."""
        started = self._tree.start_time(pid)
        if started <= self._gateway_started:
            return None
        self._code_since = min(self._code_since, started)
        # The system may have reused the id of a process that ended.
        same = self._started.get(pid) == started
        self._started[pid] = started
        if same and (owner := before.get(pid)):
            return owner
        if parent == self._gateway and (match := KERNEL.match(self._tree.command(pid))):
            kernel = match[1].decode()
            if self._kernels.setdefault(kernel, pid) == pid:  # only the first one with the id, while it lives
                return kernel
        return UNATTRIBUTED
