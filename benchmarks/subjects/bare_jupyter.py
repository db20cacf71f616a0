"""A kernel driven by `jupyter_client` alone: the floor of everything that runs code."""

import asyncio
import time
from typing import Any

import channel
from jupyter_client.manager import AsyncKernelManager


class Subject:
    """A kernel, and the operations that can be asked for."""

    def __init__(self) -> None:
        # Both are annotated in part only.
        self._manager: Any = None
        self._client: Any = None

    async def start(self) -> None:
        """Starts a kernel and waits until it is ready."""
        self._manager = AsyncKernelManager()
        await self._manager.start_kernel()
        await self._connect()

    async def stop(self) -> None:
        """Kills the kernel."""
        self._client.stop_channels()
        await self._manager.shutdown_kernel(now=True)

    async def execute(self, code: str, expected: str, count: int) -> dict[str, Any]:
        """Times executions one by one, and counts those whose output is wrong."""
        seconds: list[float] = []
        wrong = 0
        for _ in range(count):
            began = time.perf_counter()
            text = await self.run(code)
            seconds.append(time.perf_counter() - began)
            wrong += text != expected
        return {"seconds": seconds, "wrong": wrong}

    async def output(self, code: str) -> dict[str, Any]:
        """Times one execution and tells how many characters arrived."""
        began = time.perf_counter()
        text = await self.run(code)
        return {"seconds": time.perf_counter() - began, "characters": len(text.removesuffix("\n"))}

    async def import_seconds(self, statement: str) -> float:
        """Times an import in a fresh kernel."""
        await self.reset()
        code = f"from time import perf_counter as now; began = now(); {statement}; print(now() - began)"
        return float(await self.run(code))

    async def reset(self) -> float:
        """Times a restart of the kernel, to the first result after it."""
        began = time.perf_counter()
        self._client.stop_channels()
        await self._manager.restart_kernel(now=True)
        await self._connect()
        await self.run("1+1")
        return time.perf_counter() - began

    async def restart(self) -> float:
        """Times the kill of the kernel; then starts one again."""
        began = time.perf_counter()
        await self.stop()
        seconds = time.perf_counter() - began
        await self.start()
        return seconds

    async def run(self, code: str) -> str:
        """Returns what code printed, or its value."""
        pieces: list[str] = []

        def take(message: dict[str, Any]) -> None:
            content = message["content"]
            if message["msg_type"] == "stream":
                pieces.append(content["text"])
            elif message["msg_type"] == "execute_result":
                pieces.append(content["data"]["text/plain"])

        await self._client.execute_interactive(code, store_history=False, allow_stdin=False, output_hook=take)
        return "".join(pieces)

    async def _connect(self) -> None:
        self._client = self._manager.client()
        self._client.start_channels()
        await self._client.wait_for_ready()


async def main() -> None:
    """Starts a kernel, reports its first result, and does what is asked for."""
    subject = Subject()
    await subject.start()
    await subject.run("1+1")
    channel.say_started()
    await channel.serve(
        {
            "execute": subject.execute,
            "output": subject.output,
            "import_seconds": subject.import_seconds,
            "reset": subject.reset,
            "restart": subject.restart,
        }
    )
    await subject.stop()


if __name__ == "__main__":
    asyncio.run(main())
