"""What a process that is restricted in its writes can't open any more, and what it still can: tried for real.

The functions named `probe_…` and `ordinary_…` run in a child interpreter that has nothing of ipybox but the modules
under test, in a fork of it each. Its working directory is a workspace; what is outside is in a directory beside it.
"""

import ctypes
import errno
import json
import mmap
import multiprocessing
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ipybox import CodeExecutor
from ipybox.guest import confine, landlock
from tests.conftest import Mode

IMPORTS = re.findall(r"^(?:import|from) .*\n", Path(__file__).read_text(), re.MULTILINE)
TIMEOUT = 60
NOBODY = 65534
ROOT = os.geteuid() == 0

DONE = "done"
FIFO, FILE = "../outside/fifo", "../outside/file"
RENAME_EXCHANGE, AT_FDCWD, AT_SYMLINK_FOLLOW = 2, -100, 0x400


# --- in the child


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=50).stdout


def write(path: str | Path, flags: int = 0, data: bytes = b"x") -> None:
    file = os.open(path, os.O_WRONLY | flags)
    assert os.write(file, data) == len(data)
    os.close(file)


@contextmanager
def reader(path: str = FIFO) -> Generator[int]:
    """Reads a pipe, without which it could not be opened for writing only."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    yield file
    os.close(file)


def probe_a_pipe() -> None:
    with reader():
        write(FIFO)


def probe_a_pipe_for_both() -> None:
    os.open(FIFO, os.O_RDWR)


def probe_a_pipe_as_if_it_were_new() -> None:
    with reader():
        write(FIFO, os.O_CREAT | os.O_TRUNC | os.O_APPEND)


def probe_a_pipe_that_is_open_for_reading() -> None:
    with reader() as file:
        write(f"/proc/self/fd/{file}")


def probe_a_pipe_that_is_open_for_nothing() -> None:
    with reader():
        write(f"/proc/self/fd/{os.open(FIFO, os.O_PATH)}")


def probe_a_pipe_by_a_link() -> None:
    os.symlink(FIFO, "link")
    with reader():
        write("link")


def probe_a_pipe_by_the_root_of_a_process() -> None:
    with reader():
        write(f"/proc/self/root/{os.path.abspath(FIFO)}")


def probe_a_pipe_in_an_open_directory() -> None:
    directory = os.open("../outside", os.O_RDONLY)
    with reader():
        os.open("fifo", os.O_WRONLY, dir_fd=directory)


def probe_a_pipe_by_a_hard_link() -> None:
    os.link("../outside/linked", "linked")
    with reader("linked"):
        write("linked")


def probe_a_pipe_that_is_moved_here() -> None:
    os.rename("../outside/moved", "moved")
    with reader("moved"):
        write("moved")


def probe_a_pipe_by_the_shell() -> None:
    assert run("sh", "-c", f"echo hello 3<>{FIFO} >&3 || true; exec 3<>{FIFO} && echo done") == "done\n"


def probe_a_pipe_from_a_thread() -> None:
    outcomes: list[OSError | None] = []

    def open_it() -> None:
        try:
            outcomes.append(probe_a_pipe())
        except OSError as error:
            outcomes.append(error)

    thread = threading.Thread(target=open_it)
    thread.start()
    thread.join()
    if outcomes[0]:
        raise outcomes[0]


def probe_a_pipe_by_a_ruleset_that_allows_it() -> None:
    with suppress(OSError):  # where nothing is confined
        landlock.restrict_writes(["/", "..", "../outside", FIFO])
    probe_a_pipe()


def probe_a_file() -> None:
    write(FILE)


def probe_cutting_a_file_by_its_name() -> None:
    os.truncate(FILE, 0)


def probe_signalling_a_process_that_is_not_restricted() -> None:
    os.kill(outer_process, 0)


def probe_an_abstract_socket_of_a_process_that_is_not_restricted() -> None:
    socket.socket(socket.AF_UNIX).connect(outer_socket)


outer_process, outer_socket = os.getppid(), f"\0ipybox-test-{os.getpid()}"


def ordinary_writing() -> None:
    write("new", os.O_CREAT | os.O_EXCL)
    write("new", os.O_APPEND)
    write("new", os.O_TRUNC)
    os.truncate("new", 100)
    with open("new", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[0:3] = b"abc"
    assert Path("new").stat().st_size == 100


def ordinary_moving() -> None:
    Path("one/two").mkdir(parents=True)
    Path("file").write_text("1")
    Path("other").write_text("2")
    os.rename("file", "one/two/file")
    os.link("one/two/file", "again")
    os.rename("one/two", "two")
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.renameat2(AT_FDCWD, b"two/file", AT_FDCWD, b"other", RENAME_EXCHANGE) == 0
    assert (Path("two/file").read_text(), Path("other").read_text()) == ("2", "1")
    os.replace("other", "two/file")
    shutil.rmtree("two")


def ordinary_file_without_a_name() -> None:
    file = os.open(".", os.O_TMPFILE | os.O_RDWR)
    os.write(file, b"x")
    os.truncate(f"/proc/self/fd/{file}", 5)
    libc = ctypes.CDLL(None, use_errno=True)
    Path("named").mkdir()
    assert libc.linkat(AT_FDCWD, f"/proc/self/fd/{file}".encode(), AT_FDCWD, b"named/file", AT_SYMLINK_FOLLOW) == 0
    assert Path("named/file").read_bytes() == b"x\0\0\0\0"


def ordinary_file_by_its_descriptor() -> None:
    file = os.open("by-descriptor", os.O_CREAT | os.O_RDONLY, 0o600)
    write(f"/proc/self/fd/{file}")
    write(f"/dev/fd/{file}", os.O_TRUNC)
    os.unlink("by-descriptor")
    write(f"/proc/self/fd/{file}")


def ordinary_memory_file() -> None:
    file = os.memfd_create("memory")
    write(f"/proc/self/fd/{file}", os.O_TRUNC)
    os.truncate(file, 10)


def ordinary_pipes() -> None:
    os.mkfifo("own-fifo")
    with reader("own-fifo") as file:
        write("own-fifo")
        assert os.read(file, 1) == b"x"
    read, written = os.pipe()
    write(f"/proc/self/fd/{written}")
    assert os.read(read, 1) == b"x"


def ordinary_devices() -> None:
    for name in ("null", "zero", "random", "urandom"):
        write(f"/dev/{name}")
    full = os.open("/dev/full", os.O_WRONLY)
    with suppress(OSError):
        raise AssertionError(f"{os.write(full, b'x')} bytes were written")


def ordinary_terminals() -> None:
    os.setsid()
    master, slave = pty.openpty()
    os.open(os.ttyname(slave), os.O_RDWR)  # it becomes the controlling terminal
    write("/dev/tty")
    assert os.read(master, 10) == b"x"


def ordinary_shared_memory() -> None:
    from multiprocessing import shared_memory

    memory = shared_memory.SharedMemory(create=True, size=1 << 20)
    memory.close()
    memory.unlink()
    with multiprocessing.Semaphore(1), tempfile.TemporaryFile(dir="/dev/shm") as file:
        file.write(b"x")


def ordinary_redirections() -> None:
    script = """
        exec 3<>file; echo 1 >&3; echo 2 >> file; echo 3 >| file; echo 4 > /dev/null; echo 5 > /dev/stderr
        cat <<< here > here; echo 6 | tee /dev/stderr >(cat > copy); echo 7 &> file
    """
    ended = subprocess.run(["bash", "-ec", script], check=True, capture_output=True, timeout=50)
    assert (ended.stdout, ended.stderr) == (b"6\n", b"5\n6\n")


def ordinary_signals() -> None:
    child = subprocess.Popen(["sleep", "50"])
    os.kill(child.pid, signal.SIGTERM)
    assert child.wait() == -signal.SIGTERM
    if (pid := os.fork()) == 0:
        signal.pidfd_send_signal(os.pidfd_open(os.getppid()), signal.SIGCONT)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def double(value: int) -> int:
    return 2 * value


def ordinary_pools() -> None:
    for method in ("fork", "spawn"):
        context: Any = multiprocessing.get_context(method)
        with context.Pool(2) as workers:
            assert workers.map(double, [1, 2]) == [2, 4]


def ordinary_database() -> None:
    import sqlite3

    with sqlite3.connect("database") as database:
        assert database.execute("pragma journal_mode=wal").fetchone() == ("wal",)
        database.execute("create table t (x)")
    database.close()


def ordinary_reading() -> None:
    assert Path(FILE).read_text() == "as it was"
    with reader():
        pass


def ordinary_ruleset_of_a_program() -> None:
    assert landlock.restrict_writes(["."])
    write("narrower", os.O_CREAT)


def own_settings_in_proc() -> None:
    write("/proc/self/comm", data=b"name")
    write("/proc/thread-self/comm", data=b"name")
    write("/proc/self/oom_score_adj", data=Path("/proc/self/oom_score_adj").read_bytes())


def settings_of_the_system() -> None:
    """Opens only."""
    os.open("/proc/sys/vm/swappiness", os.O_WRONLY)


def outcome(function: Callable[[], None]) -> str:
    """Runs a function in a child, which inherits the restrictions, and says how it ended."""
    read, written = os.pipe()
    if (pid := os.fork()) == 0:
        signal.alarm(50)
        try:
            function()
            result = "done"
        except OSError as error:
            result = errno.errorcode[error.errno or 0]
        except BaseException as error:  # whatever it is, it must be reported
            result = f"{type(error).__name__}: {error} {getattr(error, 'stderr', '')}"
        os.write(written, result.encode())
        os._exit(0)
    os.close(written)
    with open(read, "rb") as pipe:
        result = pipe.read().decode()
    os.waitpid(pid, 0)
    return result


def restrict(*writable: str) -> bool:
    confine.confine()
    return landlock.restrict_writes(writable)


def report(functions: list[Callable[[], None]], restricted: bool) -> None:
    os.environ["TMPDIR"] = os.getcwd()
    outer = socket.socket(socket.AF_UNIX) if hasattr(socket, "AF_UNIX") and not in_srt() else None
    if outer is not None:
        outer.bind(outer_socket)
        outer.listen()
    if restricted:
        # What does not exist, and what is mounted read-only in srt, are left out.
        assert restrict(".", "missing/directory", *(["../outside", FIFO] if in_srt() else []))
    json.dump({function.__name__: outcome(function) for function in functions}, sys.stdout)


def in_srt() -> bool:
    return os.statvfs("..").f_flag & os.ST_RDONLY != 0


# --- in the test


@dataclass(frozen=True)
class Probe:
    """What a restricted process is refused; it works where nothing is restricted."""

    function: Callable[[], None]
    refused: tuple[str, ...] = ("EACCES",)

    @property
    def name(self) -> str:
        return self.function.__name__


#: An ordinary user has less, also without restrictions.
MOVED = ("EXDEV", "EACCES", "EPERM", "EROFS")
PROBES = [
    Probe(probe_a_pipe),
    Probe(probe_a_pipe_for_both),
    Probe(probe_a_pipe_as_if_it_were_new, ("EACCES", "EROFS")),
    Probe(probe_a_pipe_that_is_open_for_reading),
    Probe(probe_a_pipe_that_is_open_for_nothing),
    Probe(probe_a_pipe_by_a_link),
    Probe(probe_a_pipe_by_the_root_of_a_process),
    Probe(probe_a_pipe_in_an_open_directory),
    Probe(probe_a_pipe_by_a_hard_link, MOVED),
    Probe(probe_a_pipe_that_is_moved_here, MOVED),
    Probe(probe_a_pipe_by_a_ruleset_that_allows_it),
    Probe(probe_a_pipe_from_a_thread),
    Probe(probe_a_file, ("EACCES", "EROFS")),
    Probe(probe_cutting_a_file_by_its_name, ("EACCES", "EROFS")),
]
#: Since Linux 6.12; in srt there are no unix sockets at all.
SCOPED = [
    Probe(probe_signalling_a_process_that_is_not_restricted, ("EPERM",)),
    Probe(probe_an_abstract_socket_of_a_process_that_is_not_restricted, ("EPERM",)),
]
ORDINARY: list[Callable[[], None]] = [
    ordinary_writing,
    ordinary_moving,
    ordinary_file_without_a_name,
    ordinary_file_by_its_descriptor,
    ordinary_memory_file,
    ordinary_pipes,
    ordinary_devices,
    ordinary_terminals,
    ordinary_shared_memory,
    ordinary_redirections,
    ordinary_signals,
    ordinary_pools,
    ordinary_database,
    ordinary_reading,
    ordinary_ruleset_of_a_program,
]

USERS = ["root", "ordinary"] if ROOT else ["ordinary"]


def version() -> int:
    """The version of Landlock here, -1 if there is none."""
    return ctypes.CDLL(None).syscall(landlock.CREATE_RULESET, None, 0, landlock.CREATE_RULESET_VERSION)


class Child:
    """Runs functions of this file in an interpreter of its own."""

    def __init__(self, user: str, *, in_srt: bool):
        self.user = user
        self._other_user = ROOT and user == "ordinary"
        self._in_srt = in_srt
        # The interpreter of the tests may be in root's home. That of the system is there for everybody.
        python = shutil.which("python3", path=os.defpath) if self._other_user else sys.executable
        assert python is not None
        self._python = python

    def outcomes(self, functions: list[Callable[[], None]], *, restricted: bool = True) -> Mapping[str, str]:
        names = ", ".join(function.__name__ for function in functions)
        return json.loads(self.run(f"report([{names}], restricted={restricted})"))

    def run(self, code: str) -> str:
        with tempfile.TemporaryDirectory() as directory:
            places = [Path(directory, name) for name in ("home", "workspace", "outside", "code")]
            for place in places:
                place.mkdir()
            home, workspace, outside, modules = places
            for name in ("fifo", "linked", "moved"):
                os.mkfifo(outside / name)
            (outside / "file").write_text("as it was")
            for place in (Path(directory), *places, *outside.iterdir()):
                place.chmod(0o777)
            for module in (confine, landlock):
                shutil.copy(str(module.__file__), modules)
            (modules / "script.py").write_text(script(code))
            (modules / "settings.json").write_text(json.dumps(SETTINGS))
            command = [self._python, str(modules / "script.py")]
            if self._in_srt:
                command = ["srt", "--settings", str(modules / "settings.json"), *command]
            ended = subprocess.run(
                command,
                cwd=workspace,
                env={"PATH": os.environ["PATH"], "HOME": str(home)},
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
    helpers = source[source.index("\nDONE") : source.index("\n# --- in the test")]
    imports = [line for line in IMPORTS if not re.search("pytest|ipybox|tests", line)]
    modules = "import confine\nimport landlock\n"
    return "".join([*imports, modules, helpers, f"\nif __name__ == '__main__':\n    {code}\n"])


@pytest.fixture(scope="module", params=[False, True], ids=["bare", "in_srt"])
def in_srt_or_not(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture(scope="module", params=USERS)
def child(request: pytest.FixtureRequest, in_srt_or_not: bool) -> Child:
    return Child(request.param, in_srt=in_srt_or_not)


@pytest.fixture(scope="module")
def refused(child: Child) -> Mapping[str, str]:
    return child.outcomes([probe.function for probe in (*PROBES, *SCOPED)])


@pytest.fixture(scope="module")
def free() -> Mapping[str, str]:
    return Child(USERS[0], in_srt=False).outcomes([probe.function for probe in (*PROBES, *SCOPED)], restricted=False)


@pytest.fixture(scope="module")
def working(child: Child) -> Mapping[str, str]:
    return child.outcomes([*ORDINARY, own_settings_in_proc, settings_of_the_system])


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_a_restricted_process_is_refused(refused: Mapping[str, str], probe: Probe):
    assert refused[probe.name] in probe.refused


@pytest.mark.parametrize("probe", SCOPED, ids=lambda probe: probe.name)
def test_a_restricted_process_does_not_reach_others(refused: Mapping[str, str], probe: Probe):
    assert refused[probe.name] in probe.refused or version() < landlock.ABI_SCOPES


@pytest.mark.parametrize("probe", [*PROBES, *SCOPED], ids=lambda probe: probe.name)
def test_the_same_works_where_nothing_is_restricted(free: Mapping[str, str], probe: Probe):
    assert free[probe.name] == DONE


def test_a_read_only_mount_alone_leaves_pipes_open():
    functions = [probe_a_pipe, probe_a_file]
    outcomes = Child(USERS[0], in_srt=True).outcomes(functions, restricted=False)

    assert outcomes == {probe_a_pipe.__name__: DONE, probe_a_file.__name__: "EROFS"}


@pytest.mark.parametrize("function", ORDINARY, ids=lambda function: function.__name__)
def test_ordinary_things_work(working: Mapping[str, str], function: Callable[[], None]):
    assert working[function.__name__] == DONE


def test_settings_of_the_system_are_closed_and_those_of_own_processes_open_but_to_root(
    child: Child, working: Mapping[str, str]
):
    assert working[settings_of_the_system.__name__] in ("EACCES", "EROFS")
    assert working[own_settings_in_proc.__name__] == ("EACCES" if child.user == "root" else DONE)


def test_a_single_file_can_be_allowed(child: Child):
    code = """
    Path("allowed").touch()
    Path("other").touch()
    assert restrict("allowed")
    write("allowed", os.O_TRUNC)
    print(outcome(lambda: write("other")))
