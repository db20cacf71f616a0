from ipybox.kernel_mgr.kernel_trees import KernelTrees
from ipybox.kernel_mgr.process_tree import LinuxTree

GATEWAY, A, B = 1, 10, 20


class Commands(LinuxTree):
    """A tree of which only the command lines are asked for."""

    def __init__(self, **kernels: int):
        super().__init__(GATEWAY)
        self.kernels = {pid: name for name, pid in kernels.items()}

    def command(self, pid: int) -> bytes:
        kernel = self.kernels.get(pid)
        return b"python\0" if kernel is None else f"python\0-m\0ipybox.guest.kernel\0/x/kernel-{kernel}.json\0".encode()


def test_processes_belong_to_the_kernel_that_they_were_first_seen_below():
    trees = KernelTrees(Commands(a=A, b=B))
    trees.look({GATEWAY: 0, A: GATEWAY, B: GATEWAY, 11: A, 12: 11, 21: B}, {GATEWAY})
    assert trees.kernels == {"a", "b"}
    assert (trees.pids("a"), trees.pids("b")) == ([A, 11, 12], [B, 21])

    # 11 has ended, and its child is the gateway's now; 13 was never seen below its kernel.
    trees.look({GATEWAY: 0, A: GATEWAY, B: GATEWAY, 12: GATEWAY, 13: GATEWAY, 14: 12}, {GATEWAY})
    assert (trees.pids("a"), trees.pids("b")) == ([A, 12, 14], [B])

    trees.look({GATEWAY: 0, B: GATEWAY}, {GATEWAY})
    assert trees.kernels == {"b"}


def test_a_kernel_is_found_once_it_has_its_command_line():
    commands = Commands()
    trees = KernelTrees(commands)
    trees.look({GATEWAY: 0, A: GATEWAY}, {GATEWAY})
    assert trees.kernels == set()
    commands.kernels[A] = "a"
    trees.look({GATEWAY: 0, A: GATEWAY}, {GATEWAY})
    assert trees.pids("a") == [A]


def test_a_process_that_looks_like_another_kernel_stays_with_its_own():
    trees = KernelTrees(Commands(a=A, b=11))
    trees.look({GATEWAY: 0, A: GATEWAY, 11: A}, {GATEWAY})
    assert trees.pids("a") == [A, 11]
    assert trees.kernels == {"a"}
