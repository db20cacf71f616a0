import asyncio

import anyio
import pytest

from ipybox.mcp_client.connection import TimeLimits


async def test_time_limits_stop_while_a_person_is_waited_for():
    limits = TimeLimits(anyio.CancelScope())
    with limits.limit(0.05), limits.paused():
        await asyncio.sleep(0.1)
    with pytest.raises(TimeoutError), limits.limit(0.05):
        await asyncio.Event().wait()