"""
    assert child.run(code.strip()) == "EACCES\n"


def test_a_system_without_landlock_goes_on_without(child: Child):
    code = """
    landlock.CREATE_RULESET = 1023
    print(restrict("."), outcome(probe_a_pipe))
"""
    assert child.run(code.strip()) == "False done\n"


def test_threads_that_would_stay_unrestricted_are_an_error(child: Child):
    code = """
    go = threading.Event()
    thread = threading.Thread(target=go.wait)
    thread.start()
    try:
        landlock.restrict_writes(["."])
    except OSError as error:
        print(error)
    go.set()
"""
    assert "there are 2 threads" in child.run(code.strip())


def test_what_was_not_confined_before_is_an_error():
    code = """
    try:
        landlock.restrict_writes(["."])
    except OSError as error:
        print(error)
"""
    assert "could not restrict writes" in Child("ordinary", in_srt=False).run(code.strip())


# --- in kernels


OPEN = """
import os
def attempt(path, flags=os.O_RDWR):
    try:
        os.close(os.open(path, flags))
        return "opened"
    except OSError as error:
        return error.strerror
"""


@pytest.fixture(scope="module")
def root(mode: Mode, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("landlock")
    workspace = root / "work space"
    for directory in (workspace, root / "home/data", root / "home/data/deep", root / "other", root / "closed"):
        directory.mkdir(parents=True)
        os.mkfifo(directory / "fifo")
    run("git", "init", "-q", str(workspace))
    allowed = [".", ".git", "~/data/**", "../other/", "../missing", "~/missing"]
    (root / "settings.json").write_text(json.dumps({"filesystem": {"allowWrite": allowed}}))
    return root


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kernel(mode: Mode, root: Path, shared: None) -> AsyncIterator[CodeExecutor]:
    settings = root / "settings.json" if mode.sandbox else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(root / "home"))
        async with CodeExecutor(
            working_dir=root / "work space", sandbox=mode.sandbox, sandbox_config=settings
        ) as executor:
            await executor.execute(OPEN)
            yield executor


async def opened(kernel: CodeExecutor, path: Path) -> str:
    """Returns what happens when code in a kernel opens a path for writing."""
    result = await kernel.execute(f"print(attempt({str(path)!r}))")
    return (result.text or "").splitlines()[0]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_kernel_in_the_sandbox_opens_no_pipe_outside(kernel: CodeExecutor, root: Path, mode: Mode):
    expected = "Permission denied" if mode.sandbox else "opened"
    assert await opened(kernel, root / "closed" / "fifo") == expected


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("place", ["work space", "home/data", "home/data/deep", "other"])
async def test_a_kernel_opens_pipes_wherever_it_may_write(kernel: CodeExecutor, root: Path, place: str):
    assert await opened(kernel, root / place / "fifo") == "opened"


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "code",
    [
        "import tempfile\nwith tempfile.NamedTemporaryFile() as f: f.write(b'x')",
        "import multiprocessing as m\nwith m.get_context('fork').Pool(2) as p: assert p.map(abs, [-1]) == [1]",
        "import sqlite3\nwith sqlite3.connect('d') as d: d.execute('create table t (x)')\nd.close()",
        "import matplotlib.pyplot as p\np.plot([1, 2])\np.savefig('figure.png')\np.close()",
        "!git -c user.name=n -c user.email=e commit -q --allow-empty -m first\nassert _exit_code == 0",
        "!python -m pip --version > out\nassert 'pip' in open('out').read()",
        "%%bash\nset -e\necho hello > /dev/stderr\nseq 9 | tee /dev/stdout >(cat > copy) > /dev/null",
    ],
    ids=["temporary_file", "pool", "database", "matplotlib", "git", "pip", "bash"],
)
async def test_ordinary_things_work_in_a_kernel(kernel: CodeExecutor, code: str):
    await kernel.execute(code)
