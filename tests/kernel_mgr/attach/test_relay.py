"""The port for a person's clients, without a kernel behind it."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from ipybox.kernel_mgr.attach import relay as relay_module
from ipybox.kernel_mgr.attach.relay import HOST, KernelRelay
from ipybox.kernel_mgr.remote_kernel import RemoteKernel
from ipybox.support.endpoint import Endpoint
from tests.servers import WAIT


@pytest.fixture
async def relay(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KernelRelay]:
    monkeypatch.setattr(relay_module, "MAX_UNAUTHENTICATED", 3)
    kernel = RemoteKernel(Endpoint("kernel-gateway", port=1), None, heartbeat=None, init_timeout=1)
    kernel.id = "k"
    monkeypatch.setattr(type(kernel.channels), "alive", True)
    served = KernelRelay(kernel, "default", confined=True, on_presence=lambda _: None)
    await served.start()
    yield served
    await served.close()


async def test_connections_without_the_token_make_room_for_others(relay: KernelRelay):
    async with (
        asyncio.timeout(WAIT),
        aiohttp.ClientSession(headers={"Authorization": f"token {relay.token}"}) as person,
    ):
        async with person.get(f"{relay.url}/api") as response:
            assert response.status == 200
        silent = [await asyncio.open_connection(HOST, relay.port) for _ in range(4)]
        assert await silent[0][0].read() == b""
        async with person.get(f"{relay.url}/api") as response:
            assert response.status == 200
        for _, writer in silent:
            writer.close()
