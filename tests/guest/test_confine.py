"""What confined processes can't do any more, and what they still can: tried for real, and on the filter itself.

The functions named `probe_…` and `ordinary_…` run in a child interpreter that has nothing of ipybox but the module
under test, as there is no more where an ordinary user has no access to the project. Each runs in a fork of it.
"""

import ctypes
import errno
import importlib
import json
import mmap
import multiprocessing
import os
import pty
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ipybox.guest import confine

IMPORTS = re.findall(r"^(?:import|from) .*\n", Path(__file__).read_text(), re.MULTILINE)
TIMEOUT = 60
NOBODY = 65534
DONE, EPERM = "done", "EPERM"

X86 = os.uname().machine == "x86_64"
ROOT = os.geteuid() == 0

AF_ALG, AF_VSOCK = 38, 40
CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWNET = 0x10000000, 0x00020000, 0x04000000, 0x40000000
#: Bits that the kernel ignores in an argument of 32 bits, and a filter must ignore, too.
HIGH_HALF = 1 << 32


# --- in the child


def system_call(name: str, *arguments: int) -> int:
    numbers: Any = confine.DENIED.get(name) or getattr(confine, name.upper())
    return numbered_call(numbers[confine.MACHINES[os.uname().machine][0]], *arguments)


def numbered_call(number: int, *arguments: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    result = libc.syscall(*(ctypes.c_long(argument) for argument in (number, *arguments)))
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def address(data: bytes) -> int:
    """The data stays where it is for as long as the process lives."""
    buffer = ctypes.create_string_buffer(data, len(data))
    kept.append(buffer)
    return ctypes.addressof(buffer)


kept: list[object] = []


def own_namespaces(flags: int = 0) -> None:
    """Gets an ordinary user the capabilities that some positive controls need; does nothing where it is confined."""
    with suppress(OSError):
        system_call("unshare", CLONE_NEWUSER | flags)


def idle_child() -> int:
    if (pid := os.fork()) == 0:
        signal.pause()
    return pid


def exit_in_child(result: int) -> None:
    if result == 0:
        os._exit(0)
    os.waitpid(result, 0)


def probe_ptrace_of_an_own_child() -> None:
    child = idle_child()
    try:
        system_call("ptrace", 16, child)  # PTRACE_ATTACH
    finally:
        os.kill(child, signal.SIGKILL)


def probe_reading_memory_of_a_child() -> None:
    child = idle_child()
    data = address(b"memory")
    vector = address(struct.pack("@PN", data, 6))
    try:
        system_call("process_vm_readv", child, vector, 1, vector, 1, 0)
    finally:
        os.kill(child, signal.SIGKILL)


def probe_writing_memory_of_a_child() -> None:
    child = idle_child()
    data = address(b"memory")
    vector = address(struct.pack("@PN", data, 6))
    try:
        system_call("process_vm_writev", child, vector, 1, vector, 1, 0)
    finally:
        os.kill(child, signal.SIGKILL)


def probe_taking_a_descriptor() -> None:
    system_call("pidfd_getfd", os.pidfd_open(os.getpid()), 0, 0)


def probe_comparing_descriptors() -> None:
    system_call("kcmp", os.getpid(), os.getpid(), 0, 0, 0)


def probe_the_keyring_of_the_user() -> None:
    system_call("keyctl", 0, -4, 1)  # KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_KEYRING


def probe_adding_a_key() -> None:
    system_call("add_key", address(b"user\0"), address(b"ipybox-test\0"), address(b"x"), 1, -2)


def probe_requesting_a_key() -> None:
    system_call("request_key", address(b"user\0"), address(b"ipybox-no-such-key\0"), 0, 0)


def probe_unshare_of_the_user_namespace() -> None:
    system_call("unshare", CLONE_NEWUSER)


def probe_clone_into_a_user_namespace() -> None:
    exit_in_child(system_call("clone", CLONE_NEWUSER | signal.SIGCHLD, 0, 0, 0, 0))


def probe_clone_into_a_user_namespace_with_other_high_bits() -> None:
    exit_in_child(system_call("clone", HIGH_HALF | CLONE_NEWUSER | signal.SIGCHLD, 0, 0, 0, 0))


def probe_clone3() -> None:
    arguments = struct.pack("=8Q", 0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    exit_in_child(system_call("clone3", address(arguments), len(arguments)))


def probe_joining_a_namespace() -> None:
    own_namespaces(CLONE_NEWUTS)
    system_call("setns", os.open("/proc/self/ns/uts", os.O_RDONLY), 0)


def probe_mounting_a_file_system() -> None:
    own_namespaces(CLONE_NEWNS)
    system_call("mount", address(b"none\0"), address(b"/tmp\0"), address(b"tmpfs\0"), 0, 0)


def probe_chroot() -> None:
    own_namespaces()
    system_call("chroot", address(b"/\0"))


def probe_open_tree() -> None:
    system_call("open_tree", -100, address(b"/\0"), 0)


def probe_fsopen() -> None:
    own_namespaces(CLONE_NEWNS)
    system_call("fsopen", address(b"tmpfs\0"), 0)


def probe_a_handle_of_a_file() -> None:
    system_call("name_to_handle_at", -100, address(b"/\0"), address(bytes(8)), address(bytes(8)), 0)


def probe_a_bpf_map() -> None:
    attributes = struct.pack("=IIII", 2, 4, 4, 1).ljust(72, b"\0")
    system_call("bpf", 0, address(attributes), len(attributes))


def probe_perf_events() -> None:
    system_call("perf_event_open", 0, 0, -1, -1, 0)


def probe_userfaultfd() -> None:
    system_call("userfaultfd", 1)  # UFFD_USER_MODE_ONLY


def probe_fanotify() -> None:
    system_call("fanotify_init", 0x200, 0)  # FAN_REPORT_FID


def probe_io_uring() -> None:
    system_call("io_uring_setup", 1, address(bytes(120)))


def probe_reading_the_log_of_the_machine() -> None:
    system_call("syslog", 10, 0, 0)  # SYSLOG_ACTION_SIZE_BUFFER


def probe_a_packet_socket() -> None:
    own_namespaces(CLONE_NEWNET)
    socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM)


def probe_a_socket_to_the_host_of_a_virtual_machine() -> None:
    socket.socket(AF_VSOCK, socket.SOCK_STREAM)


def probe_a_socket_to_the_host_of_a_virtual_machine_with_other_high_bits() -> None:
    system_call("socket", HIGH_HALF | AF_VSOCK, socket.SOCK_STREAM, 0)


def probe_a_socket_of_the_kernels_cryptography() -> None:
    socket.socket(AF_ALG, socket.SOCK_SEQPACKET)


def terminal() -> int:
    """Opens a terminal, which becomes the controlling one of this process."""
    os.setsid()
    return os.open(os.ttyname(pty.openpty()[1]), os.O_RDWR)


def probe_typing_into_a_terminal() -> None:
    system_call("ioctl", terminal(), confine.TIOCSTI, address(b"x"))


def probe_typing_into_a_terminal_with_other_high_bits() -> None:
    system_call("ioctl", terminal(), HIGH_HALF | confine.TIOCSTI, address(b"x"))


def probe_pasting_into_a_console() -> None:
    system_call("ioctl", terminal(), confine.TIOCLINUX, address(b"\2"))


def probe_an_x32_number() -> None:
    numbered_call(confine.X32_BIT | 39)  # getpid


def probe_a_32_bit_system_call() -> None:
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")  # mov eax, 20 (getpid); int 0x80; ret
    pointer = ctypes.addressof(ctypes.c_char.from_buffer(code))
    assert ctypes.CFUNCTYPE(ctypes.c_int)(pointer)() == os.getpid()


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=50).stdout


