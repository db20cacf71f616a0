"""Processes of pip: each has a session of its own, and ends with the task that waits for it."""

import asyncio
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ipybox.support.process_group import signal_group

TERMINATE_GRACE = 2.0


async def run(command: Sequence[str], env: Mapping[str, str], cwd: Path, out: int, err: int | None = None) -> int:
    """Runs a command in a session of its own, and ends all of it if the caller is cancelled."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env=env,
        cwd=cwd,
        stdin=asyncio.subprocess.PIPE,  # whose end is the order to end
        stdout=out,
        stderr=subprocess.STDOUT if err is None else err,
        start_new_session=True,
    )
    try:
        return await process.wait()
    finally:
        await asyncio.shield(_end(process))


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    if process.returncode is None:
        signal_group(process.pid, signal.SIGTERM)  # srt takes down what it has set up
        with suppress(TimeoutError):
            async with asyncio.timeout(TERMINATE_GRACE):
                await process.wait()
    signal_group(process.pid, signal.SIGKILL)
    await process.wait()
