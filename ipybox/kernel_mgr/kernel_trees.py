"""Which kernel each of the processes below a gateway belongs to."""

import re
from collections.abc import Container, Mapping

from ipybox.kernel_mgr.process_tree import ProcessTree

#: The command line of a kernel has its id in the name of a file.
KERNEL = re.compile(rb"\0ipybox\.guest\.kernel\0[^\0]*/kernel-([\w-]{1,100})\.json\0")


class KernelTrees:
    """Tells the processes of one kernel from those of another, daemons included.

    A process belongs to the kernel below which it was first seen. One that has left its kernel's tree before is
    nobody's. This is about fairness between kernels that share a sandbox: those that want to can deceive it.

    Args:
        tree: The processes below the gateway.
    """

    def __init__(self, tree: ProcessTree):
        self._tree = tree
        self._owners: dict[int, str] = {}

    @property
    def kernels(self) -> set[str]:
        """The ids of the kernels that had processes at the last look."""
        return set(self._owners.values())

    def look(self, parents: Mapping[int, int], helpers: Container[int]) -> None:
        """Takes note of the processes that there are now, as `ProcessTree.parents` tells them; helpers are nobody's."""
        owners: dict[int, str] = {}
        for pid, parent in parents.items():
            if pid not in helpers:
                owner = self._owners.get(pid) or owners.get(parent) or self._kernel(pid)
                if owner is not None:
                    owners[pid] = owner
        self._owners = owners

    def pids(self, kernel: str | None) -> list[int]:
        """Returns the processes of a kernel, parents before children."""
        return [pid for pid, owner in self._owners.items() if owner == kernel]

    def _kernel(self, pid: int) -> str | None:
        """Returns the id of the kernel that a process is, if it is one."""
        match = KERNEL.search(self._tree.command(pid))
        return None if match is None else match[1].decode()
