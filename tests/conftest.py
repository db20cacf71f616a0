"""What all tests have: directories of their own for keys and tokens, and a check that nothing is left behind."""

import asyncio
import gc
import os
import select
import sys
import threading
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
import pytest_asyncio

from ipybox import CodeExecutor
from ipybox.workspace import imports, writable
from tests import servers

pytest_plugins = ["tests.suites"]

#: Seconds that processes have to be gone after their owner was stopped.
GRACE = 2.0


class Mode(StrEnum):
    """How kernels are run."""

    PLAIN = "plain"
    SANDBOX = "sandbox"

    @property
    def sandbox(self) -> bool:
        """What `sandbox=` is given."""
        return self is Mode.SANDBOX

    @property
    def options(self) -> list[str]:
        """What the command line is given."""
        return ["--sandbox"] if self.sandbox else []


@pytest.fixture(scope="module", params=list(Mode))
def mode(request: pytest.FixtureRequest) -> Mode:
    """The mode that a test runs its kernels in: once in each where the sandbox matters (`BOTH_MODES` in `suites.py`),
    otherwise without one. What it makes for a whole module is made per mode."""
    return request.param


#: Has a test run in both modes where those beside it run in one.
both_modes = pytest.mark.parametrize("mode", list(Mode), indirect=True)


@pytest.fixture(autouse=True, scope="session")
def private_directories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keeps the key of seals and the files of tokens away from those of the user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        yield


@pytest.fixture(autouse=True, scope="module")
def imports_are_unguarded_again() -> Iterator[None]:
    """Undoes for the next module what the first sandbox of a process changes for good."""
    path, finders, dropped = sys.path[:], sys.meta_path[:], cast(Any, writable)._dropped
    kept = dict(dropped)
    yield
    dropped.clear()
    dropped.update(kept)
    sys.path[:], sys.meta_path[:] = path, finders
    cast(Any, imports)._guard = cast(Any, imports)._Guard()


@pytest.fixture(scope="session")
def shared() -> None:
    """Requested by fixtures of a wider scope that hold processes, sockets or tasks: what they leave behind shows at
    the end of the module, as a test may rightly leave a connection with them."""


@pytest.fixture(autouse=True, scope="module")
def module_leaves_nothing_behind() -> Iterator[None]:
    with nothing_left():
        yield


@pytest.fixture(autouse=True)
def test_leaves_nothing_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    if "shared" in request.fixturenames:
        yield
        return
    marker = request.node.get_closest_marker("asyncio")
    if marker is not None:
        of_module = marker.kwargs.get("loop_scope") == "module"
        request.getfixturevalue("module_loop_keeps_its_tasks" if of_module else "loop_keeps_its_tasks")
    with nothing_left():
        yield


@pytest_asyncio.fixture
async def loop_keeps_its_tasks() -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield
    assert not (left := asyncio.all_tasks() - before - _own_task()), f"tasks were left: {left}"


@pytest_asyncio.fixture(loop_scope="module")
async def module_loop_keeps_its_tasks() -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield
    assert not (left := asyncio.all_tasks() - before - _own_task()), f"tasks were left: {left}"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working directory of `executor`: a module to import, and names that the kernel's start imports, too."""
    directory = tmp_path_factory.mktemp("workspace")
    (directory / "helpers.py").write_text("def double(x): return 2 * x\n")
    for name in ("json", "random", "logging", "zmq", "IPython", "ipykernel"):
        (directory / f"{name}.py").write_text("raise ImportError('imported from the working directory')\n")
    return directory


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor(workspace: Path, mode: Mode, shared: None) -> AsyncIterator[CodeExecutor]:
    """An executor that the tests of a module share, each leaving the kernel usable."""
    async with CodeExecutor(
        working_dir=workspace,
        images_dir=workspace / "pictures",
        kernel_env={"GREETING": "hello"},
        sandbox=mode.sandbox,
    ) as running:
        yield running


class Fifo:
    """A named pipe that tells a test what happens in another process."""

    def __init__(self, path: Path):
        os.mkfifo(path)
        self.path = path
        self._fd = os.open(path, os.O_RDWR)  # so that it has no end when a writer closes it
        self._buffer = ""

    async def line(self) -> str:
        """Returns the next line."""
        return await asyncio.to_thread(self._line)

    async def until(self, line: str) -> None:
        """Returns when this line has come."""
        while await self.line() != line:
            pass

    def send(self, line: str) -> None:
        os.write(self._fd, f"{line}\n".encode())

    def close(self) -> None:
        os.close(self._fd)

    def _line(self) -> str:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        while "\n" not in self._buffer:
            assert poll.poll(servers.WAIT * 1000), f"nothing more came after {self._buffer!r}"
            self._buffer += os.read(self._fd, 65536).decode()
        line, _, self._buffer = self._buffer.partition("\n")
        return line


@pytest.fixture
def fifo(tmp_path: Path) -> Iterator[Fifo]:
    """What a test waits for; pass its path to another process."""
    opened = Fifo(tmp_path / "fifo")
    yield opened
    opened.close()


@contextmanager
def nothing_left() -> Generator[None]:
    """Fails if processes or descriptors are there in the end that were not before."""
    processes, files, threads = servers.descendants(), _open_files(), set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - threads:
        if thread.name in ("ipybox-accept", "ipybox-link"):  # they close their sockets by themselves
            thread.join(GRACE)
    new = servers.descendants() - processes
    assert not (left := _still_alive(new - _kernels_of_others(new, processes))), f"processes were left: {left}"
    if len(_open_files()) > len(files):
        gc.collect()
    after = _open_files()
    assert len(after) <= len(files), f"descriptors were left, these are new: {sorted(after.items() - files.items())}"


def _own_task() -> set[asyncio.Task[object]]:
    task = asyncio.current_task()
    return set() if task is None else {task}


def _open_files() -> dict[str, str]:
    files: dict[str, str] = {}
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            target = os.readlink(f"/proc/self/fd/{fd}")
            if not target.startswith("/proc/"):  # which the limits of other kernels may read at this moment
                files[fd] = target
    return files


def _kernels_of_others(pids: set[int], before: set[int]) -> set[int]:
    """Returns the kernels of gateways that were there before: a server of the module starts its own, and a spare, late.

    While one is forked, it is below the template.
    """
    found: set[int] = set()
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if before & {parent.pid for parent in process.parents()}:
                command = process.cmdline()
                if "ipybox.guest.template" in command or "ipybox.guest.kernel" in command:
                    found.add(pid)
    return found


def _still_alive(pids: set[int]) -> dict[int, str]:
    """Returns the command lines of those processes that do not end within the grace time."""
    for pid in pids:
        with suppress(ProcessLookupError):
            fd = os.pidfd_open(pid)
            try:
                poll = select.poll()
                poll.register(fd, select.POLLIN)
                poll.poll(GRACE * 1000)
            finally:
                os.close(fd)
    return {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in pids if servers.is_alive(pid)}
