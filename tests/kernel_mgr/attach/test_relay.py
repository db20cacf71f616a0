"""The port for a person's clients, without a kernel behind it."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import suppress

import aiohttp
import pytest

from ipybox.kernel_mgr.attach import relay as relay_module
from ipybox.kernel_mgr.attach.relay import HOST, KernelRelay
from ipybox.kernel_mgr.remote_kernel import RemoteKernel
from ipybox.support.endpoint import Endpoint
from tests.security.guests import message, upgraded
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


@pytest.mark.parametrize(
    "flood", [b"\x82\x00" * 100_000, message("comm_msg", b"{}", "1") * 5000], ids=["empty", "not shown"]
)
async def test_a_client_can_leave_a_gateway_that_sends_frames_without_end(
    flood: bytes, monkeypatch: pytest.MonkeyPatch
):
    def serve() -> None:
        connection, _ = gateway.accept()
        with connection, suppress(OSError):
            upgraded(connection, connection.recv(1 << 16).decode())
            while True:
                connection.sendall(flood)

    present = asyncio.Queue[bool]()
    with socket.create_server((HOST, 0)) as gateway:
        threading.Thread(target=serve, daemon=True).start()
        endpoint = Endpoint("kernel-gateway", host=HOST, port=gateway.getsockname()[1], token="t")
        kernel = RemoteKernel(endpoint, None, heartbeat=None, init_timeout=1)
        kernel.id, kernel.session = "k", endpoint.session()
        monkeypatch.setattr(type(kernel.channels), "alive", True)
        relay = KernelRelay(kernel, "default", confined=True, on_presence=present.put_nowait)
        await relay.start()
        try:
            async with asyncio.timeout(WAIT):
                async with aiohttp.ClientSession() as person:
                    client = await person.ws_connect(f"{relay.url}/api/kernels/k/channels?token={relay.token}")
                    if b"comm_msg" not in flood:
                        assert (await client.receive()).type is aiohttp.WSMsgType.CLOSE
                assert [await present.get(), await present.get()] == [True, False]
        finally:
            await relay.close()
            await kernel.close()
