"""An approval channel with a server of its own."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from aiohttp import web

from ipybox.tool_exec.approval.server import ApprovalChannel


@asynccontextmanager
async def serving_channel(channel: ApprovalChannel) -> AsyncGenerator[int]:
    """Serves a channel, and yields the port for its client."""

    async def handle(request: web.Request) -> web.WebSocketResponse:
        websocket = web.WebSocketResponse()
        await websocket.prepare(request)
        await channel.connect(websocket)
        return websocket

    app = web.Application()
    app.router.add_get("/approval", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield int(runner.addresses[0][1])
    finally:
        await channel.disconnect()
        await runner.cleanup()
