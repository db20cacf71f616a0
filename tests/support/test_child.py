"""The last lines that a process has written."""

import asyncio
import os

import pytest

from ipybox.support.child import MAX_LENGTH, MAX_LINES, StderrLines
from tests.servers import WAIT


async def written(lines: StderrLines, *parts: bytes) -> tuple[str, ...]:
    """Returns the last lines after a process has written these parts, and ended."""
    fd = await lines.open()
    for part in parts:
        os.write(fd, part)
        await asyncio.sleep(0)
    os.close(fd)
    await lines.settled(WAIT)
    return lines.last


async def test_lines_that_come_in_parts_are_whole_and_the_last_ones_are_kept():
    lines = StderrLines(str)
    first = b"".join(b"%d\n" % number for number in range(2 * MAX_LINES))

    assert (await written(lines, first, b"one ", b"line\nnot end", b"ed"))[-3:] == (
        f"{2 * MAX_LINES - 1}",
        "one line",
        "not ended",
    )
    assert len(lines.last) == MAX_LINES + 1
    await lines.close()


async def test_long_lines_are_cut_and_control_characters_shown():
    lines = StderrLines(str)

    long, red = await written(lines, b"x" * (2 * MAX_LENGTH) + b"\n\x1b[31mred\n")

    assert long == "x" * MAX_LENGTH
    assert red == "\\u001b[31mred"
    await lines.close()


async def test_what_is_echoed_is_kept_too(capsys: pytest.CaptureFixture[str]):
    lines = StderrLines(str, echo=True)

    assert await written(lines, b"said\n") == ("said",)
    assert capsys.readouterr().err == "said\n"
    await lines.close()


async def test_close_leaves_no_descriptor_though_a_process_holds_the_other_end():
    lines = StderrLines(str)
    before = len(os.listdir("/proc/self/fd"))
    fd = await lines.open()

    await lines.close()
    os.close(fd)

    assert len(os.listdir("/proc/self/fd")) == before
