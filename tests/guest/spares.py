"""The spare kernel of a gateway, as the host sees it."""

import re
from contextlib import suppress

from ipybox import CodeExecutor
from tests import servers
from tests.code_exec.test_lifecycle import command_of

KERNEL = re.compile(r"ipybox\.guest\.kernel .*/kernel-([\w-]+)\.json")


def kernels_beside(executor: CodeExecutor, *others: CodeExecutor) -> dict[str, int]:
    """Returns the ids and processes of the kernels of the executor's gateway that no session uses."""
    used = {each.kernel_id for each in (executor, *others)}
    kernels = _kernels(set())
    gateway = servers.parent(kernels[executor.kernel_id or ""])
    return {kernel: pid for kernel, pid in kernels.items() if kernel not in used and _is_child(pid, gateway)}


async def until_first(before: set[int]) -> str:
    """Returns the id of the first kernel of a gateway that was started after `before`, as soon as there is one."""
    (first,) = await servers.until(lambda: _kernels(before))
    return first


def _kernels(before: set[int]) -> dict[str, int]:
    """Returns the ids and processes of kernels, without those of `before`."""
    found = {pid: KERNEL.search(command_of(pid)) for pid in servers.descendants() - before}
    return {match[1]: pid for pid, match in found.items() if match is not None}


def _is_child(pid: int, parent: int) -> bool:
    with suppress(FileNotFoundError):  # a process between the template and a kernel, which has ended
        return servers.parent(pid) == parent
    return False


async def until_spare(executor: CodeExecutor, *others: CodeExecutor) -> str:
    """Returns the id of the spare kernel, as soon as there is one.

    Args:
        executor: An executor of the gateway.
        others: All its other executors.
    """
    (spare,) = await servers.until(lambda: kernels_beside(executor, *others))
    return spare