def ordinary_threads() -> None:
    threads = [threading.Thread(target=sum, args=(range(1000),)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def ordinary_subprocess_by_vfork() -> None:
    assert run(sys.executable, "-c", "print(6 * 7)") == "42\n"


def ordinary_subprocess_by_fork() -> None:
    subprocess.run(["true"], check=True, preexec_fn=lambda: os.nice(1))


def ordinary_posix_spawn() -> None:
    _, status = os.waitpid(os.posix_spawnp("true", ["true"], os.environ), 0)
    assert status == 0


def multiply(values: tuple[int, int]) -> int:
    return values[0] * values[1]


def pool(method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    with context.Pool(2) as workers:
        assert workers.map(multiply, [(1, 2), (3, 4)]) == [2, 12]


def ordinary_pool_of_forked_processes() -> None:
    pool("fork")


def ordinary_pool_of_spawned_processes() -> None:
    pool("spawn")


def ordinary_pool_of_a_fork_server() -> None:
    pool("forkserver")


def ordinary_shared_memory_and_semaphores() -> None:
    from multiprocessing import shared_memory

    memory = shared_memory.SharedMemory(create=True, size=1 << 20)
    memory.close()
    memory.unlink()
    with multiprocessing.Semaphore(1):
        pass


def ordinary_asyncio() -> None:
    import asyncio

    async def talk() -> bytes:
        server = await asyncio.start_server(lambda _, writer: writer.write_eof(), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await reader.read() == b""
        writer.close()
        server.close()
        child = await asyncio.create_subprocess_exec("echo", "hello", stdout=subprocess.PIPE)
        return (await child.communicate())[0]

    assert asyncio.run(talk()) == b"hello\n"


def ordinary_name_resolution() -> None:
    assert socket.getaddrinfo("localhost", 80)


def ordinary_netlink() -> None:
    assert socket.if_nameindex()


def ordinary_socket_pairs() -> None:
    one, other = socket.socketpair()
    with open(os.devnull) as devnull:
        socket.send_fds(one, [b"x"], [devnull.fileno()])
    assert len(socket.recv_fds(other, 1, 1)[1]) == 1


def ordinary_terminals() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp("stty", ["stty", "size"])
    assert os.read(terminal, 100).split() == [b"0", b"0"]
    os.waitpid(pid, 0)


def ordinary_database() -> None:
    import sqlite3

    with sqlite3.connect("database.sqlite") as database:
        database.execute("create table t (x)")
        database.execute("insert into t values (1)")
    assert sqlite3.connect("database.sqlite").execute("select * from t").fetchall() == [(1,)]


def ordinary_listing() -> None:
    assert run("ls", "-la", "/")


def ordinary_git() -> None:
    run("git", "init", "-q", "repository")
    identity = ("-c", "user.name=n", "-c", "user.email=e")
    run("git", "-C", "repository", *identity, "commit", "-q", "--allow-empty", "-m", "first")
    assert run("git", "-C", "repository", "log", "--format=%s") == "first\n"


def ordinary_node() -> None:
    assert run("node", "-e", "require('fs').readFile('/dev/null', () => console.log(1))") == "1\n"


def ordinary_curl() -> None:
    import http.server

    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=server.handle_request, daemon=True).start()
    assert "confine.py" in run("curl", "-sS", "--noproxy", "*", f"http://127.0.0.1:{server.server_port}/")


def ordinary_compiler() -> None:
    Path("hello.c").write_text('#include <stdio.h>\nint main() { puts("hello"); }')
    run("gcc", "-o", "hello", "hello.c")
    assert run("./hello") == "hello\n"


def ordinary_routes() -> None:
    run("ip", "route")


def ordinary_pip() -> None:
    assert "pip" in run(sys.executable, "-m", "pip", "--version")


def ordinary_zmq() -> None:
    import zmq

    context: Any = zmq.Context()
    receiver, sender = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    sender.connect(f"tcp://127.0.0.1:{receiver.bind_to_random_port('tcp://127.0.0.1')}")
    sender.send(b"hello")
    assert receiver.poll(20_000)
    assert receiver.recv() == b"hello"
    context.destroy()


def ordinary_numpy() -> None:
    import numpy

    assert (numpy.ones((800, 800)) @ numpy.ones((800, 800)))[0, 0] == 800


def ordinary_pandas() -> None:
    pandas: Any = importlib.import_module("pandas")
    assert pandas.DataFrame({"x": [1, 2]})["x"].sum() == 3


def ordinary_matplotlib() -> None:
    os.environ["MPLCONFIGDIR"] = os.getcwd()
    importlib.import_module("matplotlib").use("agg")
    plots: Any = importlib.import_module("matplotlib.pyplot")
    plots.plot([1, 2])
    plots.savefig("figure.png")


def other_processes_that_can_be_opened() -> None:
    """Says which processes beside this one and its children let it open their memory or see their secrets."""
    own = Path("/proc/self").resolve().name
    opened: list[str] = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or process.name == own:
            continue
        for name, flags in (("mem", os.O_RDWR), ("environ", os.O_RDONLY), ("root/", os.O_PATH), ("fd/0", os.O_PATH)):
            with suppress(OSError):
                os.close(os.open(process / name, flags))
                opened.append(f"{process}/{name}")
    raise AssertionError(",".join(opened))


def a_child_opens(what: str) -> str:
    """Says what the child of this process gets when it opens a file that belongs to this process in /proc."""
    code = f"""
import errno, os, re
parent = re.search(r"PPid:\\s+(\\d+)", open("/proc/self/status").read())[1]
try:
    os.open(f"/proc/{{parent}}/{what}", os.O_RDWR if {what == "mem"} else os.O_RDONLY)
    print("done")
except OSError as error:
    print(errno.errorcode[error.errno])
"""
    return run(sys.executable, "-c", code).strip()


def outcome(function: Callable[[], None]) -> str:
    """Runs a function in a child, which inherits the confinement, and says how it ended."""
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        signal.alarm(50)
        try:
            function()
            result = "done"
        except OSError as error:
            result = errno.errorcode[error.errno or 0]
        except BaseException as error:  # whatever it is, it must be reported
            result = f"{type(error).__name__}: {error}"
        os.write(write, result.encode())
        os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        result = pipe.read().decode()
    _, status = os.waitpid(pid, 0)
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else result


def report(functions: list[Callable[[], None]], confined: bool) -> None:
    os.environ["TMPDIR"] = os.getcwd()
    if confined:
        confine.confine()
    json.dump({function.__name__: outcome(function) for function in functions}, sys.stdout)


# --- in the test


@dataclass(frozen=True)
class Probe:
    """What a confined process is refused, and how it ends where nothing is confined."""

    function: Callable[[], None]
    free: tuple[str, ...] = (DONE,)
    confined: tuple[str, ...] = (EPERM,)
    #: The control needs a root user.
    privileged: bool = False

    @property
    def name(self) -> str:
        return self.function.__name__


#: What the kernel at hand may lack.
UNKNOWN, NO_FAMILY = (DONE, "ENOSYS"), (DONE, "EAFNOSUPPORT")
#: TIOCSTI works for privileged users only, if dev.tty.legacy_tiocsti says so.
TYPED = (DONE, "EIO")

X86_PROBES = [
    Probe(probe_an_x32_number, free=UNKNOWN, confined=(EPERM, "SIGSYS")),  # the filter of srt ends the process
    Probe(probe_a_32_bit_system_call, confined=("SIGSYS",)),
]
PROBES = [
    Probe(probe_ptrace_of_an_own_child),
    Probe(probe_reading_memory_of_a_child),
    Probe(probe_writing_memory_of_a_child),
    Probe(probe_taking_a_descriptor),
    Probe(probe_comparing_descriptors, free=UNKNOWN),
    Probe(probe_the_keyring_of_the_user),
    Probe(probe_adding_a_key),
    Probe(probe_requesting_a_key, free=("ENOKEY",)),
    Probe(probe_unshare_of_the_user_namespace),
    Probe(probe_clone_into_a_user_namespace),
    Probe(probe_clone_into_a_user_namespace_with_other_high_bits),
    Probe(probe_clone3, confined=("ENOSYS",)),
    Probe(probe_joining_a_namespace),
    Probe(probe_mounting_a_file_system),
    Probe(probe_chroot),
    Probe(probe_open_tree),
    Probe(probe_fsopen),
    Probe(probe_a_handle_of_a_file, free=("EOVERFLOW", "EOPNOTSUPP")),
    Probe(probe_a_bpf_map, privileged=True),
    Probe(probe_perf_events, free=("EFAULT",), privileged=True),
    Probe(probe_userfaultfd, free=UNKNOWN),
    Probe(probe_fanotify, free=UNKNOWN),
    Probe(probe_io_uring, free=UNKNOWN, privileged=True),
    Probe(probe_reading_the_log_of_the_machine, privileged=True),
    Probe(probe_a_packet_socket, free=NO_FAMILY),
    Probe(probe_a_socket_to_the_host_of_a_virtual_machine, free=NO_FAMILY),
    Probe(probe_a_socket_to_the_host_of_a_virtual_machine_with_other_high_bits, free=NO_FAMILY),
    Probe(probe_a_socket_of_the_kernels_cryptography, free=NO_FAMILY),
    Probe(probe_typing_into_a_terminal, free=TYPED),
    Probe(probe_typing_into_a_terminal_with_other_high_bits, free=TYPED),
    Probe(probe_pasting_into_a_console, free=("ENOTTY",)),
    *(X86_PROBES if X86 else []),
]

#: What needs no more than Python, and programs that are there for all users.
ORDINARY: list[Callable[[], None]] = [
    ordinary_threads,
    ordinary_subprocess_by_vfork,
    ordinary_subprocess_by_fork,
    ordinary_posix_spawn,
    ordinary_pool_of_forked_processes,
    ordinary_pool_of_spawned_processes,
    ordinary_shared_memory_and_semaphores,
    ordinary_asyncio,
    ordinary_name_resolution,
    ordinary_netlink,
    ordinary_socket_pairs,
    ordinary_terminals,
    ordinary_database,
    ordinary_listing,
    ordinary_git,
    ordinary_node,
    ordinary_curl,
    *([ordinary_compiler] if shutil.which("gcc") else []),
    *([ordinary_routes] if shutil.which("ip") else []),
]
#: What is installed beside ipybox.
PACKAGES = [ordinary_zmq, ordinary_numpy, ordinary_pandas, ordinary_matplotlib]

USERS = ["root", "ordinary"] if ROOT else ["ordinary"]
ids = [probe.name for probe in PROBES]


class Child:
    """Runs functions of this file in an interpreter of its own."""

    def __init__(self, user: str, *, in_srt: bool):
        self._other_user = ROOT and user == "ordinary"
        self._in_srt = in_srt
        # The interpreter of the tests may be in root's home. That of the system is there for everybody.
        python = shutil.which("python3", path=os.defpath) if self._other_user else sys.executable
        assert python is not None
        self._python = python

    def outcomes(self, functions: list[Callable[[], None]], *, confined: bool = True) -> Mapping[str, str]:
        names = ", ".join(function.__name__ for function in functions)
        return json.loads(self.run(f"report([{names}], confined={confined})"))

    def run(self, code: str) -> str:
        with tempfile.TemporaryDirectory() as directory:
            home = Path(directory, "home")  # not the working directory, where srt hides what a home may hold
            home.mkdir()
            for path in (directory, home):
                os.chmod(path, 0o777)
            shutil.copy(confine.__file__, directory)
            Path(directory, "script.py").write_text(script(code))
            Path(directory, "settings.json").write_text(json.dumps(SETTINGS))
            command = [self._python, "script.py"]
            if self._in_srt:
                command = ["srt", "--settings", "settings.json", *command]
            ended = subprocess.run(
                command,
                cwd=directory,
                # srt has a socket there that is named by its process: one that was killed may have left the same.
                env={"PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": directory},
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
                user=NOBODY if self._other_user else None,
                group=NOBODY if self._other_user else None,
                extra_groups=[] if self._other_user else None,
            )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout


SETTINGS: dict[str, dict[str, list[str]]] = {
    "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []},
    "network": {"allowedDomains": [], "deniedDomains": []},
}


def script(code: str) -> str:
    source = Path(__file__).read_text()
    helpers = source[source.index("\nAF_ALG") : source.index("\n# --- in the test")]
    imports = [line for line in IMPORTS if not re.search("pytest|ipybox", line)]
    return "".join([*imports, "import confine\n", helpers, f"\nif __name__ == '__main__':\n    {code}\n"])


@pytest.fixture(scope="module", params=[False, True], ids=["bare", "in_srt"])
def in_srt(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture(scope="module", params=USERS)
def child(request: pytest.FixtureRequest, in_srt: bool) -> Child:
    return Child(request.param, in_srt=in_srt)


@pytest.fixture(scope="module")
def refused(child: Child) -> Mapping[str, str]:
    return child.outcomes([probe.function for probe in PROBES])


@pytest.fixture(scope="module")
def free() -> Mapping[str, str]:
    return Child(USERS[0], in_srt=False).outcomes([probe.function for probe in PROBES], confined=False)


@pytest.fixture(scope="module")
def working(child: Child) -> Mapping[str, str]:
    return child.outcomes(ORDINARY)


@pytest.fixture(scope="module")
def working_packages(in_srt: bool) -> Mapping[str, str]:
    return Child(USERS[0], in_srt=in_srt).outcomes(list(PACKAGES))


@pytest.mark.parametrize("probe", PROBES, ids=ids)
def test_a_confined_process_is_refused(refused: Mapping[str, str], probe: Probe):
    assert refused[probe.name] in probe.confined


@pytest.mark.parametrize("probe", [p for p in PROBES if ROOT or not p.privileged], ids=lambda p: p.name)
def test_the_same_works_where_nothing_is_confined(free: Mapping[str, str], probe: Probe):
    assert free[probe.name] in probe.free


@pytest.mark.parametrize("function", ORDINARY, ids=lambda f: f.__name__)
def test_ordinary_things_work(working: Mapping[str, str], function: Callable[[], None]):
    assert working[function.__name__] == DONE


@pytest.mark.parametrize("function", PACKAGES, ids=lambda f: f.__name__)
def test_packages_work(working_packages: Mapping[str, str], function: Callable[[], None]):
    assert working_packages[function.__name__] == DONE


@pytest.mark.parametrize("user", USERS)
def test_a_fork_server_works_where_unix_sockets_are_allowed(user: str):
    function = ordinary_pool_of_a_fork_server
    assert Child(user, in_srt=False).outcomes([function]) == {function.__name__: DONE}


def test_programs_that_a_confined_process_starts_have_no_capabilities_and_gain_none(child: Child):
    status = child.run("confine.confine(); print(run('cat', '/proc/self/status'))")

    fields = dict(line.split(":\t") for line in status.splitlines() if ":\t" in line)
    assert {fields[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0" * 16}
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")


def test_the_bounding_set_of_a_root_user_is_empty():
    bounding = r"print(re.search(r'CapBnd:\s+(\w+)', Path('/proc/self/status').read_text())[1])"
    outputs = [Child(user, in_srt=False).run(f"confine.confine(); {bounding}").strip() for user in USERS]

    assert outputs[:-1] == ["0" * 16] * ROOT


def test_keys_of_the_session_are_out_of_reach(child: Child):
    # A key with these permissions shows only to those who possess it, here by their session keyring.
    code = """
    system_call("keyctl", 1, 0)  # KEYCTL_JOIN_SESSION_KEYRING
    key = system_call("add_key", address(b"user\\0"), address(b"ipybox-test\\0"), address(b"x"), 1, -3)
    system_call("keyctl", 5, key, 0x3F000000)  # KEYCTL_SETPERM
    print("ipybox-test" in Path("/proc/keys").read_text())
    confine.confine()
    print("ipybox-test" in Path("/proc/keys").read_text())
"""
    assert child.run(code.strip()).split() == ["True", "False"]


def test_confining_twice_is_allowed(child: Child):
    assert child.run("confine.confine(); confine.confine(); print('still here')") == "still here\n"


@pytest.mark.parametrize("what", ["mem", "environ", "maps", "fd/0", "root/"])
def test_a_protected_process_is_closed_to_its_children(child: Child, what: str):
    protected = child.run(f"confine.confine(); confine.protect_process(); print(a_child_opens({what!r}))")
    exposed = child.run(f"confine.confine(); print(a_child_opens({what!r}))")

    assert protected.strip() in ("EPERM", "EACCES")
    # Where Yama restricts ptrace, memory of a parent is closed anyway.
    assert exposed.strip() == DONE or (what == "mem" and Path("/proc/sys/kernel/yama/ptrace_scope").exists())


def test_a_program_that_a_protected_process_starts_is_not_protected_itself(child: Child):
    code = "import ctypes; print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"  # PR_GET_DUMPABLE
    assert child.run(f"confine.protect_process(); print(run(sys.executable, '-c', {code!r}))").strip() == "1"


@pytest.mark.parametrize("user", USERS)
def test_no_other_process_in_srt_can_be_opened(user: str):
    other = "other_processes_that_can_be_opened"
    code = f"confine.confine(); confine.protect_process(); print(outcome({other}))"

    assert Child(user, in_srt=True).run(code).strip() == "AssertionError:"


def test_a_thread_that_runs_already_gets_the_filter_or_stops_everything(child: Child):
    code = """
    started, go = threading.Event(), threading.Event()
    def thread():
        started.set()
        go.wait(30)
        try:
            system_call("keyctl", 0, -4, 1)
        except OSError as error:
            print(errno.errorcode[error.errno])
    running = threading.Thread(target=thread)
    running.start()
    started.wait(30)
    try:
        confine.confine()
        print("confined")
    except OSError as error:
        print(error.strerror)
    go.set()
    running.join()
"""
    verdict, in_thread = child.run(code.strip()).splitlines()
    assert in_thread == EPERM
    assert verdict == "confined" or re.match(r"thread \d+ is not confined: it has .*'CapEff': [1-9]", verdict)


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
    machine, message = Child(user, in_srt=False).run(code.strip()).split(" ", 1)

    assert machine not in confine.MACHINES
    assert f"no system call filter for linux on {machine}, only for Linux on 64-bit x86_64" in message


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
    special = {call[column] for call in (confine.CLONE3, confine.SOCKET, confine.SOCKETPAIR)}

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
    for family in range(64):
        assert action(confine.SOCKET, family) == (confine.ALLOW if family in (1, 2, 10, 16) else confine.DENY)
        stream = action(confine.SOCKETPAIR, family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        assert stream == (confine.ALLOW if family == socket.AF_UNIX else confine.DENY)
    for kind in range(16):
        pair = action(confine.SOCKETPAIR, socket.AF_UNIX, kind | socket.SOCK_CLOEXEC)
        assert pair == (confine.ALLOW if kind in (1, 5) else confine.DENY)


def test_numbers_are_unique():
    for column in (0, 1):
        numbers = [number for call in confine.DENIED.values() if (number := call[column]) is not None]
        assert len(numbers) == len(set(numbers))
