"""How long an attack stops the host's event loop, and by how much it lets the host grow."""

import asyncio
import gc
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

MIB = 1 << 20

#: Seconds that the host's event loop may stand still, without those in which it only waits for a processor: the machine
#: is busy with the attack itself, and in CI with other tests. What would block the loop blocks it for minutes, or for
#: good.
MAX_STALL = 3.0

#: The same where as much comes at once as may: a message of 256 MiB, an image of 150 MiB, three million values.
MAX_STALL_OF_LARGE = 10.0

#: Bytes by which the host may grow under an attack, at its peak.
MAX_GROWTH = 512 * MIB
MAX_GROWTH_OF_LARGE = 1024 * MIB

#: Those where as much comes at once as may.
LARGE = {
    "320 MiB of output",
    "600 MiB of output",  # 256 MiB are kept, and joined
    "ten million beginnings of control sequences",
    "an image of 150 MiB",
    "a message of 300 MiB",
    "a display of 500 places, each of which an update changes",
    "calls of 8 MiB, 12 at once",
    "JSON of nearly three million empty lists, 4 at once",
}


class Heart:
    """Measures the longest stall of the event loop and the peak of this process's memory, from `beating` on."""

    def __init__(self) -> None:
        self.stall = 0.0
        self._base = 0

    @asynccontextmanager
    async def beating(self) -> AsyncGenerator["Heart"]:
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        self._base = _status("VmRSS")
        loop = asyncio.get_running_loop()
        waits = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        last = 0.0

        def note() -> None:
            nonlocal last
            now = loop.time() - int(waits.read_text().split()[1]) / 1e9
            self.stall, last = max(self.stall, now - last), now

        def beat() -> None:
            nonlocal handle
            note()
            handle = loop.call_later(0.01, beat)

        note()
        self.stall = 0.0
        handle = loop.call_later(0.01, beat)
        try:
            yield self
        finally:
            handle.cancel()
            note()

    @property
    def growth(self) -> int:
        """Bytes between the memory at the start and its peak."""
        return max(0, _status("VmHWM") - self._base)

    def check(self, *, large: bool = False) -> str:
        """Returns what was measured, if it is within the bounds."""
        said = f"stall {self.stall * 1000:.0f} ms, +{self.growth / MIB:.0f} MiB"
        assert self.stall < (MAX_STALL_OF_LARGE if large else MAX_STALL), f"the event loop stood still: {said}"
        assert self.growth < (MAX_GROWTH_OF_LARGE if large else MAX_GROWTH), f"the host has grown: {said}"
        return said


def _status(name: str) -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) << 10
