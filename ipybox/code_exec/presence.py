"""People who are connected to an agent's kernel: their relays, notices for the agent, and audit events."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ipybox.code_exec.lifecycle import KernelLifecycle
from ipybox.support.tasks import TaskSet

if TYPE_CHECKING:
    from ipybox.audit.recorder import SessionRecorder
    from ipybox.kernel_mgr.attach.relay import KernelRelay

CAME = "A person is connected to this kernel: variables may change between cells."
LEFT = "The person connected to this kernel has disconnected: variables may have changed."


class Presence:
    """Lets people use a kernel; tells the agent when the first one connects and when the last one disconnects.

    `confined` means that the kernel runs in a sandbox or on another machine.
    """

    def __init__(self, kernel: KernelLifecycle, recorder: "SessionRecorder", *, confined: bool):
        self._kernel = kernel
        self._notices = kernel.notices
        self._recorder = recorder
        self._confined = confined
        self._relays = 0
        self._tasks = TaskSet()

    @asynccontextmanager
    async def attached(self, name: str) -> AsyncGenerator["KernelRelay"]:
        """Opens a port for a person, until the end of the context; raises as `CodeExecutor.attach`."""
        from ipybox.kernel_mgr.attach.relay import KernelRelay

        client = await self._kernel.ensure_kernel()
        kernel = client.remote_kernel
        relay = KernelRelay(kernel, name, confined=self._confined, on_presence=self._note)
        await self._tasks.undo(relay.start(), lambda _: relay.close())
        try:
            yield relay
        finally:
            await self._tasks.finish(relay.close())

    def _note(self, present: bool) -> None:
        """Records that the first client of a relay has connected, or its last one has disconnected."""
        self._relays += 1 if present else -1
        if self._relays != int(present):  # another relay has clients
            return
        self._recorder.session("attach" if present else "detach")
        # An agent that has not read the previous notice needs only the latest one.
        self._notices[:] = [notice for notice in self._notices if notice not in (CAME, LEFT)]
        self._notices.append(CAME if present else LEFT)
