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


def kernel_of(gateway: socket.socket) -> RemoteKernel:
    """A kernel of the gateway that listens at a socket."""
    endpoint = Endpoint("kernel-gateway", host=HOST, port=gateway.getsockname()[1], token="t")
    kernel = RemoteKernel(endpoint, None, heartbeat=None, init_timeout=1)
    kernel.id, kernel.session = "k", endpoint.session()
    return kernel


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
        kernel = kernel_of(gateway)
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


def gone(relay: KernelRelay) -> None:
    """Does what the channels do when the kernel ends."""
    for on_end in [*relay._kernel.channels.on_end]:  # pyright: ignore[reportPrivateUsage]
        on_end("the kernel died")


async def test_a_connection_that_outlives_the_kernel_is_told_so(relay: KernelRelay):
    async with (
        asyncio.timeout(WAIT),
        aiohttp.ClientSession(headers={"Authorization": f"token {relay.token}"}) as person,
    ):
        for path, status in (("/api", 200), ("/api/nothing", 404), ("/api/kernels/k/restart", 404)):
            async with person.get(f"{relay.url}{path}") as response:
                assert response.status == status
        gone(relay)
        async with person.get(f"{relay.url}/api") as response:
            assert (response.status, (await response.json())["message"]) == (410, "the kernel is gone: the kernel died")
        async with person.delete(f"{relay.url}/api/kernels/k") as response:
            assert response.status == 204


async def test_a_kernel_that_died_before_is_gone_at_once(relay: KernelRelay, monkeypatch: pytest.MonkeyPatch):
    kernel = relay._kernel  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(type(kernel.channels), "alive", False)
    other = KernelRelay(kernel, "default", confined=True, on_presence=lambda _: None)
    await other.start()
    assert other.ended.is_set()
    assert other.end_reason == "not connected to a kernel"
    await other.close()


async def test_a_client_is_told_that_the_gateway_can_not_be_reached(relay: KernelRelay):
    kernel = relay._kernel  # pyright: ignore[reportPrivateUsage]
    kernel.session = kernel.endpoint.session()
    async with (
        asyncio.timeout(WAIT),
        aiohttp.ClientSession() as person,
        person.get(f"{relay.url}/api/kernels/k/channels?token={relay.token}") as response,
    ):
        assert response.status == 502
        assert "can't connect to the kernel" in await response.text()
    await kernel.close()


async def test_the_first_client_and_the_last_are_told_and_all_leave_with_the_kernel(monkeypatch: pytest.MonkeyPatch):
    connections: list[socket.socket] = []

    def serve() -> None:
        for answers in (True, True, False):  # the last client waits for the gateway
            connections.append(gateway.accept()[0])
            request = connections[-1].recv(1 << 16).decode()
            if answers:
                upgraded(connections[-1], request)
        asked.set()

    present = asyncio.Queue[bool]()
    asked = threading.Event()
    with socket.create_server((HOST, 0)) as gateway:
        threading.Thread(target=serve, daemon=True).start()
        kernel = kernel_of(gateway)
        monkeypatch.setattr(type(kernel.channels), "alive", True)
        relay = KernelRelay(kernel, "default", confined=True, on_presence=present.put_nowait)
        await relay.start()
        url = f"{relay.url}/api/kernels/k/channels?token={relay.token}"
        try:
            async with asyncio.timeout(WAIT), aiohttp.ClientSession() as person:
                first, second = [await person.ws_connect(url) for _ in range(2)]
                assert await present.get()
                await first.close()
                waiting = asyncio.create_task(person.get(url))
                await asyncio.to_thread(asked.wait)
                gone(relay)
                assert (await second.receive()).type is aiohttp.WSMsgType.CLOSE
                waiting.cancel()
                assert not await present.get()
        finally:
            await relay.close()
            await kernel.close()
            for connection in connections:
                connection.close()
    assert present.empty()
