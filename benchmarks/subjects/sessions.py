"""Sessions next to that of a running `CodeExecutor`. The peer has no sessions: they are executors of their own."""

import asyncio
import time

import channel

from ipybox import CodeExecutor


class Subject:
    """The operations that can be asked for."""

    def __init__(self, executor: CodeExecutor):
        self._executor = executor
        self._sessions: list[CodeExecutor] = []

    async def open(self, count: int) -> float:
        """Times the start of several concurrent sessions, from the request to the last first result."""
        began = time.perf_counter()
        self._sessions = await asyncio.gather(*(self._open() for _ in range(count)))
        return time.perf_counter() - began

    async def close(self) -> None:
        """Stops all sessions."""
        await asyncio.gather(*(session.stop() for session in self._sessions))
        self._sessions = []

    async def _open(self) -> CodeExecutor:
        session = self._executor.sibling() if hasattr(self._executor, "sibling") else CodeExecutor()
        await session.start()
        await session.execute("1+1")
        return session


async def main() -> None:
    """Starts an executor, reports its first result, and does what is asked for."""
    async with CodeExecutor() as executor:
        await executor.execute("1+1")
        channel.say_started()
        subject = Subject(executor)
        await channel.serve({"open": subject.open, "close": subject.close})


if __name__ == "__main__":
    asyncio.run(main())
