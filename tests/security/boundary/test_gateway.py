"""Tests that code which replaces the gateway can't block or crash the application, or fill its memory."""

import asyncio
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from ipybox.errors import IpyboxError
from ipybox.kernel_mgr import link as link_module
from ipybox.kernel_mgr import timeouts
from ipybox.kernel_mgr.client import KernelClient
from ipybox.kernel_mgr.link import Link
from ipybox.sandbox.launch import Sandbox
from ipybox.sandbox.settings import load_settings
from ipybox.support.endpoint import Endpoint
from ipybox.tool_exec.http_api import MAX_CONNECTIONS
from ipybox.tool_exec.server import ToolServer
from tests.security import guests
from tests.security.boundary.heart import LARGE, Heart
from tests.security.boundary.probes import PLACE
from tests.security.boundary.sides import Side
from tests.security.conftest import Row
from tests.servers import WAIT

pytestmark = pytest.mark.asyncio(loop_scope="module")


@asynccontextmanager
async def standing_in(workspace: Path, private_dir: Path, *words: str) -> AsyncGenerator[Link]:
    """Runs one of the programs of `guests` in the sandbox, linked to this process as the gateway is."""
    link = Link()
    command = [sys.executable, "-P", guests.__file__, *words]
    guest_dir = private_dir / "guest"
    guest_dir.mkdir()
    sandbox = Sandbox(load_settings(), workspace)
    process = await asyncio.create_subprocess_exec(
        *sandbox.kernel_command(command, guest_dir, private_dir / "srt.json"),
        cwd=workspace,
        env={name: os.environ[name] for name in ("PATH", "HOME")} | {"TMPDIR": str(private_dir)},
        stdin=link.guest_end.fileno(),
        stdout=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        # As in an executor, the tool server stops while the guest still lives.
        async with ToolServer(port=None, sealed_workspace=workspace) as tools:
            link.open(tools.accept_kernel_connection)
            yield link
    finally:
        link.close()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        async with asyncio.timeout(WAIT):
            await process.wait()


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("flood",), id="a hundred thousand descriptors of every kind"),
        pytest.param(("knock", "20000"), id="twenty thousand connections to the host's listener"),
        pytest.param(("babble", "200"), id="200 MiB that mean nothing"),
    ],
)
async def test_the_link_bears(
    words: tuple[str, ...], sandboxed: Side, tmp_path: Path, table: list[Row], request: pytest.FixtureRequest
) -> None:
    await sandboxed.works()
    before = len(os.listdir("/proc/self/fd"))
    async with Heart().beating() as heart:
        async with standing_in(sandboxed.workspace, tmp_path, *words) as link:
            async with asyncio.timeout(WAIT):
                await link.settled.wait()
            assert not link.closed.is_set()
            # The link, the listener and what the tool server may serve.
            assert len(os.listdir("/proc/self/fd")) - before < MAX_CONNECTIONS + 50
            await sandboxed.works()
        await sandboxed.works()
    assert len(os.listdir("/proc/self/fd")) <= before + 1
    table.append(Row(PLACE, request.node.callspec.id, "the gateway itself works", heart.check()))


@pytest.mark.parametrize("count", [1, 2], ids=["one", "more than are taken from one message"])
async def test_sockets_whose_last_close_blocks_do_not_block_the_host(
    count: int,
    sandboxed: Side,
    tmp_path: Path,
    table: list[Row],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link_module, "MAX_FDS", 1)
    os.mkfifo(sandboxed.workspace / "closed")
    heart = Heart()
    try:
        async with standing_in(sandboxed.workspace, tmp_path, "linger", str(count)) as link:
            # This host is busy until the guest has closed its own: whoever reads the link has the last ones.
            assert (sandboxed.workspace / "closed").read_text() == "closed"
            async with heart.beating(), asyncio.timeout(5 * WAIT):
                await link.settled.wait()
    finally:
        (sandboxed.workspace / "closed").unlink()
    await sandboxed.works()
    name = f"sockets whose last close blocks: {request.node.callspec.id}"
    table.append(Row(PLACE, name, "the gateway itself works", heart.check()))


