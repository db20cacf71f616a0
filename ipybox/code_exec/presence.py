"""People who are connected to an agent's kernel: their relays, notices for the agent, events of the audit log."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ipybox.code_exec.lifecycle import KernelLifecycle
from ipybox.kernel_mgr.attach.client_cells import ClientCells
from ipybox.support.tasks import TaskSet

if TYPE_CHECKING:
    from ipybox.audit.recorder import SessionRecorder
    from ipybox.kernel_mgr.attach.relay import KernelRelay

CAME = "A person is connected to this kernel: variables may change between cells."
LEFT = "The person connected to this kernel has disconnected: variables may have changed."


class Presence:
    """Lets people use a kernel; tells the agent once that one has come, and once that the last one has left.

    Args:
        kernel: The kernel, and the notices of its session, which the next result has.
        recorder: Records what the session does.
        confined: Whether the kernel runs in a sandbox, or on another machine.
    """

    def __init__(self, kernel: KernelLifecycle, recorder: "SessionRecorder", *, confined: bool):
        self._kernel = kernel
        self._cells = kernel.client_cells = ClientCells()
        self._notices = kernel.notices
        self._recorder = recorder
        self._confined = confined
        self._relays = 0
        self._tasks = TaskSet()

    @asynccontextmanager
    async def attached(self, name: str) -> AsyncGenerator["KernelRelay"]:
        """Opens a port for a person, until the end of the context; errors are those of `CodeExecutor.attach`."""
        from ipybox.kernel_mgr.attach.relay import KernelRelay

        client = await self._kernel.ensure_kernel()
        relay = KernelRelay(
            client.remote_kernel,
            name,
            self._cells,
            confined=self._confined,
            on_presence=self._note,
        )
        await self._tasks.undo(relay.start(), lambda _: relay.close())
        try:
            yield relay
        finally:
            await self._tasks.finish(relay.close())

    def _note(self, present: bool) -> None:
        """Notes that the first client of a relay has come, or its last one has gone."""
        self._relays += 1 if present else -1
        if present and self._relays == 1:
            self._tell(CAME, "attach")
        elif self._relays == 0:
            self._tell(LEFT, "detach")

    def _tell(self, notice: str, action: str) -> None:
        self._recorder.session(action)
        # An agent that has not read yet that someone came needs one notice, the last.
        for outdated in (CAME, LEFT):
            if outdated in self._notices:
                self._notices.remove(outdated)
        self._notices.append(notice)
