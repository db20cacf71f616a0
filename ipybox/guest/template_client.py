"""The gateway's side of the template process (`ipybox.guest.template`), and the spare kernel that it keeps ready."""

import asyncio
import json
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ipybox.guest.packages import packages_dir
from ipybox.guest.protocol import IMPORTING
from ipybox.guest.template import MAX_BYTES
from ipybox.support.tasks import TaskSet

logger = logging.getLogger(__name__)

#: Seconds to wait for the template's answer. Clients wait twice as long.
FORK_TIMEOUT = 10.0

#: Seconds after the last start of a kernel when a spare one is forked.
QUIET = 0.25

#: Seconds that the first kernel waits for the template to import its modules.
IMPORT_TIMEOUT = 10.0


class ForkedProcess:
    """A forked process, a child of the gateway and leader of its group, with the part of `Popen` that Jupyter uses."""

    def __init__(self, pid: int, channel: socket.socket, imported: object):
        self.pid = pid
        #: The socket on which it waits for its request.
        self.channel = channel
        #: The state of the packages that its template may have imported.
        self.imported = imported
        self.returncode: int | None = None

    @property
    def runs(self) -> bool:
        """Whether it is a child of this process that has not ended."""
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None
        except ChildProcessError:  # reaped elsewhere, so it has ended
            return False

    def wait(self) -> int:
        """Waits until the process ends, and returns its exit status; 0 if that is unknown, like `Popen`."""
        status = 0
        with suppress(ChildProcessError):
            _, status = os.waitpid(self.pid, 0)
        self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def kill(self) -> None:
        """Kills the process, unless it has ended."""
        if self.runs:
            self.send_signal(signal.SIGKILL)

    def send_signal(self, signum: int) -> None:
        """Sends the process a signal, unless it has been reaped."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signum)


class KernelTemplate:
    """The template process. If it fails, the reason is logged, and kernels start as programs from then on.

    If the workspace's packages have changed, it imports the modules of `preload` again for the next kernel.
    """

    def __init__(self, pid: int, control: socket.socket, preload: Sequence[str] = ()):
        self._preload = list(preload)
        self._packages = packages_dir(Path.cwd())
        #: The state of the packages that the process may have imported.
        self._imported = self._installed()
        self._lock = asyncio.Lock()
        self._process = ForkedProcess(pid, control, None)
        self._control: socket.socket | None = control
        self._ready = False
        #: Seconds that the next kernel waits for the imports; only the first one waits.
        self._patience = IMPORT_TIMEOUT
        #: The modules that could not be preloaded, with the reason (`ipybox.guest.protocol`).
        self.not_preloaded: dict[str, str] = {}

    async def fork(self, command: list[str]) -> ForkedProcess | None:
        """Returns a new process, which waits for its request; None if it can't be forked, or not yet.

        Register the process before you await anything, because unregistered children of the gateway are reaped.
        """
        async with self._lock:
            if (control := self._control) is None:
                return None
            try:
                return await self._fork(control, command) if await self._until_ready(control) else None
            except (OSError, EOFError, TimeoutError) as error:
                self._end(control)
                logger.warning("kernels start more slowly because the template process is not available: %s", error)
                return None
            except asyncio.CancelledError:
                self._end(control)  # its answer may still arrive
                raise

    async def _until_ready(self, control: socket.socket) -> bool:
        """Returns whether the process has imported its modules; the first kernel waits for that.

        Raises:
            EOFError, OSError: If it has ended.
        """
        if self._ready and self._preload and self._imported != (installed := self._installed()):
            self._ready, self._patience, self._imported = False, IMPORT_TIMEOUT, installed
            control.send(json.dumps(self._preload).encode())
        if self._ready:
            return True
        patience, self._patience = self._patience, 0
        try:
            async with asyncio.timeout(patience):
                problems = await _received(control)
        except TimeoutError:
            self.not_preloaded = dict.fromkeys(self._preload, IMPORTING)
            logger.info(
                "the template is still importing its modules: until it is ready, kernels start as separate programs"
            )
            return False
        self._ready, self.not_preloaded = True, problems
        if self._imported is not None and (installed := self._installed()) and installed[0] == self._imported[0]:
            self._imported = installed  # Python has written bytecode there
        return True

    async def _fork(self, control: socket.socket, command: list[str]) -> ForkedProcess | None:
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:  # too many open files, which is not the template's fault
            logger.debug("can't fork a kernel: %s", error)
            return None
        try:
            ours.setblocking(False)
            with theirs:
                socket.send_fds(control, [json.dumps(command).encode()], [theirs.fileno()])
            async with asyncio.timeout(FORK_TIMEOUT):
                answer: int | str = await _received(control)
        except BaseException:
            ours.close()
            raise
        if isinstance(answer, str):
            ours.close()
            logger.debug("the template can't fork a kernel: %s", answer)
            return None
        return ForkedProcess(answer, ours, self._imported)

    def is_current(self, process: ForkedProcess) -> bool:
        """Returns whether a process has the same modules as a new one: packages may have been installed since."""
        return not self._preload or process.imported == self._installed()

    def _installed(self) -> tuple[int, int] | None:
        """Returns a value that changes when a package is installed, because that replaces the directory."""
        with suppress(OSError):
            found = self._packages.stat()
            return found.st_ino, found.st_mtime_ns
        return None

    def _end(self, control: socket.socket) -> None:
        control.close()
        self._control = None
        self._process.kill()
        self._process.wait()


class Spare:
    """Keeps one kernel ready (a `GuestKernelManager`), so that sessions and resets don't wait.

    It is forked when the gateway starts, and when no other kernel starts. It receives its token only when a session
    uses it; until then, the gateway does not list it.
    """

    def __init__(self, make: Callable[[], Awaitable[Any]], discard: Callable[[Any], Coroutine[Any, Any, None]]):
        self._make = make
        self._discard = discard
        self._making: asyncio.Task[Any] | None = None
        self._discarding = TaskSet()
        self._timer: asyncio.TimerHandle | None = None

    def start_later(self) -> None:
        """Postpones starting a spare kernel, which must not delay the start of another."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(QUIET, self.start)

    async def claim(self) -> Any:
        """Returns the spare kernel, or None without one. An outdated kernel is discarded."""
        making, self._making = self._making, None
        kernel = None if making is None else await making
        if kernel is None or kernel.is_current:
            return kernel
        self._discarding.start(self._discard(kernel))
        return None

    def start(self) -> None:
        """Begins starting a spare kernel, unless there is one."""
        if self._making is None:
            self._making = asyncio.create_task(self._made())

    async def _made(self) -> Any:
        try:
            return await self._make()
        except Exception as error:  # whatever it is: without a spare, kernels are started on demand
            logger.warning("no spare kernel is available: %s", error)
            return None


async def _received(control: socket.socket) -> Any:
    """Returns the template's next message.

    Raises:
        EOFError: If it has ended.
    """
    if not (message := await asyncio.get_running_loop().sock_recv(control, MAX_BYTES)):
        raise EOFError("its process has exited")
    return json.loads(message)
