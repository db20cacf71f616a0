"""Starts coverage in a process that the tests have started, however little of the environment the process gets.

A `.pth` file runs this text when Python starts, with `DATA`, the directory of the data files, and `ROOT`, the
repository. Eight things are other than in an ordinary run, and nothing of it is in the product:

- A kernel saves its data after each request, because it ends with SIGKILL. SIGTERM ends it as it would otherwise.
- What asks for approvals of shell commands is traced, which Python does not do with audit hooks by itself.
- A process saves its data before it becomes another program.
- Futures raise in what awaits them, because Python traces no caller of a coroutine that has caught what tasks throw.
- The sandbox may write the data directory.
- The guards, which run without site-packages, run with them.
- What shrinks images and infers models may write files.
- A child that code has forked ends with SIGTERM at once, without saving its data.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, cast

DATA: str = globals()["DATA"]
ROOT: str = globals()["ROOT"]

#: Processes that may write no file, which they need for their data.
WITHOUT_FILES = ("/image_worker.py",)

#: Programs that run without site-packages, in which coverage is.
GUARDS = ("process_guard.py", "placeholders.py", "tied.py")

#: Programs of which nothing is measured: servers that tests start, pip, and workers of pools in code of tests.
OTHERS = (
    *("mcp_server_", "pip", f"{ROOT}/tests/", "ruff", "compileall", "venv", "ensurepip", "uv"),
    "from multiprocessing",
)


def start() -> Any:
    """Starts the measurement; returns what saves the data."""
    import coverage

    configured = {"COVERAGE_PROCESS_START": f"{DATA}/coveragerc"}
    os.environ.update(configured)
    try:
        return coverage.process_startup()
    finally:
        for variable in configured:
            os.environ.pop(variable, None)


class Changes:
    """Changes modules just after they were imported."""

    def __init__(self, changes: dict[str, Callable[[ModuleType], None]]):
        self._changes = changes

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Returns where a module is that is to be changed."""
        change = self._changes.get(name)
        spec = None if change is None else PathFinder.find_spec(name, path, target)
        if change is None or spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_change(module: ModuleType) -> None:
            execute(module)
            change(module)

        cast(Any, spec.loader).exec_module = execute_and_change
        return spec


def save_after_requests(measured: Any) -> Callable[[ModuleType], None]:
    """Returns what has a kernel save its data after each request."""
    from coverage.exceptions import CoverageException

    def change(kernelbase: Any) -> None:
        kernel = kernelbase.Kernel
        dispatch = kernel.dispatch_shell

        async def dispatch_and_save(self: Any, *args: Any, **kwargs: Any) -> None:
            try:
                await dispatch(self, *args, **kwargs)
            finally:
                # Code may have used up all descriptors.
                with contextlib.suppress(CoverageException):
                    measured.save()

        kernel.dispatch_shell = dispatch_and_save

    return change


def open_data_directory(launch: Any) -> None:
    """Lets sandboxes write the data directory."""
    write_settings, writable = launch.write_settings, launch.Sandbox.writable

    def write(*args: Any, **kwargs: Any) -> None:
        write_settings(*args, **{**kwargs, "allow_write": [*kwargs.get("allow_write", ()), DATA]})

    def writable_and_data(self: Any) -> Any:
        return [*writable(self), launch.Path(DATA)]

    launch.write_settings, launch.Sandbox.writable = write, writable_and_data


def measure_guards() -> None:
    """Has guards started with site-packages, in which coverage is."""
    init = subprocess.Popen.__init__

    def init_with_site(self: Any, args: Any, *others: Any, **kwargs: Any) -> None:
        words = cast(list[Any], args) if isinstance(args, list) else []
        if isinstance(args, tuple):
            words = list(cast(tuple[Any, ...], args))
        guard = words[1:3] == ["-I", "-S"] and str(words[3]).endswith(GUARDS)
        init(self, cast(Any, [words[0], "-I", *words[3:]] if guard else args), *others, **kwargs)

    cast(Any, subprocess.Popen).__init__ = init_with_site


def trace_audits(shell_commands: Any) -> None:
    """Has Python trace an audit hook. https://docs.python.org/3/library/sys.html#sys.addaudithook"""
    shell_commands.CommandGate.audit.__cantrace__ = True


def raise_in_futures(tasks: Any) -> None:
    """Has tasks throw nothing into coroutines whose future has failed or was cancelled: it raises by itself.

    After `throw`, coroutines that await the one that has caught the exception go on without being traced.
    """

    def wake_up(self: Any, _: object) -> None:
        self._Task__step()

    tasks.Task = type("Task", (tasks._PyTask,), {"_Task__wakeup": wake_up})


def save_before_exec(measured: Any) -> None:
    """Has this process save its data before another program takes its place."""

    def audit(event: str, _: object) -> None:
        if event == "os.exec":
            measured.save()

    sys.addaudithook(audit)


def end_with_sigterm(measured: Any) -> None:
    """Has SIGTERM end this process, unless it has another handler than the one that saves the data."""
    if signal.getsignal(signal.SIGTERM) is measured:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def write_files() -> None:
    """Lets a process write files although it forbids that to itself."""
    import resource

    limit = resource.setrlimit
    resource.setrlimit = lambda what, limits: None if what == resource.RLIMIT_FSIZE else limit(what, limits)


program = sys.orig_argv[1:4]
others = any(each.startswith(OTHERS) or each.endswith("/bin/pip") for each in program)
# Tests that wrap a Python in srt by themselves leave the data directory read-only.
unmeasured = others or "IPYBOX_UNMEASURED" in os.environ or not os.access(DATA, os.W_OK)
saved = None if unmeasured else start()
if saved is not None:
    changes = {
        "asyncio.tasks": raise_in_futures,
        "ipykernel.kernelbase": save_after_requests(saved),
        "ipybox.sandbox.launch": open_data_directory,
        "ipybox.guest.shell_commands": trace_audits,
    }
    sys.meta_path.insert(0, cast(Any, Changes(changes)))
    save_before_exec(saved)
    if program[:1] != ["-I"] and not any(each.startswith("ipybox.guest") for each in program):
        measure_guards()
    if any(each.endswith(WITHOUT_FILES) for each in program):
        write_files()
    # coverage's handler raises where the data can't be written, and a worker of a pool would go on after that.
    handler = signal.getsignal(signal.SIGTERM)
    if "ipybox.guest.kernel" in program:
        end_with_sigterm(handler)
    os.register_at_fork(after_in_child=lambda: end_with_sigterm(handler))
