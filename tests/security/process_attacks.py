"""What hostile code tries on other processes and on the system. Kernels get this module as it is.

Those that need a target get its id on the host, and a token that is in its command line. Where it is not to be seen,
all other processes that are get the same: what holds for them holds for the gateway and for what is around it.
Signals are SIGURG or SIGWINCH, which do nothing to a process that does not ask for them.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import pty
import shutil
import signal
import struct
import termios
from collections.abc import Callable
from contextlib import suppress
from glob import glob
from pathlib import Path

from tests.security.attack_tools import checked, in_child, libc, output

#: Ids that are tried besides those of /proc, which may be another namespace's.
LOW_IDS = 40

PTRACE_ATTACH, PTRACE_DETACH = 16, 17
PIDFD_SEND_SIGNAL, PIDFD_OPEN, PIDFD_GETFD = 424, 434, 438  # the same on all machines
DESCRIPTORS = 64
PRIO_PROCESS, PRIO_PGRP, RLIMIT_NOFILE = 0, 1, 7
IOPRIO_WHO_PROCESS, IOPRIO_CLASS_IDLE = 1, 3 << 13
IOPRIO_SET, SCHED_SETATTR = {"x86_64": 251, "aarch64": 30}, {"x86_64": 314, "aarch64": 274}
CAP_SYS_ADMIN = 21
IPC_CREAT, IPC_RMID, SETVAL, GETVAL = 0o1000, 0, 16, 12
KEYCTL_READ = 11

#: What a system call says about its arguments.
COMPLAINTS = (errno.EFAULT, errno.EINVAL, errno.EBADF, errno.ENOENT, errno.ESRCH)


# --- tools


def others(pid: str, token: str) -> list[int]:
    """Returns the target, if it is in sight, and otherwise all processes but this one."""
    with suppress(OSError):
        if token in Path(f"/proc/{pid}/cmdline").read_text():
            return [int(pid)]
    seen = {int(entry) for entry in os.listdir("/proc") if entry.isdigit()} | set(range(1, LOW_IDS)) | {int(pid)}
    return sorted(pid for pid in seen if not is_own(pid))


def is_own(pid: int) -> bool:
    """Whether it is this process, or a thread of it: these have directories in /proc, too, which it does not list."""
    if os.getpid() == pid:  # the number differs from that in /proc where the latter is of another namespace
        return True
    with suppress(OSError):
        group = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("Tgid"))
        return group.split()[1] == os.readlink("/proc/self")
    return False


def each(attempt: Callable[[int], str], pids: list[int]) -> str:
    """Returns what it yields for all of them that it works on."""
    found: list[str] = []
    failures: list[str] = []
    for pid in pids:
        try:
            found.append(f"{pid}: {attempt(pid)}")
        except (OSError, ValueError) as exc:
            failures.append(str(exc))
    if not found:
        raise OSError("; ".join(dict.fromkeys(failures)))
    return "\n".join(found)


def system_call(number: int, *arguments: object) -> int:
    return checked(libc.syscall(ctypes.c_long(number), *arguments), f"system call {number}")


# --- signals


def kill(pid: str, token: str) -> str:
    return each(lambda pid: str(os.kill(pid, signal.SIGURG)), [int(pid), *others(pid, token)])


def kill_group(pid: str, token: str) -> str:
    return each(lambda pid: str(os.killpg(pid, signal.SIGURG)), [int(pid), *others(pid, token)])


def kill_all() -> str:
    os.kill(-1, signal.SIGWINCH)  # it reaches all of the machine, also tests beside this one that wait for no SIGURG
    return "signaled"


def kill_thread(pid: str, token: str) -> str:
    return each(
        lambda pid: str(checked(libc.tgkill(pid, pid, signal.SIGURG), "tgkill")), [int(pid), *others(pid, token)]
    )


def kill_by_descriptor(pid: str, token: str) -> str:
    def attempt(pid: int) -> str:
        return str(system_call(PIDFD_SEND_SIGNAL, os.pidfd_open(pid), signal.SIGURG, None, 0))

    return each(attempt, [int(pid), *others(pid, token)])


def kill_by_directory(pid: str, token: str) -> str:
    """A directory of /proc is a descriptor of its process, too, whatever namespace that is in."""

    def attempt(pid: int) -> str:
        directory = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY)
        try:
            return str(system_call(PIDFD_SEND_SIGNAL, directory, signal.SIGURG, None, 0))
        finally:
            os.close(directory)

    return each(attempt, others(pid, token))


def kill_by_ownership_of_a_pipe(pid: str, token: str) -> str:
    """The owner of a descriptor gets a signal when something comes."""

    def attempt(pid: int) -> str:
        reader, writer = os.pipe()
        try:
            fcntl.fcntl(reader, fcntl.F_SETOWN, pid)
            fcntl.fcntl(reader, 10, signal.SIGURG)  # F_SETSIG
            fcntl.fcntl(reader, fcntl.F_SETFL, os.O_ASYNC)
            os.write(writer, b"x")
        finally:
            os.close(reader)
            os.close(writer)
        return "owns"

    return each(attempt, [int(pid), *others(pid, token)])


# --- memory, descriptors and settings of processes


def read_environments(pid: str, token: str) -> str:
    return each(lambda pid: Path(f"/proc/{pid}/environ").read_text() or _nothing(), others(pid, token))


def read_memory(pid: str, token: str) -> str:
    """Reads what is writable, up to some megabytes of each process."""

    def attempt(pid: int) -> str:
        found = b""
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            for start, end in _writable(maps.read()):
                with suppress(OSError):
                    memory.seek(start)
                    found += memory.read(min(end - start, (4 << 20) - len(found)))
        return found.decode("latin-1") or _nothing()

    return each(attempt, others(pid, token))


def open_memory_to_write(pid: str, token: str) -> str:
    def attempt(pid: int) -> str:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR))
        return "opened"

    return each(attempt, others(pid, token))


def read_maps(pid: str, token: str) -> str:
    return each(lambda pid: Path(f"/proc/{pid}/maps").read_text() or _nothing(), others(pid, token))


def copy_memory(pid: str, token: str) -> str:
    class Vector(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))

    def attempt(pid: int) -> str:
        with open(f"/proc/{pid}/maps") as maps:
            start, _ = _writable(maps.read())[0]
        buffer = ctypes.create_string_buffer(64)
        local, remote = Vector(ctypes.addressof(buffer), 64), Vector(start, 64)
        checked(libc.process_vm_readv(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0), "process_vm_readv")
        return "read"

    def anywhere(pid: int) -> str:
        """Without an address, it is only asked for: EFAULT says that it would be allowed."""
        buffer = ctypes.create_string_buffer(64)
        local, remote = Vector(ctypes.addressof(buffer), 64), Vector(4096, 64)
        result = libc.process_vm_readv(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
        if result == -1 and ctypes.get_errno() != errno.EFAULT:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return "read"

    def either(pid: int) -> str:
        try:
            return attempt(pid)
        except (OSError, IndexError):
            return anywhere(pid)

    return each(either, others(pid, token))


def trace(pid: str, token: str) -> str:
    def attempt(pid: int) -> str:
        checked(libc.ptrace(PTRACE_ATTACH, pid, None, None), "ptrace")
        os.waitpid(pid, 0)
        libc.ptrace(PTRACE_DETACH, pid, None, None)
        return "attached"

    return each(attempt, others(pid, token))


def list_descriptors(pid: str, token: str) -> str:
    """Returns what the descriptors lead to; that there are some is no secret."""

    def attempt(pid: int) -> str:
        return " ".join(os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")) or _nothing()

    return each(attempt, others(pid, token))


def take_descriptors(pid: str, token: str) -> str:
    def attempt(pid: int) -> str:
        process = os.pidfd_open(pid)
        taken: list[int] = []
        for number in range(DESCRIPTORS):
            with suppress(OSError):
                taken.append(system_call(PIDFD_GETFD, process, number, 0))
        os.close(process)
        names = [os.readlink(f"/proc/self/fd/{each}") for each in taken]
        for descriptor in taken:
            os.close(descriptor)
        return " ".join(names) or _nothing()

    return each(attempt, others(pid, token))


def open_descriptors(pid: str, token: str) -> str:
    def attempt(pid: int) -> str:
        found: list[str] = []
        for link in glob(f"/proc/{pid}/fd/*"):
            with suppress(OSError):
                os.close(os.open(link, os.O_RDONLY | os.O_NONBLOCK))
                found.append(link)
        return " ".join(found) or _nothing()

    return each(attempt, others(pid, token))


def enter_directories(pid: str, token: str) -> str:
    def attempt(pid: int) -> str:
        return " ".join(os.readlink(f"/proc/{pid}/{name}") for name in ("cwd", "root", "exe"))

    return each(attempt, others(pid, token))


def find_command_lines(token: str) -> str:
    """Looks for a word in what can be seen of all processes."""
    for file in glob("/proc/[0-9]*/cmdline"):
        with suppress(OSError):
            if token in Path(file).read_text():
                return token
    raise OSError("no such process is in sight")


def change_priority(pid: str, token: str) -> str:
    return each(lambda pid: str(os.setpriority(PRIO_PROCESS, pid, 19)), others(pid, token))


def change_group_priority(pid: str, token: str) -> str:
    return each(lambda pid: str(os.setpriority(PRIO_PGRP, pid, 19)), others(pid, token))


def change_disk_priority(pid: str, token: str) -> str:
    call = IOPRIO_SET[os.uname().machine]
    return each(lambda pid: str(system_call(call, IOPRIO_WHO_PROCESS, pid, IOPRIO_CLASS_IDLE)), others(pid, token))


def change_affinity(pid: str, token: str) -> str:
    return each(lambda pid: str(os.sched_setaffinity(pid, {min(os.sched_getaffinity(0))})), others(pid, token))


def change_policy(pid: str, token: str) -> str:
    attempt = os.sched_setscheduler
    return each(lambda pid: str(attempt(pid, os.SCHED_IDLE, os.sched_param(0))), others(pid, token))


def change_attributes(pid: str, token: str) -> str:
    attributes = struct.pack("=IIQiIQQQ", 48, os.SCHED_IDLE, 0, 0, 0, 0, 0, 0)
    call = SCHED_SETATTR[os.uname().machine]
    return each(lambda pid: str(system_call(call, pid, attributes, 0)), others(pid, token))


def change_limits(pid: str, token: str) -> str:
    limits = (ctypes.c_uint64 * 2)(32, 64)
    attempt = libc.prlimit64
    return each(lambda pid: str(checked(attempt(pid, RLIMIT_NOFILE, limits, None), "prlimit")), others(pid, token))


def change_oom_score(pid: str, token: str) -> str:
    return each(lambda pid: str(Path(f"/proc/{pid}/oom_score_adj").write_text("900")), others(pid, token))


def _writable(maps: str) -> list[tuple[int, int]]:
    ranges = [line.split() for line in maps.splitlines()]
    return [
        (int(one, 16), int(two, 16)) for span, mode, *_ in ranges if mode[:2] == "rw" for one, two in [span.split("-")]
    ]


def _nothing() -> str:
    raise OSError("nothing there")


# --- memory, messages and keys that the system keeps for all


def read_shared_memory(identity: str) -> str:
    libc.shmat.restype = ctypes.c_void_p
    address = libc.shmat(int(identity), None, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    content = ctypes.string_at(address)
    libc.shmdt(ctypes.c_void_p(address))
    return content.decode()


def write_shared_memory(identity: str, word: str) -> str:
    libc.shmat.restype = ctypes.c_void_p
    address = libc.shmat(int(identity), None, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    ctypes.memmove(address, word.encode() + b"\0", len(word) + 1)
    libc.shmdt(ctypes.c_void_p(address))
    return word


def make_shared_memory(key: str) -> str:
    """Something that stays when this process has ended, and that others can find."""
    return str(checked(libc.shmget(int(key), 4096, IPC_CREAT | 0o600), "shmget"))


def set_semaphore(identity: str, value: str) -> str:
    return str(checked(libc.semctl(int(identity), 0, SETVAL, ctypes.c_int(int(value))), "semctl"))


def send_message(identity: str, word: str) -> str:
    body = struct.pack("@l", 1) + word.encode()
    return str(checked(libc.msgsnd(int(identity), body, len(word), 0o4000), "msgsnd"))


def send_posix_message(name: str, word: str) -> str:
    queue = checked(libc.mq_open(name.encode(), os.O_WRONLY | os.O_NONBLOCK), "mq_open")
    try:
        return str(checked(libc.mq_send(queue, word.encode(), len(word), 0), "mq_send"))
    finally:
        libc.mq_close(queue)


def read_file_of_memory(name: str) -> str:
    return Path(f"/dev/shm/{name}").read_text()


def write_file_of_memory(name: str, word: str) -> str:
    return str(Path(f"/dev/shm/{name}").write_text(word))


def read_key(number: str, identity: str) -> str:
    buffer = ctypes.create_string_buffer(256)
    size = system_call(int(number), KEYCTL_READ, int(identity), buffer, len(buffer))
    return buffer.raw[:size].decode()


# --- the system itself


def new_namespace(flag: str) -> str:
    def attempt() -> str:
        checked(libc.unshare(int(flag)), "unshare")
        return "made"

    return in_child(attempt)


def clone_into_namespace(flag: str, number: str) -> str:
    def attempt() -> str:
        child = system_call(int(number), int(flag) | signal.SIGCHLD, None, None, None, None)
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        return "made"

    return in_child(attempt)


def call(number: str, *arguments: str) -> str:
    """Makes a system call. That it complains about its arguments means that it can be made."""
    values = [ctypes.c_long(int(argument)) for argument in arguments]
    padding = [ctypes.c_long(0)] * (6 - len(values))

    def attempt() -> str:
        result = libc.syscall(ctypes.c_long(int(number)), *values, *padding)
        if result == -1 and ctypes.get_errno() not in COMPLAINTS:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return "was made"

    return in_child(attempt)


def call_of_32_bits() -> str:
    """`getpid` of 32-bit programs: another table of system calls, that a filter could have forgotten."""

    def attempt() -> str:
        code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")  # mov eax, 20; int 0x80; ret
        function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
        return "getpid worked" if function() == os.getpid() else "another result"

    return in_child(attempt)


def type_into_a_terminal() -> str:
    """Puts a character into the input of the controlling terminal, as whoever shares it with a shell would."""

    def attempt() -> str:
        os.setsid()
        controller, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        fcntl.ioctl(terminal, termios.TIOCSTI, b"\n")
        os.close(controller)
        return "typed"

    return in_child(attempt)


def open_the_terminal() -> str:
    os.close(os.open("/dev/tty", os.O_RDWR))
    return "opened"


def gain_privileges() -> str:
    """Tells whether programs may give this process privileges that it does not have, or it has some already."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    status = {line[0].rstrip(":"): line[1] for line in lines if len(line) > 1}
    # What is in the bounding set can't be had without new privileges.
    capabilities = [name for name in ("CapEff", "CapPrm", "CapInh", "CapAmb") if int(status[name], 16)]
    if status["NoNewPrivs"] == "1" and not capabilities:
        raise OSError("no new privileges, and no capabilities")
    return f"NoNewPrivs: {status['NoNewPrivs']}, {', '.join(capabilities)}"


