"""HTTP/2 over pipes: streams hold up no other, and a peer that breaks the rules has its connection closed."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes

from ipybox.remote.wire import connection
from ipybox.remote.wire.connection import WINDOW, Connection
from ipybox.remote.wire.stream import Stream, StreamClosedError

#: Seconds that a test waits for what must happen.
WAIT = 10.0


class Ends:
    """A client and a server, and the streams that the server got."""

    def __init__(self) -> None:
        self.client = Connection(client=True)
        self.server = Connection(client=False, on_request=self._take)
        self._requests: asyncio.Queue[Stream] = asyncio.Queue()

    def _take(self, stream: Stream) -> None:
        stream.accept()
        self._requests.put_nowait(stream)

    async def open(self) -> None:
        (read_here, write_there), (read_there, write_here) = os.pipe(), os.pipe()
        await self.client.open(read_here, write_here)
        await self.server.open(read_there, write_there)
        self.client.start()
        self.server.start()

    async def stream(self) -> tuple[Stream, Stream]:
        """Returns both ends of a new stream."""
        ours = self.client.request("/x")
        return ours, await self._requests.get()


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    ends = Ends()
    await ends.open()
    async with asyncio.timeout(WAIT):
        yield ends
    ends.client.close()
    ends.server.close()


async def received(stream: Stream, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := await stream.receive()):
        data += more
    return data


async def test_stream_that_is_not_read_takes_no_more_than_its_window_and_holds_up_no_other(ends: Ends):
    _, stuck = await ends.stream()
    flood = asyncio.create_task(stuck.send(bytes(20 * WINDOW)))
    ours, theirs = await ends.stream()
    data = os.urandom(10 * WINDOW)
    sending = asyncio.create_task(theirs.send(data))
    assert await received(ours, len(data)) == data
    await sending
    assert not flood.done()
    flood.cancel()


async def test_end_of_a_stream_arrives_after_its_data(ends: Ends):
    ours, theirs = await ends.stream()
    await ours.send(b"last words")
    ours.end()
    ours.reset()
    assert await received(theirs, 100) == b"last words"
    with pytest.raises(StreamClosedError):
        await theirs.send(b"x")


async def test_end_of_the_connection_ends_its_streams(ends: Ends):
    ours, theirs = await ends.stream()
    ends.server.close()
    assert await ours.receive() == b""
    with pytest.raises(StreamClosedError):
        ends.client.request("/x")
    assert await theirs.receive() == b""


async def test_the_last_output_of_a_peer_that_has_exited_is_read():
    (read_here, write_there), (read_there, write_here) = os.pipe(), os.pipe()
    os.write(write_there, b"last words")
    os.close(write_there)
    os.close(read_there)
    read = bytearray()
    client = Connection(client=True)
    await client.open(read_here, write_here, read.extend)
    async with asyncio.timeout(WAIT):
        await client.closed.wait()
    assert read == b"last words"


@pytest.mark.parametrize("cancelled", [True, False], ids=["cancelled", "closed"])
@pytest.mark.parametrize("turns", range(1, 5))
async def test_connection_that_ends_while_it_opens_leaves_no_descriptor(turns: int, cancelled: bool):
    before = set(os.listdir("/dev/fd"))
    (read_here, write_there), (read_there, write_here) = os.pipe(), os.pipe()
    client = Connection(client=True)
    opening = asyncio.create_task(client.open(read_here, write_here))
    for _ in range(turns):
        await asyncio.sleep(0)
    if cancelled:
        opening.cancel()
    else:
        client.close()
    await asyncio.gather(opening, return_exceptions=True)
    client.close()
    await asyncio.sleep(0)
    for fd in (read_there, write_there):
        os.close(fd)
    assert set(os.listdir("/dev/fd")) == before


async def test_a_flood_of_small_frames_leaves_the_event_loop_to_others(ends: Ends, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connection, "COSTLY", 0.0)
    reading = cast(Any, ends.client)._reading
    paused: list[str] = []
    monkeypatch.setattr(reading, "pause_reading", lambda pause=reading.pause_reading: paused.append("once") or pause())
    ends.client.data_received(b"\0\0\0\x04\0\0\0\0\0" * 7000)  # settings
    assert paused == ["once"]

    ours, theirs = await ends.stream()
    await theirs.send(b"later")
    assert await ours.receive() == b"later"
    assert ends.client.violation is None


async def hostile(action: str) -> Connection:
    """Returns a client whose server did something that it may not do."""
    (read_here, write_there), (read_there, write_here) = os.pipe(), os.pipe()
    client = Connection(client=True)
    await client.open(read_here, write_here)
    client.start()
    client.request("/x")
    server = H2Connection(H2Configuration(client_side=False))
    server.initiate_connection()
    await asyncio.sleep(0)
    while not server.open_inbound_streams:
        server.receive_data(await asyncio.to_thread(os.read, read_there, 65536))
    server.send_headers(1, [(":status", "200")])
    match action:
        case "window":
            server.remote_settings.acknowledge()
            server.streams[1].outbound_flow_control_window = server.outbound_flow_control_window = 1 << 30
            while not client.closed.is_set():
                server.send_data(1, bytes(16 << 10))
                os.write(write_there, server.data_to_send())
                await asyncio.sleep(0)
        case "push":
            server.remote_settings[SettingCodes.ENABLE_PUSH] = 1
            server.remote_settings.acknowledge()
            server.push_stream(1, 2, [(":method", "GET"), (":path", "/"), (":scheme", "http"), (":authority", "x")])
            os.write(write_there, server.data_to_send())
        case "deaf":
            while not client.closed.is_set():
                client.ping()
                await asyncio.sleep(0)
        case _:
            os.write(write_there, server.data_to_send() + b"\0\0\1" + bytes(6) + b"x")  # data of stream 0
    async with asyncio.timeout(WAIT):
        await client.closed.wait()
    for fd in (read_there, write_there):
        os.close(fd)
    return client


@pytest.mark.parametrize("action", ["window", "push", "deaf", "garbage"])
async def test_peer_that_breaks_the_rules_is_cut_off(action: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connection, "MAX_WRITE_BUFFER", 1 << 10)
    client = await hostile(action)
    assert client.violation is not None
