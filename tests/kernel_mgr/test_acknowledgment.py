"""A sender that waits for an acknowledgment gets data over a relayed connection, while more of it is expected."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from ipybox.kernel_mgr.acknowledgment import Acknowledgment
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
        async with session.ws_connect(f"http://{host}:{port}/") as client:
            try:
                yield client, await opened
            finally:
                closed.set()
    await runner.cleanup()


@pytest.mark.parametrize(("relayed", "expecting"), [(True, True), (True, False), (False, True)])
async def test_a_pong_is_sent_only_over_a_relayed_connection_and_while_more_is_expected(
    ends: tuple[aiohttp.ClientWebSocketResponse, web.WebSocketResponse], relayed: bool, expecting: bool
):
    client, server = ends
    asked = asyncio.Event()

    def expects() -> bool:
        asked.set()
        return expecting

    async with asyncio.timeout(WAIT):
        async with Acknowledgment(client, relayed=relayed, expecting=expects) as acknowledgment:
            acknowledgment.note()
            if relayed:
                await asked.wait()
            if relayed and expecting:
                assert (await server.receive()).type is aiohttp.WSMsgType.PONG
        await client.send_str("last")
        assert (await server.receive()).type is aiohttp.WSMsgType.TEXT
