"""What a hostile component answers."""

import asyncio
import socket
import threading
from contextlib import suppress

import aiohttp
import pytest

from ipybox.support.endpoint import Endpoint
from tests.servers import WAIT


async def test_interim_responses_without_end_end_the_connection():
    def serve() -> None:
        connection, _ = server.accept()
        with connection, suppress(OSError):
            while True:
                connection.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1000)

    def dial() -> socket.socket:
        connection = socket.create_connection(server.getsockname())
        connection.setblocking(False)
        return connection

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        async with asyncio.timeout(WAIT), Endpoint("kernel-gateway", dial=dial).session() as session:
            with pytest.raises(aiohttp.ServerDisconnectedError):
                await session.post("/")
