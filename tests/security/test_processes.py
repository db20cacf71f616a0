"""Processes and the system: what runs outside can't be hit, seen or asked, and no privileges are to be had."""

import ctypes
import os
import secrets
import shutil
import stat
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from ipybox.guest import confine
from tests import servers
from tests.security import kernels, process_attacks
from tests.security.attack_tools import checked, libc
from tests.security.conftest import Row
from tests.security.kernels import Attack, Kernel, Outcome, Place, Probe, held, named, running

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.kernel]

MACHINE = os.uname().machine
ADD_KEY = {"x86_64": 248, "aarch64": 217}[MACHINE]
IOPRIO_GET = {"x86_64": 252, "aarch64": 31}[MACHINE]
KEYCTL_SETPERM, USER_KEYRING, ALL_FOR_THE_USER = 5, -4, 0x3F3F0000
NOBODY = 65534


@dataclass(frozen=True)
class Kernels:
    plain: Kernel
    sandboxed: Kernel


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def all_kernels(tmp_path_factory: pytest.TempPathFactory, shared: None) -> AsyncIterator[Kernels]:
    async with AsyncExitStack() as stack:

        async def kernel(sandbox: bool) -> Kernel:
            directory = tmp_path_factory.mktemp("workspace")
            return await stack.enter_async_context(running(Place(directory, directory, ""), sandbox=sandbox))

        yield Kernels(await kernel(False), await kernel(True))


# --- a process of the host

#: It lets everybody trace it, as where Yama is the control is no child of it.
VICTIM = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)
secret = os.environ["VICTIM_SECRET"]
for number in (signal.SIGURG, signal.SIGWINCH):
    signal.signal(number, lambda *_: os.write(1, b"hit\\n"))
os.write(1, b"ready\\n")
for line in sys.stdin:
    os.write(1, line.encode())
