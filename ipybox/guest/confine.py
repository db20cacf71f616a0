"""A second layer of confinement for sandboxed code on Linux: the gateway applies it to itself and all its kernels.

The sandbox restricts files and network. This layer removes other ways around it: capabilities, other processes of the
same user, the host's keys and unix sockets, new namespaces, and system calls that no notebook needs and that account
for most kernel exploits. It needs no privileges. See seccomp(2), capabilities(7), keyrings(7).
"""

import ctypes
import errno
import os
import stat
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 4, 24, 38, 47
PR_CAP_AMBIENT_CLEAR_ALL, KEYCTL_JOIN_SESSION_KEYRING = 4, 1
CAPABILITY_VERSION_3, CAPABILITY_SETS_SIZE, MAX_CAPABILITIES = 0x20080522, 24, 64

SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC = 1, 1
ALLOW, KILL, FAIL = 0x7FFF0000, 0x80000000, 0x00050000
DENY, ABSENT = FAIL | errno.EPERM, FAIL | errno.ENOSYS

#: Offsets in `struct seccomp_data`; the low half of an argument comes first (both architectures are little-endian).
NUMBER, ARCHITECTURE, FIRST_ARGUMENT, ARGUMENT_SIZE = 0, 4, 16, 8
#: For each machine, its column in the tables below and its AUDIT_ARCH_… value.
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
#: Set in the system call numbers of x86_64's x32 ABI.
X32_BIT = 0x40000000

#: Classic BPF operations (linux/filter.h): load a word of the data, return, mask the word, and compare it and jump.
LOAD, RETURN, AND, IF_EQUAL, IF_AT_LEAST, IF_ANY_BIT = 0x20, 0x06, 0x54, 0x15, 0x35, 0x45

#: System call numbers on x86_64 and aarch64, starting with calls that are used here or checked by their arguments.
CLONE, CLONE3, IOCTL, SOCKET, SOCKETPAIR = (56, 220), (435, 435), (16, 29), (41, 198), (53, 199)
CAPSET, KEYCTL, SECCOMP = (126, 91), (250, 219), (317, 277)
#: System calls that change the process with a given id, where 0 is the caller. They fail with EPERM for other
#: processes: sessions run as one user, so each could otherwise change the others and the gateway.
PRLIMIT64, SETPRIORITY, IOPRIO_SET = (302, 261), (141, 140), (251, 30)
SCHED_SETAFFINITY, SCHED_SETATTR, SCHED_SETSCHEDULER = (203, 122), (314, 274), (144, 119)
FCNTL = (72, 25)
#: System calls that set a file's mode, and the index of their mode argument; None if a machine lacks the call.
CHMOD: dict[str, tuple[tuple[int, int | None], int]] = {
    "chmod": ((90, None), 1),
    "fchmod": ((91, 52), 1),
    "fchmodat": ((268, 53), 2),
    "fchmodat2": ((452, 452), 2),
}
#: System calls that always fail with EPERM; None if a machine lacks the call.
DENIED: dict[str, tuple[int, int | None]] = {
    # Memory, registers and descriptors of other processes: the gateway holds the link to the application.
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    # Keys belong to the user, not to a namespace, so these calls would reach the keys of the host's sessions.
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": KEYCTL,
    # A new user namespace grants all capabilities over everything in it, above all mounts.
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "mount": (165, 40),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    # System V IPC and POSIX message queues would be the host's, because srt creates no IPC namespace. Python's own
    # semaphores and shared memory are files in the sandbox's /dev/shm.
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "semtimedop": (220, 192),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    # A handle opens a file without a path, and so bypasses mounts.
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    # Large or rarely used parts of the kernel with a history of exploits.
    "modify_ldt": (154, None),
    "perf_event_open": (298, 241),
    "fanotify_init": (300, 262),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    # Machine administration and the system log. Reading the clock's state (adjtimex) is allowed, setting it is not.
    "syslog": (103, 116),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "iopl": (172, None),
    "ioperm": (173, None),
    "init_module": (175, 105),
    "delete_module": (176, 106),
    "quotactl": (179, 60),
    "clock_settime": (227, 112),
    "kexec_load": (246, 104),
    "finit_module": (313, 273),
    "kexec_file_load": (320, 294),
    "quotactl_fd": (443, 443),
}

#: CLONE_NEWNS, -CGROUP, -UTS, -IPC, -USER, -PID and -NET; clone() can't create the eighth kind, time namespaces.
NEW_NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
#: Both inject input into a terminal as if its user had typed it.
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
#: Leases and delegations (since Linux 6.19, also on directories) work on any file of the same user. Until one ends,
#: after 45 s, other programs block when they open the file for writing.
F_SETLEASE, F_SETDELEG = 1024, 1040
#: AF_UNIX is allowed for pairs only: other sockets could reach visible sockets of host programs. Families that are not
#: listed are rarely used kernel code, or lead out, as AF_VSOCK does from a virtual machine to its host.
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
#: Types allowed for pairs, whose ends reach only each other; a datagram socket can send to any path.
SOCK_STREAM, SOCK_SEQPACKET, SOCK_TYPE_MASK = 1, 5, 0xF
#: How setpriority() and ioprio_set() select all processes of a user; their other selectors are allowed with id 0.
PRIO_USER, IOPRIO_WHO_USER = 2, 3
SCHED_OTHER = 0

