"""A forwarding proxy that shows a token, for clients that can't."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web

#: Of one connection, not of the message. https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1
HOP_BY_HOP = ("connection", "keep-alive", "transfer-encoding")


@asynccontextmanager
async def forwarding(url: str, token: str) -> AsyncGenerator[str]:
    """Forwards all requests to the server at `url`, with the token and else as they are; yields the URL to use."""

    async def forward(request: web.Request) -> web.StreamResponse:
        headers = _end_to_end(request.headers) | {"Authorization": f"Bearer {token}"}
        body = await request.read()
        async with session.request(request.method, url, headers=headers, data=body, auto_decompress=False) as answer:
            response = web.StreamResponse(status=answer.status, headers=_end_to_end(answer.headers))
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            return response

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", forward)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
        finally:
            await runner.cleanup()


def _end_to_end(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in HOP_BY_HOP}
