"""Each test of a client leaves nothing behind."""

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from tests import servers


@pytest.fixture(autouse=True)
async def nothing_is_left_behind() -> AsyncIterator[None]:
    processes, files = servers.descendants(), len(os.listdir("/proc/self/fd"))
    yield
    assert servers.descendants() - processes == set()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert len(os.listdir("/proc/self/fd")) == files