async def test_a_listener_whose_connections_block_when_they_are_closed_does_not_block_the_host(
    table: list[Row],
) -> None:
    """Accepted sockets inherit SO_LINGER. The guest's part is played here: it needs a buffer that is just full."""
    link, heart = Link(), Heart()
    with (
        link.guest_end.dup() as guest_end,
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.socket() as client,
    ):
        async with ToolServer(port=None) as tools:
            link.open(tools.accept_kernel_connection)
            try:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 4))
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
                socket.send_fds(guest_end, [guests.LISTENER], [listener.fileno()])
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
                client.setblocking(False)
                async with asyncio.timeout(WAIT):
                    await asyncio.get_running_loop().sock_connect(client, listener.getsockname())
                    client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 12)
                    answered = b""
                    # How much has come is no event of a loop, as long as it is not read.
                    while len(answered) < 1000:
                        await asyncio.sleep(0)
                        answered = client.recv(1 << 16, socket.MSG_PEEK) if _readable(client) else b""
                    assert answered.startswith(b"HTTP/1.1 ")
                async with heart.beating():
                    await tools.stop()
            finally:
                link.close()
    table.append(Row(PLACE, "a listener whose connections block at their close", "they block", heart.check()))


def _readable(sock: socket.socket) -> bool:
    return bool(select.select([sock], [], [], 0)[0])


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("silent",), id="no answer at all"),
        pytest.param(("redirect_file",), id="a redirection to a file"),
        pytest.param(("redirect_host", "{door}"), id="a redirection to a port of the host"),
        pytest.param(("redirect_websocket", "{door}"), id="a redirection of the WebSocket to a port of the host"),
        pytest.param(("garbage",), id="an answer that is not HTTP"),
        pytest.param(("endless_head",), id="a head of 100 MiB"),
        pytest.param(("endless_body", "1200"), id="a body of 1200 MiB"),
        pytest.param(("compressed_body", "1024"), id="a compressed body of 1 GiB"),
        pytest.param(("deep_body",), id="JSON that is nested ten million times"),
        pytest.param(("numbers_body",), id="a number of twenty million digits"),
        pytest.param(("strange_id",), id="a kernel id with a path and line ends"),
        pytest.param(("compressed_frames", "500"), id="frames that are compressed unasked"),
        pytest.param(("huge_frame", "1200"), id="a frame of four exbibytes"),
        pytest.param(("impossible_frames",), id="frames that there can't be"),
        pytest.param(("empty_frames",), id="twenty million empty frames"),
        pytest.param(("endless_output", "600"), id="600 MiB of output"),
        pytest.param(("wrong_parents",), id="messages of other cells, and what is no message"),
        pytest.param(("many_messages", "30"), id="30,000 messages as fast as they can be sent"),
        pytest.param(("overlapping_parts",), id="a message of 100 MiB whose parts are all of it, a thousand times"),
    ],
)
@pytest.mark.slow
async def test_the_client_bears_a_gateway_that_is_none(
    words: tuple[str, ...],
    sandboxed: Side,
    tmp_path: Path,
    table: list[Row],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timeouts, "GATEWAY_TIMEOUT", 2.0)
    monkeypatch.setattr(timeouts, "INTERRUPT_GRACE", 0.5)
    monkeypatch.setattr(timeouts, "ANSWER_GRACE", 0.5)
    await sandboxed.works()
    sandboxed.clear()
    given = [word.format(door=sandboxed.door.port) for word in words]
    async with (
        Heart().beating() as heart,
        asyncio.timeout(2 * WAIT),
        standing_in(sandboxed.workspace, tmp_path, *given) as link,
    ):
        client = KernelClient(
            endpoint=Endpoint("kernel-gateway", dial=link.connect),
            images_dir=tmp_path / "images",
            kernel_init_timeout=2,
            untrusted_root=sandboxed.workspace,
        )
        failure: Exception | None = None
        try:
            await client.connect(retries=0)
            await client.execute("1 + 1", timeout=5)
        except Exception as exc:
            failure = exc
        finally:
            await client.disconnect()
        assert isinstance(failure, (IpyboxError, RuntimeError, TimeoutError)), repr(failure)[:500]
        assert "FORGED" not in str(failure)
    assert sandboxed.door.visits == 0
    assert not (tmp_path / "images").exists()
    await sandboxed.works()
    name = request.node.callspec.id
    table.append(Row(PLACE, name, "the gateway itself works", heart.check(large=name in LARGE)))
