"""What a child interpreter tries, restricted in its writes or not: the functions `probe_…` and `ordinary_…`.

The child runs this file, each function in a fork of it, and has nothing of ipybox but the modules under test. Its
working directory is a workspace; what is outside is in a directory beside it.
"""

import ctypes
import mmap
import multiprocessing
import os
import pty
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ipybox.guest import confine, landlock
from tests.guest import outcomes

FIFO, FILE = "../outside/fifo", "../outside/file"
RENAME_EXCHANGE, AT_FDCWD, AT_SYMLINK_FOLLOW = 2, -100, 0x400


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


def restrict(*writable: str) -> bool:
    confine.confine()
    return landlock.restrict_writes(writable)


def report(functions: list[Callable[[], None]], enforced: bool) -> None:
    os.environ["TMPDIR"] = os.getcwd()
    outer = socket.socket(socket.AF_UNIX) if hasattr(socket, "AF_UNIX") and not in_srt() else None
    if outer is not None:
        outer.bind(outer_socket)
        outer.listen()
    if enforced:
        # What does not exist, and what is mounted read-only in srt, are left out.
        assert restrict(".", "missing/directory", *(["../outside", FIFO] if in_srt() else []))
    outcomes.print_outcomes(functions)


def in_srt() -> bool:
    return os.statvfs("..").f_flag & os.ST_RDONLY != 0
