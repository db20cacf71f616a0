"""`CodeExecutor` of ipybox, or of the peer, whose API is the same as far as it is used here."""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import channel

from ipybox import CodeExecutor, generate_mcp_sources

#: The peer loses output now and then.
ATTEMPTS = 10


class Subject:
    """The operations that can be asked for."""

    def __init__(self, executor: CodeExecutor):
        self._executor = executor

    async def execute(self, code: str, expected: str, count: int) -> dict[str, Any]:
        """Times executions one by one, and counts those whose output is wrong."""
        seconds: list[float] = []
        wrong = 0
        for _ in range(count):
            began = time.perf_counter()
            result = await self._executor.execute(code)
            seconds.append(time.perf_counter() - began)
            wrong += result.text != expected
        return {"seconds": seconds, "wrong": wrong}

    async def output(self, code: str) -> dict[str, Any]:
        """Times one execution and tells how many characters arrived."""
        began = time.perf_counter()
        result = await self._executor.execute(code)
        return {"seconds": time.perf_counter() - began, "characters": len(result.text or "")}

    async def evaluate(self, code: str, expression: str) -> Any:
        """Runs code in the kernel and returns the value of an expression there."""
        await self._executor.execute(code)
        for _ in range(ATTEMPTS):
            text = (await self._executor.execute(f"print(__import__('json').dumps({expression}))")).text
            if text is not None:
                return json.loads(text)
        raise RuntimeError(f"no output in {ATTEMPTS} attempts")

    async def reset(self) -> float:
        """Times a reset, to the first result after it."""
        began = time.perf_counter()
        await self._executor.reset()
        await self._executor.execute("1+1")
        return time.perf_counter() - began

    async def restart(self) -> float:
        """Times a stop; then starts again."""
        began = time.perf_counter()
        await self._executor.stop()
        seconds = time.perf_counter() - began
        await self._executor.start()
        return seconds

    async def generate(self, server_name: str, server_params: dict[str, Any]) -> None:
        """Generates a package that the kernel can import from `mcptools`."""
        await generate_mcp_sources(server_name, server_params, Path("mcptools"))


async def main() -> None:
    """Starts an executor, reports its first result, and does what is asked for."""
    options: dict[str, Any] = {"sandbox": True} if "--sandbox" in sys.argv else {}
    async with CodeExecutor(**options) as executor:
        await executor.execute("1+1")
        channel.say_started()
        subject = Subject(executor)
        await channel.serve(
            {
                "execute": subject.execute,
                "output": subject.output,
                "evaluate": subject.evaluate,
                "reset": subject.reset,
                "restart": subject.restart,
                "generate": subject.generate,
            }
        )


if __name__ == "__main__":
    asyncio.run(main())
