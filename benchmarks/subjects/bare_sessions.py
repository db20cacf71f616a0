"""Kernels next to one that runs, driven by `jupyter_client` alone: the floor of sessions."""

import asyncio
import time

import channel
from bare_jupyter import Subject as Kernel


class Subject:
    """The operations that can be asked for."""

    def __init__(self) -> None:
        self._kernels: list[Kernel] = []

    async def open(self, count: int) -> float:
        """Times the start of several concurrent kernels, from the request to the last first result."""
        began = time.perf_counter()
        self._kernels = [Kernel() for _ in range(count)]
        await asyncio.gather(*(_start(kernel) for kernel in self._kernels))
        return time.perf_counter() - began

    async def close(self) -> None:
        """Kills all kernels."""
        await asyncio.gather(*(kernel.stop() for kernel in self._kernels))
        self._kernels = []


async def _start(kernel: Kernel) -> None:
    await kernel.start()
    await kernel.run("1+1")


async def main() -> None:
    """Starts a kernel, reports its first result, and does what is asked for."""
    kernel, subject = Kernel(), Subject()
    await _start(kernel)
    channel.say_started()
    await channel.serve({"open": subject.open, "close": subject.close})
    await kernel.stop()


if __name__ == "__main__":
    asyncio.run(main())
