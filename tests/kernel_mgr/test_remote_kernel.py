"""What the application makes of a gateway's words about modules, and of the frames of its WebSocket."""

import asyncio
import socket
import threading
from contextlib import suppress
from typing import Any

import pytest

from ipybox.kernel_mgr import remote_kernel
from ipybox.kernel_mgr.kernel_channels import next_data
from ipybox.kernel_mgr.remote_kernel import RemoteKernel, preload_notices
from ipybox.support.endpoint import Endpoint
from ipybox.support.errors import GatewayError
from tests.security.guests import frame, upgraded
from tests.servers import WAIT

NOTICE = "pandas is not preloaded, because importing it starts threads; kernels import it on first use instead."


def test_only_known_words_of_the_gateway_become_a_notice():
    said: dict[str, Any] = {"pandas": "threads", "numpy": "**free text**", "absent": "fails", "sympy": ["fails"]}
    kernel = {"id": "x", "ipybox_not_preloaded": said}
    assert preload_notices(["pandas", "numpy", "sympy"], kernel) == [NOTICE]
    for other in ({}, {"ipybox_not_preloaded": "pandas"}, {"ipybox_not_preloaded": None}):
        assert preload_notices(["pandas"], other) == []


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        pytest.param(b"\x8a\0" + frame(b"x" * 60), b"x" * 60, id="pong"),
        pytest.param(b"\x89\0" + frame(b"x" * 60), b"x" * 60, id="ping"),
        pytest.param(b"\x88\0", None, id="close"),
        pytest.param(b"\x83\0", None, id="unknown"),
        pytest.param(frame(b"x" * 60, first=0x81), "a frame that can't be a message", id="text"),
        pytest.param(frame(b"x" * 50), "a frame that can't be a message", id="short"),
        pytest.param(frame(b"x" * 200), "larger than .*: print less in one call, or write to a file", id="large"),
    ],
)
async def test_frames_are_messages_or_end_the_connection(
    sent: bytes, received: bytes | str | None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(remote_kernel, "MAX_MESSAGE_BYTES", 100)

    def serve() -> None:
        connection, _ = gateway.accept()
        with connection, suppress(OSError):
            upgraded(connection, connection.recv(1 << 16).decode())
            connection.sendall(sent)
            connection.recv(1 << 16)  # the client's close frame

    with socket.create_server(("127.0.0.1", 0)) as gateway:
        threading.Thread(target=serve, daemon=True).start()
        endpoint = Endpoint("kernel-gateway", host="127.0.0.1", port=gateway.getsockname()[1], token="t")
        kernel = RemoteKernel(endpoint, None, heartbeat=None, init_timeout=1)
        kernel.id, kernel.session = "k", endpoint.session()
        try:
            async with asyncio.timeout(WAIT):
                websocket = await kernel.connect("session")
                if isinstance(received, str):
                    with pytest.raises(GatewayError, match=received):
                        await next_data(websocket)
                else:
                    assert await next_data(websocket) == received
        finally:
            await kernel.close()