def leave_a_program(path: str) -> str:
    """Leaves a program that runs as the user of this process, even if another one starts it."""
    shutil.copy(shutil.which("cat") or "/bin/cat", path)
    os.chmod(path, 0o4755)
    return "left"


def run_with_privileges(program: str) -> str:
    """Runs a program that is to have capabilities by itself, and returns whether it has."""
    status = output(program, "/proc/self/status")
    lines = [line for line in status.splitlines() if line.startswith("CapEff")]
    if int(lines[0].split()[1], 16) == 0:
        raise OSError("it has no capabilities")
    return lines[0]


def run_as_somebody_else(program: str) -> str:
    """Runs a program that is to run as its owner, and returns who it was run as."""
    status = output(program, "/proc/self/status")
    line = next(line for line in status.splitlines() if line.startswith("Uid"))
    _, own, effective, *_ = line.split()
    if own == effective:
        raise OSError("it is run as anybody else's")
    return line


def change_settings_of_the_system(*directories: str) -> str:
    """Opens what can be written of the kernel's settings, and writes nothing."""
    found: list[str] = []
    for directory in directories:
        for parent, children, files in os.walk(directory):
            if parent == "/proc":
                children[:] = [name for name in children if not name.isdigit() and name not in ("self", "thread-self")]
            for name in files:
                with suppress(OSError):
                    os.close(os.open(f"{parent}/{name}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW))
                    found.append(f"{parent}/{name}")
    if not found:
        raise OSError("nothing there can be written")
    return "\n".join(found)


def open_the_memory_of_the_machine() -> str:
    for path in ("/dev/mem", "/dev/kmem", "/dev/port", "/proc/kcore", "/dev/kmsg", "/proc/kmsg"):
        with suppress(OSError):
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
            return f"opened {path}"
    raise OSError("none of them can be opened")


def mount_something(path: str) -> str:
    def attempt() -> str:
        with suppress(OSError):
            checked(libc.unshare(0x10000000 | 0x00020000), "unshare")
        arguments = (b"tmpfs", path.encode(), b"tmpfs", ctypes.c_ulong(0), None)
        checked(libc.mount(*arguments), "mount")
        return "mounted"

    return in_child(attempt)


def change_the_root(path: str) -> str:
    def attempt() -> str:
        with suppress(OSError):
            checked(libc.unshare(0x10000000 | 0x00020000), "unshare")
        checked(libc.chroot(path.encode()), "chroot")
        return "changed"

    return in_child(attempt)


def name_the_machine() -> str:
    """The name that it has already, so nothing changes."""

    def attempt() -> str:
        name = os.uname().nodename.encode()
        checked(libc.sethostname(name, len(name)), "sethostname")
        return "named"

    return in_child(attempt)
