"""A sender that waits for an acknowledgment gets data while more of its messages are expected; pings are answered."""

import asyncio
import time
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from ipybox.kernel_mgr.kernel_channels import MIN_FRAME_BYTES, PAUSE, acknowledge, next_data
from tests.servers import WAIT


@pytest.fixture
async def ends() -> AsyncIterator[tuple[aiohttp.ClientWebSocketResponse, web.WebSocketResponse]]:
    """Both ends of a WebSocket; the server sees pongs."""
    opened, closed = asyncio.get_running_loop().create_future(), asyncio.Event()

    async def answer(request: web.Request) -> web.WebSocketResponse:
        websocket = web.WebSocketResponse(autoping=False)
        await websocket.prepare(request)
        opened.set_result(websocket)
        await closed.wait()
        return websocket

    application = web.Application()
    application.router.add_get("/", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    async with aiohttp.ClientSession() as session:
        host, port = runner.addresses[0][:2]
        async with session.ws_connect(f"http://{host}:{port}/", autoping=False) as client:
            try:
                yield client, await opened
            finally:
                closed.set()
    await runner.cleanup()


@pytest.mark.parametrize("expecting", [True, False])
async def test_a_pong_is_sent_only_while_more_is_expected(
    ends: tuple[aiohttp.ClientWebSocketResponse, web.WebSocketResponse], expecting: bool
):
    client, server = ends
    received, asked = asyncio.Event(), asyncio.Event()

    def expects() -> bool:
        asked.set()
        return expecting

    async with asyncio.timeout(WAIT):
        acknowledging = asyncio.create_task(acknowledge(client, received, expects))
        received.set()
        await asked.wait()
        if expecting:
            assert (await server.receive()).type is aiohttp.WSMsgType.PONG
        acknowledging.cancel()
        await client.send_str("last")
        assert (await server.receive()).type is aiohttp.WSMsgType.TEXT


async def test_pings_leave_most_of_the_time_to_other_tasks(
    ends: tuple[aiohttp.ClientWebSocketResponse, web.WebSocketResponse],
):
    client, server = ends
    async with asyncio.timeout(WAIT):
        for _ in range(1000):
            await server.ping()
        await server.send_bytes(b"last" * MIN_FRAME_BYTES)
        begun = time.monotonic()

        assert await next_data(client) == b"last" * MIN_FRAME_BYTES
        assert time.monotonic() - begun >= 1000 * PAUSE
        assert (await server.receive()).type is aiohttp.WSMsgType.PONG
