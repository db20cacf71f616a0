"""Starts the gateway's kernel processes, notices their end, and cleans up after them.

Kernels are forked from the template (`ipybox.guest.template`) or, without one, are new programs. Either way, they are
children of the gateway.
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from ipybox.guest import descendants
from ipybox.guest.interrupts import POKE
from ipybox.guest.kernel_output import GatewayOutput
from ipybox.guest.protocol import ExitStatus
from ipybox.guest.template import KernelRequest
from ipybox.guest.template_client import ForkedProcess

if TYPE_CHECKING:
    from ipybox.guest.kernel_manager import GuestKernelManager

#: Seconds after an interrupt when the kernel is poked. On a busy machine, it may take long to start a system call.
POKES = (0.01, 0.03, 0.1, 0.3, 1.0)

#: The process ids of all kernels that have not been reaped.
running: set[int] = set()


def count_oom_kills() -> int:
    """Returns how many processes this system has killed for lack of memory; 0 if it doesn't report that."""
    with contextlib.suppress(OSError):
        found = re.search(r"^oom_kill (\d+)$", Path("/proc/vmstat").read_text(), re.MULTILINE)
        return int(found[1]) if found else 0
    return 0


class KernelProvisioner(LocalProvisioner):
    """Starts the kernel process of `parent` in its own process group, and kills the kernel's processes when it ends.

    Then it notifies `parent` and removes the kernel's directory.
    """

    parent: "GuestKernelManager"
    process: subprocess.Popen[bytes] | ForkedProcess | None
    pgid: int | None

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self._exited = asyncio.Event()
        self._kernel_id = ""
        self.output: GatewayOutput | None = None
        #: The socket on which the process waits for its request, and for the session's variables.
        self._channel: socket.socket | None = None
        self._oom_kills = 0
        #: The kernel's descendants when its shutdown was requested.
        self._seen: set[int] = set()

    async def hand_over(self, environment: dict[str, str]) -> None:
        """Assigns the kernel to a session, with the session's variables."""
        await self._send(environment)
        self._close_channel()

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        """Starts the kernel process and a thread that waits for its end."""
        self._kernel_id = kwargs["env"][descendants.KERNEL_ID]
        self.output = GatewayOutput()
        try:
            await self._start(cmd, self.output, **kwargs)
        except BaseException:
            self.output.close()
            self._close_channel()
            raise
        assert self.process is not None
        running.add(self.process.pid)
        threading.Thread(target=self._watch, args=(self.process.pid, asyncio.get_running_loop()), daemon=True).start()
        return self.connection_info

    async def poll(self) -> int | None:
        """Returns the exit status of the process, or None while it runs or has not been reaped."""
        return 0 if self.process is None else self.process.returncode

    async def send_signal(self, signum: int) -> None:
        """Sends a signal to the kernel's group, and pokes the kernel after an interrupt (`ipybox.guest.interrupts`)."""
        await super().send_signal(signum)
        for seconds in POKES if signum == signal.SIGINT else ():
            asyncio.get_running_loop().call_later(seconds, self._poke)

    def _poke(self) -> None:
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, POKE)

    async def ended(self) -> None:
        """Returns when the kernel process has ended."""
        await self._exited.wait()

    async def wait(self) -> int | None:
        """Returns the exit status of the kernel process as soon as it has ended."""
        await self.ended()
        status = await self.poll()
        self.process = None
        return status

    async def shutdown_requested(self, restart: bool = False) -> None:
        """Records the kernel's descendants, because they become orphans when the kernel ends."""
        if self.process is not None:
            self._seen = descendants.below_child(self.process.pid)
        await super().shutdown_requested(restart)

    async def _start(self, cmd: list[str], output: GatewayOutput, **kwargs: Any) -> None:
        """Forks the process from the template, or starts a new program if that fails."""
        directory = str(kwargs.get("cwd") or os.getcwd())
        template = self.parent.template
        if template is not None and (process := await template.fork(cmd)) is not None:
            running.add(process.pid)  # before anything is awaited: children that are not listed are reaped
            self.process, self.pid, self.pgid, self.cwd = process, process.pid, process.pid, directory
            self._channel = process.channel
        elif self.parent.spare:
            raise ChildProcessError("can't fork a process from the template")
        else:
            self._channel, theirs = socket.socketpair()
            self._channel.setblocking(False)
            with theirs:
                await super().launch_kernel(cmd, stdin=theirs.fileno(), **kwargs)
        output.send(self._channel)
        environment = kwargs["env"] | {"JPY_PARENT_PID": str(os.getpid())}
        info: dict[str, Any] = {**self.connection_info}
        info["key"] = info["key"].decode()
        await self._send(KernelRequest(connection=info, environment=environment, directory=directory))

    async def _send(self, message: KernelRequest | dict[str, str]) -> None:
        assert self._channel is not None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            await asyncio.get_running_loop().sock_sendall(self._channel, json.dumps(message).encode() + b"\n")

    def _close_channel(self) -> None:
        if self._channel is not None:
            self._channel.close()

    def _watch(self, pid: int, loop: asyncio.AbstractEventLoop) -> None:
        self._oom_kills = count_oom_kills()
        if sys.platform == "darwin":  # which has no waitid() before Python 3.13
            assert self.process is not None
            self.process.wait()
        else:
            # The process stays a zombie, so that its group id can't be reused before the group is killed.
            with contextlib.suppress(ChildProcessError):  # reaped elsewhere, so it has ended
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        try:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pgid or pid, signal.SIGKILL)
            descendants.kill_kernel(self._kernel_id, running, self._seen)
        finally:  # whatever fails: a cell must not wait for a kernel that is gone
            with contextlib.suppress(RuntimeError):  # the loop is closed: the gateway is ending
                loop.call_soon_threadsafe(self._ended)
        shutil.rmtree(self.parent.directory, ignore_errors=True)  # last, because code may have filled it

    def _ended(self) -> None:
        assert self.process is not None
        assert self.output is not None
        status = self.process.wait()  # returns immediately: it has ended
        running.discard(self.process.pid)
        self._close_channel()
        self._exited.set()
        try:
            oom = status == -signal.SIGKILL and count_oom_kills() > self._oom_kills
            self.parent.kernel_ended(ExitStatus(status=status, oom=oom), self.output)
        finally:
            self.output.close()