#: What /proc shows for a confined thread.
CONFINED = {"CapInh": 0, "CapPrm": 0, "CapEff": 0, "CapAmb": 0, "NoNewPrivs": 1, "Seccomp": 2}


class Instruction(NamedTuple):
    """A filter instruction; jump offsets count the instructions after this one."""

    code: int
    value: int
    if_true: int = 0
    if_false: int = 0


ALLOWS, DENIES = [Instruction(RETURN, ALLOW)], [Instruction(RETURN, DENY)]

#: The first system call number to which an action applies, and the action; the next leaf ends the range.
Leaf: TypeAlias = tuple[int, list[Instruction]]


def confine() -> None:
    """Removes capabilities, keys and dangerous system calls from this process and its future children, permanently.

    Existing threads also get the filter, but keep their capabilities and keyring, so call this before starting any.

    Raises:
        OSError: If the process or one of its threads can't be confined. It must then run no untrusted code.
    """
    column = _column()
    prctl("set no_new_privs", PR_SET_NO_NEW_PRIVS, 1)
    # ENOSYS: the system has no keyrings. EPERM: a filter (a container's, or this one) already denies the call.
    join = (KEYCTL[column], KEYCTL_JOIN_SESSION_KEYRING, 0)
    system_call("leave the host's session keyring", *join, tolerated=(errno.ENOSYS, errno.EPERM))
    _drop_capabilities(CAPSET[column])

    code = b"".join(struct.pack("=HBBI", op, yes, no, value) for op, value, yes, no in program(os.uname().machine))
    instructions = ctypes.create_string_buffer(code, len(code))
    description = ctypes.create_string_buffer(struct.pack("@HP", len(code) // 8, ctypes.addressof(instructions)))
    arguments = (SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, ctypes.addressof(description))
    if thread := system_call("install the system call filter", SECCOMP[column], *arguments):
        raise OSError(errno.EBUSY, f"could not install the system call filter: thread {thread} has a different one")
    _verify()


def protect_process() -> None:
    """Closes this process's /proc/PID/{mem,fd,environ,…} to the user's other processes, until it executes a program."""
    prctl("make this process undumpable", PR_SET_DUMPABLE, 0)


def unprotect_process() -> None:
    """Undoes `protect_process`, which forked children inherit."""
    prctl("make this process dumpable", PR_SET_DUMPABLE, 1)


def program(machine: str) -> list[Instruction]:
    """Returns the filter for a machine, named as by `uname -m`.

    It is a binary search of about seven comparisons. Since Linux 5.11, calls that always pass skip it.
    """
    column, architecture = MACHINES[machine]
    # The kernel reads flags, requests and families as 32 bits, so the high half of the argument doesn't matter.
    own = _if(0, IF_EQUAL, (0,), then=ALLOWS, otherwise=DENIES)
    streams = _if(1, IF_EQUAL, (SOCK_STREAM, SOCK_SEQPACKET), mask=SOCK_TYPE_MASK, then=ALLOWS, otherwise=DENIES)
    # The ordinary policy changes nothing. Libraries set it for their threads, and libzmq aborts if that fails.
    ordinary = _if(1, IF_EQUAL, (SCHED_OTHER,), then=ALLOWS, otherwise=DENIES)
    # Other processes' limits may only be read: both halves of the pointer to new limits must be null.
    reads = _if(2.5, IF_EQUAL, (0,), then=ALLOWS, otherwise=DENIES)
    reads = _if(2, IF_EQUAL, (0,), then=reads, otherwise=DENIES)
    special: dict[tuple[int, int | None], list[Instruction]] = {
        CLONE: _if(0, IF_ANY_BIT, (NEW_NAMESPACES,), then=DENIES, otherwise=ALLOWS),
        CLONE3: [Instruction(RETURN, ABSENT)],  # its flags are in memory; the C library falls back to clone()
        IOCTL: _if(1, IF_EQUAL, (TIOCSTI, TIOCLINUX), then=DENIES, otherwise=ALLOWS),
        FCNTL: _if(1, IF_EQUAL, (F_SETLEASE, F_SETDELEG), then=DENIES, otherwise=ALLOWS),
        SOCKET: _if(0, IF_EQUAL, (AF_INET, AF_INET6, AF_NETLINK), then=ALLOWS, otherwise=DENIES),
        SOCKETPAIR: _if(0, IF_EQUAL, (AF_UNIX,), then=streams, otherwise=DENIES),
        SCHED_SETAFFINITY: own,
        SCHED_SETATTR: own,
        SCHED_SETSCHEDULER: _if(0, IF_EQUAL, (0,), then=ALLOWS, otherwise=ordinary),
        PRLIMIT64: _if(0, IF_EQUAL, (0,), then=ALLOWS, otherwise=reads),
    }
    for call, user in ((SETPRIORITY, PRIO_USER), (IOPRIO_SET, IOPRIO_WHO_USER)):
        itself = _if(1, IF_EQUAL, (0,), then=ALLOWS, otherwise=DENIES)
        special[call] = _if(0, IF_EQUAL, (user,), then=DENIES, otherwise=itself)
    for call, mode in CHMOD.values():
        special[call] = _if(mode, IF_ANY_BIT, (privileged_modes(),), then=DENIES, otherwise=ALLOWS)
    rules = {**dict.fromkeys(DENIED.values(), DENIES), **special}
    actions = {number: rule for numbers, rule in rules.items() if (number := numbers[column]) is not None}

    leaves: list[Leaf] = [(0, ALLOWS)]
    for start in sorted({*actions, *(number + 1 for number in actions)}):
        code = actions.get(start, ALLOWS)
        if code != leaves[-1][1]:
            leaves.append((start, code))
    leaves.append((X32_BIT, DENIES))

    return [
        # 32-bit programs use different numbers. Kill them: if every call failed, they could not even exit.
        Instruction(LOAD, ARCHITECTURE),
        Instruction(IF_EQUAL, architecture, if_true=1),
        Instruction(RETURN, KILL),
        Instruction(LOAD, NUMBER),
        *_search(leaves),
    ]


def privileged_modes() -> int:
    """Returns the mode bits that make a program run as the user or group of this process (setuid, setgid).

    Others could run such files outside the sandbox. Setgid counts only for root: other groups have no privileges, and
    share directories with it. If a file is created with these bits, the first write clears them.
    """
    return stat.S_ISUID | (stat.S_ISGID if os.geteuid() == 0 else 0)


def _column() -> int:
    machine = os.uname().machine
    if sys.platform != "linux" or machine not in MACHINES or sys.maxsize < 1 << 32:
        known = " and ".join(f"64-bit {name}" for name in MACHINES)
        raise OSError(
            errno.ENOSYS, f"the system call filter doesn't support {sys.platform} on {machine}, only Linux on {known}"
        )
    return MACHINES[machine][0]


def _drop_capabilities(capset: int) -> None:
    # The bounding set needs CAP_SETPCAP. Without it, no_new_privs alone keeps programs from gaining capabilities.
    for capability in range(MAX_CAPABILITIES):
        prctl("drop capabilities", PR_CAPBSET_DROP, capability, tolerated=(errno.EPERM, errno.EINVAL))
    prctl("clear ambient capabilities", PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = ctypes.create_string_buffer(struct.pack("=Ii", CAPABILITY_VERSION_3, 0))
    nothing = ctypes.create_string_buffer(CAPABILITY_SETS_SIZE)
    system_call("give up capabilities", capset, ctypes.addressof(header), ctypes.addressof(nothing))


def _verify() -> None:
    for task in Path("/proc/self/task").iterdir():
        lines = (line.partition(":") for line in (task / "status").read_text().splitlines())
        found = {name: int(value, 16) for name, _, value in lines if name in CONFINED}
        if found != CONFINED:
            raise OSError(errno.EBUSY, f"thread {task.name} is not confined: it has {found}, not {CONFINED}")


def _if(
    argument: float,
    operation: int,
    values: Sequence[int],
    *,
    mask: int = 0xFFFFFFFF,
    then: list[Instruction],
    otherwise: list[Instruction],
) -> list[Instruction]:
    """Returns a test of an argument's low half, or of its high half if the index ends in .5."""
    load = [Instruction(LOAD, FIRST_ARGUMENT + int(argument * ARGUMENT_SIZE)), Instruction(AND, mask)]
    below = len(otherwise) + len(values)
    tests = [Instruction(operation, value, if_true=below - i) for i, value in enumerate(values, 1)]
    return [*load, *tests, *otherwise, *then]


def _search(leaves: list[Leaf]) -> list[Instruction]:
    if len(leaves) == 1:
        return leaves[0][1]
    middle = len(leaves) // 2
    below, above = _search(leaves[:middle]), _search(leaves[middle:])
    return [Instruction(IF_AT_LEAST, leaves[middle][0], if_true=len(below)), *below, *above]


def prctl(what: str, *arguments: int, tolerated: Sequence[int] = ()) -> int:
    """Calls the C library's prctl(); otherwise like `system_call`."""
    return _call("prctl", what, (*arguments, 0, 0, 0, 0)[:5], tolerated)


def system_call(what: str, *arguments: int, tolerated: Sequence[int] = ()) -> int:
    """Returns the result of a system call, or -1 for a tolerated error; other errors raise an OSError."""
    return _call("syscall", what, arguments, tolerated)


def _call(name: str, what: str, arguments: Sequence[int], tolerated: Sequence[int]) -> int:
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    function.restype = ctypes.c_long
    result: int = function(*(ctypes.c_ulong(argument) for argument in arguments))
    if result == -1 and (error := ctypes.get_errno()) not in tolerated:
        raise OSError(error, f"could not {what}: {os.strerror(error)}")
    return result