"""


class Victim:
    """A process that tells whether it was hit.

    Attributes:
        token: A word in its command line.
        secret: A word in its environment and memory.
    """

    def __init__(self, directory: Path):
        self.token = f"token-{secrets.token_hex(8)}"
        self.secret = f"secret-{secrets.token_hex(8)}"
        (directory / self.secret).write_text(self.secret)
        with open(directory / self.secret) as file:
            self._process = subprocess.Popen(
                [sys.executable, "-S", "-c", VICTIM, self.token],
                env={"VICTIM_SECRET": self.secret},
                cwd=directory,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                pass_fds=[file.fileno()],
                start_new_session=True,
            )
        assert self._line() == "ready"

    @property
    def pid(self) -> int:
        return self._process.pid

    def was_hit(self) -> bool:
        """Whether a signal has come up to now."""
        assert self._process.stdin is not None
        word = secrets.token_hex(4)
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        hit = False
        while (line := self._line()) != word:
            hit = hit or line == "hit"
        return hit

    def end(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=servers.WAIT)

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, "the victim has ended"
        return line


def settings_of(pid: int) -> object:
    """What others may not change of a process."""
    scheduling = (os.getpriority(os.PRIO_PROCESS, pid), os.sched_getaffinity(pid), os.sched_getscheduler(pid))
    disks = libc.syscall(IOPRIO_GET, process_attacks.IOPRIO_WHO_PROCESS, pid)
    files = [Path(f"/proc/{pid}/{name}").read_text() for name in ("limits", "oom_score_adj")]
    return scheduling, disks, files


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Victim]:
    victim = Victim(tmp_path)
    yield victim
    victim.end()


async def assault(probe: Probe, kernel: Kernel, victim: Victim) -> Outcome:
    return await kernel.run(probe.attack, str(victim.pid), victim.token)


SIGNALS = [
    Probe("kill", process_attacks.kill),
    Probe("killpg", process_attacks.kill_group),
    Probe("tgkill", process_attacks.kill_thread),
    Probe("pidfd_send_signal", process_attacks.kill_by_descriptor),
    Probe("pidfd_send_signal to a directory of /proc", process_attacks.kill_by_directory),
    Probe("a signal by ownership of a pipe", process_attacks.kill_by_ownership_of_a_pipe),
]


@named(SIGNALS)
async def test_no_signal_reaches_a_process_of_the_host(
    probe: Probe, all_kernels: Kernels, victim: Victim, table: list[Row]
):
    outside = await assault(probe, all_kernels.plain, victim)
    assert victim.was_hit(), f"the attack does not work where nothing stops it: {outside}"

    within = await assault(probe, all_kernels.sandboxed, victim)

    assert not victim.was_hit()
    held(table, "Signals", probe, "hit", "not hit" if within.got else within)


async def test_no_signal_to_all_reaches_a_process_of_the_host(all_kernels: Kernels, victim: Victim, table: list[Row]):
    probe = Probe("kill(-1)", process_attacks.kill_all)
    outside = await all_kernels.plain.run(probe.attack)
    assert victim.was_hit(), f"the attack does not work where nothing stops it: {outside}"

    within = await all_kernels.sandboxed.run(probe.attack)

    assert not victim.was_hit()
    held(table, "Signals", probe, "hit", f"not hit ({within})")


#: What is read of a process; within the sandbox it must not work on any other process either, the gateway above all.
SIGHT = [
    Probe("/proc/*/environ", process_attacks.read_environments),
    Probe("/proc/*/mem", process_attacks.read_memory),
    Probe("/proc/*/mem, to write", process_attacks.open_memory_to_write),
    Probe("/proc/*/maps", process_attacks.read_maps),
    Probe("/proc/*/fd, where they lead", process_attacks.list_descriptors),
    Probe("/proc/*/fd, opened again", process_attacks.open_descriptors),
    Probe("/proc/*/cwd, root and exe", process_attacks.enter_directories),
    Probe("process_vm_readv", process_attacks.copy_memory),
    Probe("ptrace", process_attacks.trace),
    Probe("pidfd_getfd", process_attacks.take_descriptors),
]


@named(SIGHT)
async def test_other_processes_keep_what_is_theirs(
    probe: Probe, all_kernels: Kernels, victim: Victim, table: list[Row]
):
    outside = await assault(probe, all_kernels.plain, victim)
    assert outside.got is not None, f"the attack does not work where nothing stops it: {outside}"
    assert outside.got.startswith(f"{victim.pid}: ")

    within = await assault(probe, all_kernels.sandboxed, victim)

    assert within.got is None, f"it works on other processes: {within}"
    held(table, "Processes", probe, "worked", within)


async def test_processes_of_the_host_are_not_in_sight(all_kernels: Kernels, victim: Victim, table: list[Row]):
    probe = Probe("finding a process by its command line", process_attacks.find_command_lines)
    assert (await all_kernels.plain.run(probe.attack, victim.token)).got == victim.token

    within = await all_kernels.sandboxed.run(probe.attack, victim.token)

    assert within.got is None
    held(table, "Processes", probe, "found", within)


CHANGES = [
    Probe("setpriority", process_attacks.change_priority),
    Probe("setpriority of a group", process_attacks.change_group_priority),
    Probe("ioprio_set", process_attacks.change_disk_priority),
    Probe("sched_setaffinity", process_attacks.change_affinity),
    Probe("sched_setscheduler", process_attacks.change_policy),
    Probe("sched_setattr", process_attacks.change_attributes),
    Probe("prlimit", process_attacks.change_limits),
    Probe("oom_score_adj", process_attacks.change_oom_score),
]


@named(CHANGES)
async def test_other_processes_stay_as_they_are(
    probe: Probe, all_kernels: Kernels, victim: Victim, tmp_path: Path, table: list[Row]
):
    other_directory = tmp_path / "other"
    other_directory.mkdir()
    other = Victim(other_directory)
    try:
        before = settings_of(other.pid)
        outside = await assault(probe, all_kernels.plain, other)
        assert settings_of(other.pid) != before or os.cpu_count() == 1, f"the attack does not work: {outside}"
    finally:
        other.end()

    before = settings_of(victim.pid)
    within = await assault(probe, all_kernels.sandboxed, victim)

    assert settings_of(victim.pid) == before
    assert within.got is None, f"it works on other processes: {within}"
    held(table, "Processes", probe, "changed", within)


# --- what the system keeps for all


@pytest.fixture
def shared_memory() -> Iterator[int]:
    identity = checked(libc.shmget(0, 4096, process_attacks.IPC_CREAT | 0o600), "shmget")
    yield identity
    libc.shmctl(identity, process_attacks.IPC_RMID, None)


async def test_shared_memory_of_the_host_is_not_read(all_kernels: Kernels, shared_memory: int, table: list[Row]):
    probe = Probe("reading System V shared memory", process_attacks.read_shared_memory)
    secret = f"secret-{secrets.token_hex(8)}"
    process_attacks.write_shared_memory(str(shared_memory), secret)
    assert (await all_kernels.plain.run(probe.attack, str(shared_memory))).got == secret

    within = await all_kernels.sandboxed.run(probe.attack, str(shared_memory))

    assert within.got != secret
    held(table, "Shared by all", probe, "read", within)


async def test_shared_memory_of_the_host_is_not_written(all_kernels: Kernels, shared_memory: int, table: list[Row]):
    probe = Probe("writing System V shared memory", process_attacks.write_shared_memory)
    await all_kernels.plain.run(probe.attack, str(shared_memory), "outside")
    assert process_attacks.read_shared_memory(str(shared_memory)) == "outside"

    within = await all_kernels.sandboxed.run(probe.attack, str(shared_memory), "within")

    assert process_attacks.read_shared_memory(str(shared_memory)) == "outside"
    held(table, "Shared by all", probe, "written", within)


async def test_no_shared_memory_is_made_for_the_host(all_kernels: Kernels, table: list[Row]):
    probe = Probe("making System V shared memory", process_attacks.make_shared_memory)
    key = secrets.randbits(30) + 1

    def found() -> bool:
        identity = libc.shmget(key, 0, 0)
        libc.shmctl(identity, process_attacks.IPC_RMID, None)
        return identity != -1

    outside = await all_kernels.plain.run(probe.attack, str(key))
    assert found(), f"the attack does not work where nothing stops it: {outside}"

    within = await all_kernels.sandboxed.run(probe.attack, str(key))

    assert not found()
    held(table, "Shared by all", probe, "made", within)


async def test_semaphores_of_the_host_are_not_changed(all_kernels: Kernels, table: list[Row]):
    probe = Probe("setting a System V semaphore", process_attacks.set_semaphore)
    identity = checked(libc.semget(0, 1, process_attacks.IPC_CREAT | 0o600), "semget")
    try:
        await all_kernels.plain.run(probe.attack, str(identity), "1")
        assert libc.semctl(identity, 0, process_attacks.GETVAL) == 1

        within = await all_kernels.sandboxed.run(probe.attack, str(identity), "2")

        assert libc.semctl(identity, 0, process_attacks.GETVAL) == 1
    finally:
        libc.semctl(identity, 0, process_attacks.IPC_RMID)
    held(table, "Shared by all", probe, "set", within)


async def test_no_message_comes_from_within(all_kernels: Kernels, table: list[Row]):
    probe = Probe("sending a System V message", process_attacks.send_message)
    identity = checked(libc.msgget(0, process_attacks.IPC_CREAT | 0o600), "msgget")

    def receive() -> str | None:
        buffer = ctypes.create_string_buffer(8 + 64)
        size = libc.msgrcv(identity, buffer, 64, ctypes.c_long(0), 0o4000)
        return None if size == -1 else buffer.raw[struct.calcsize("@l") :][:size].decode()

    try:
        await all_kernels.plain.run(probe.attack, str(identity), "outside")
        assert receive() == "outside"

        within = await all_kernels.sandboxed.run(probe.attack, str(identity), "within")

        assert receive() is None
    finally:
        libc.msgctl(identity, process_attacks.IPC_RMID, None)
    held(table, "Shared by all", probe, "sent", within)


async def test_no_posix_message_comes_from_within(all_kernels: Kernels, table: list[Row]):
    probe = Probe("sending a POSIX message", process_attacks.send_posix_message)
    name = f"/ipybox-probe-{secrets.token_hex(8)}"
    queue = checked(libc.mq_open(name.encode(), os.O_RDONLY | os.O_CREAT | os.O_NONBLOCK, 0o600, None), "mq_open")

    def receive() -> str | None:
        buffer = ctypes.create_string_buffer(8192)
        size = libc.mq_receive(queue, buffer, len(buffer), None)
        return None if size == -1 else buffer.raw[:size].decode()

    try:
        await all_kernels.plain.run(probe.attack, name, "outside")
        assert receive() == "outside"

        within = await all_kernels.sandboxed.run(probe.attack, name, "within")

        assert receive() is None
    finally:
        libc.mq_close(queue)
        libc.mq_unlink(name.encode())
    held(table, "Shared by all", probe, "sent", within)


async def test_files_of_memory_stay(all_kernels: Kernels, table: list[Row]):
    file = Path(f"/dev/shm/ipybox-probe-{secrets.token_hex(8)}")
    reading = Probe("reading a file in /dev/shm", process_attacks.read_file_of_memory)
    writing = Probe("writing a file in /dev/shm", process_attacks.write_file_of_memory)
    file.write_text("as it was")
    try:
        assert (await all_kernels.plain.run(reading.attack, file.name)).got == "as it was"
        within = await all_kernels.sandboxed.run(reading.attack, file.name)
        assert within.got is None
        held(table, "Shared by all", reading, "read", within)

        await all_kernels.plain.run(writing.attack, file.name, "outside")
        assert file.read_text() == "outside"
        within = await all_kernels.sandboxed.run(writing.attack, file.name, "within")
        assert file.read_text() == "outside"
        held(table, "Shared by all", writing, "written", "written to a directory of its own" if within.got else within)
    finally:
        file.unlink()


async def test_keys_of_the_host_are_not_read(all_kernels: Kernels, table: list[Row]):
    probe = Probe("reading a key of the user's keyring", process_attacks.read_key)
    secret = f"secret-{secrets.token_hex(8)}".encode()
    keyctl = confine.KEYCTL[confine.MACHINES[MACHINE][0]]
    name = f"ipybox-{secrets.token_hex(4)}".encode()
    arguments = (b"user", name, secret, len(secret), USER_KEYRING)
    key = process_attacks.system_call(ADD_KEY, *arguments)
    try:
        process_attacks.system_call(keyctl, KEYCTL_SETPERM, key, ALL_FOR_THE_USER)
        outside = await all_kernels.plain.run(probe.attack, str(keyctl), str(key))
        assert outside.got == secret.decode(), f"the attack does not work where nothing stops it: {outside}"

        within = await all_kernels.sandboxed.run(probe.attack, str(keyctl), str(key))

        assert within.got is None
    finally:
        process_attacks.system_call(keyctl, 9, key, USER_KEYRING)  # KEYCTL_UNLINK
    held(table, "Shared by all", probe, "read", within)


# --- the system itself

NAMESPACES = {
    "mount": 0x00020000,
    "control group": 0x02000000,
    "UTS": 0x04000000,
    "IPC": 0x08000000,
    "user": 0x10000000,
    "process": 0x20000000,
    "network": 0x40000000,
}
#: An ordinary user gets the others together with a user namespace only.
WITH_USER = 0 if kernels.ROOT else NAMESPACES["user"]


def number(name: str) -> str:
    column = confine.MACHINES[MACHINE][0]
    numbers = confine.DENIED[name] if name in confine.DENIED else getattr(confine, name.upper())
    return str(numbers[column])


def call(name: str, *arguments: int) -> Probe:
    return Probe(name, process_attacks.call, (number(name), *map(str, arguments)))


SYSTEM: list[Probe] = [
    *(
        Probe(f"a new {name} namespace", process_attacks.new_namespace, (str(flag | WITH_USER),))
        for name, flag in NAMESPACES.items()
    ),
    *(
        Probe(
            f"a child in a new {name} namespace",
            process_attacks.clone_into_namespace,
            (str(flag | WITH_USER), number("clone")),
        )
        for name, flag in NAMESPACES.items()
    ),
    Probe("mounting", process_attacks.mount_something, ("{scratch}",)),
    Probe("chroot", process_attacks.change_the_root, ("{scratch}",)),
    Probe("privileges of programs", process_attacks.gain_privileges),
    call("setns", -1, 0),
    call("kcmp", -1, -1, 99),
    call("add_key", 0, 0, 0, 0, 0),
    call("request_key", 0, 0, 0, 0),
    call("keyctl", 0, -3, 0),
    call("open_tree", -100, 0, 0),
    call("io_uring_setup", 1, 0),
    call("userfaultfd", 1),
    call("name_to_handle_at", -100, 0, 0, 0, 0),
    call("ptrace", 0x4200, -1, 0, 0),
]
OF_ROOT: list[Probe] = [
    call("bpf", -1, 0, 0),
    call("perf_event_open", 0, 0, -1, -1, 0),
    call("fsopen", 0, 0),
    call("open_by_handle_at", -1, 0, 0),
    call("fanotify_init", -1, 0),
    call("quotactl", -1, 0, 0, 0),
    call("syslog", -1, 0, 0),
    call("clock_settime", -1, 0),
    call("swapon", 0, 0),
    call("umount2", 0, 0),
    call("pivot_root", 0, 0),
    Probe("naming the machine", process_attacks.name_the_machine),
    Probe("the memory of the machine", process_attacks.open_the_memory_of_the_machine),
    Probe("typing into a terminal (TIOCSTI)", process_attacks.type_into_a_terminal),
]
OF_X86 = [
    Probe("system calls of 32-bit programs", process_attacks.call_of_32_bits),
    Probe("modify_ldt", process_attacks.call, (number("modify_ldt"), "0", "0", "0")) if MACHINE == "x86_64" else None,
]


@named(SYSTEM + (OF_ROOT if kernels.ROOT else []) + [probe for probe in OF_X86 if probe and MACHINE == "x86_64"])
async def test_the_system_listens_to_nothing_of_this(
    probe: Probe, all_kernels: Kernels, tmp_path: Path, table: list[Row]
):
    arguments = [argument.replace("{scratch}", str(tmp_path)) for argument in probe.arguments]
    outside = await all_kernels.plain.run(probe.attack, *arguments)
    assert outside.got is not None, f"the attack does not work where nothing stops it: {outside}"

    within = await all_kernels.sandboxed.run(probe.attack, *arguments)

    assert within.got is None, f"it worked: {within}"
    held(table, "System", probe, outside.got, within)


#: Everybody may open these, and they do nothing to others: they notify whoever writes, or count ids of a namespace.
HARMLESS = (
    *("/proc/pressure/cpu", "/proc/pressure/io", "/proc/pressure/memory", "/proc/pressure/irq"),
    "/proc/sys/kernel/ns_last_pid",
)

SETTINGS = [
    Probe("settings of the system (core_pattern)", process_attacks.change_settings_of_the_system, ("/proc",)),
    Probe(
        "settings in /sys, and control groups",
        process_attacks.change_settings_of_the_system,
        ("/sys/kernel", "/sys/module", "/sys/fs"),
    ),
]


@named(SETTINGS)
async def test_settings_of_the_system_stay(probe: Probe, all_kernels: Kernels, table: list[Row]):
    outside = await all_kernels.plain.run(probe.attack, *probe.arguments)
    writable = _files(outside) - set(HARMLESS)
    assert writable or not kernels.ROOT, f"the attack does not work where nothing stops it: {outside}"

    within = await all_kernels.sandboxed.run(probe.attack, *probe.arguments)

    opened = _files(within) - set(HARMLESS)
    assert not opened, f"{len(opened)} can be written, among them {sorted(opened)[:5]}"
    held(table, "System", probe, f"{len(writable)} files can be written", "none")


def _files(outcome: Outcome) -> set[str]:
    return set((outcome.got or "").splitlines())


#: As `setcap cap_sys_admin+ep` writes it: version 2 and that it is effective; permitted, inheritable, twice.
FILE_CAPABILITY = struct.pack("<5I", 0x02000001, 1 << process_attacks.CAP_SYS_ADMIN, 0, 0, 0)


def of_somebody_else(program: Path) -> None:
    os.chown(program, NOBODY, NOBODY)
    program.chmod(0o6755)


def with_capability(program: Path) -> None:
    os.setxattr(program, "security.capability", FILE_CAPABILITY)


PRIVILEGED = (
    ("a setuid program", process_attacks.run_as_somebody_else, of_somebody_else),
    ("a program with capabilities", process_attacks.run_with_privileges, with_capability),
)

if kernels.ROOT:  # nobody else can make such programs

    @pytest.mark.parametrize(("name", "attack", "prepare"), PRIVILEGED, ids=[name for name, *_ in PRIVILEGED])
    async def test_programs_give_no_privileges(
        name: str,
        attack: Attack,
        prepare: Callable[[Path], None],
        all_kernels: Kernels,
        tmp_path: Path,
        table: list[Row],
    ):
        program = tmp_path / "cat"
        shutil.copy(shutil.which("cat") or "/bin/cat", program)
        prepare(program)
        outside = await all_kernels.plain.run(attack, str(program))
        assert outside.got is not None, f"the attack does not work where nothing stops it: {outside}"

        within = await all_kernels.sandboxed.run(attack, str(program))

        assert within.got is None
        held(table, "System", Probe(name, attack), outside.got, within)


async def test_code_leaves_no_program_that_runs_as_its_user(all_kernels: Kernels, table: list[Row]):
    """Outside, others could start it: for root, that would be everything."""
    probe = Probe("leaving a setuid program", process_attacks.leave_a_program)

    async def mode(kernel: Kernel) -> tuple[Outcome, int]:
        workspace = await kernel.executor.execute("import os; print(os.getcwd())")
        outcome = await kernel.run(probe.attack, "left")
        return outcome, stat.S_IMODE((Path(str(workspace.text)) / "left").stat().st_mode)

    assert (await mode(all_kernels.plain))[1] == 0o4755

    within, left = await mode(all_kernels.sandboxed)

    assert not left & (stat.S_ISUID | stat.S_ISGID)
    assert within.got is None
    held(table, "System", probe, "left", within)


# --- two sandboxes


async def test_sandboxes_do_not_see_each_other(all_kernels: Kernels, tmp_path: Path, table: list[Row], shared: None):
    """What one starts is no more to be seen in another one than on the host, and nothing of it is reached."""
    token = f"token-{secrets.token_hex(8)}"
    probe = Probe("finding a process of another sandbox", process_attacks.find_command_lines)
    async with running(Place(tmp_path, tmp_path, "")) as other:
        started = await other.executor.execute(
            f"import subprocess; p = subprocess.Popen(['sleep', '60'], env={{}}) and "
            f"subprocess.Popen(['sh', '-c', 'sleep 60; :', {token!r}]); print('started')"
        )
        assert started.text == "started"
        assert (await other.run(probe.attack, token)).got == token
        within = await all_kernels.sandboxed.run(probe.attack, token)

    assert within.got is None
    held(table, "Processes", probe, "found", within)
