import asyncio
import os
import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import IO

import pytest

from ipybox.errors import GatewayError
from ipybox.guest.protocol import CONNECTION, LISTENER, MAX_FDS, READY
from ipybox.kernel_mgr.link import MAX_WAITING, Link
from tests.servers import WAIT

#: What a guest may send a descriptor of.
Opened = IO[bytes] | socket.socket


class Guest:
    """The guest's end of a link, in the hands of somebody hostile."""

    def __init__(self, link: Link, end: socket.socket, accepted: "asyncio.Queue[socket.socket]"):
        self.link = link
        self.end = end
        self.accepted = accepted

    async def send(self, data: bytes, *files: Opened) -> None:
        await asyncio.to_thread(socket.send_fds, self.end, [data], [file.fileno() for file in files])

    async def everything_is_received(self) -> None:
        """Returns when the host has taken all that was sent before."""
        self.link.settled.clear()
        await self.send(READY)
        async with asyncio.timeout(WAIT):
            await self.link.settled.wait()

    async def next_connection(self) -> socket.socket:
        async with asyncio.timeout(WAIT):
            return await self.accepted.get()


@pytest.fixture
async def guest() -> AsyncIterator[Guest]:
    link = Link()
    end = link.guest_end.dup()
    accepted: asyncio.Queue[socket.socket] = asyncio.Queue()
    link.open(accepted.put_nowait)
    yield Guest(link, end, accepted)
    link.close()
    end.close()
    while not accepted.empty():
        accepted.get_nowait().close()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=200) as listening:
        yield listening


@contextmanager
def regular_file(tmp_path: Path) -> Generator[Opened]:
    with open(tmp_path / "file", "wb") as file:
        yield file


@contextmanager
def connected_socket(tmp_path: Path) -> Generator[Opened]:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as connected,
    ):
        yield connected


@contextmanager
def unix_listener(tmp_path: Path) -> Generator[Opened]:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        yield listening


@contextmanager
def socket_that_does_not_listen(tmp_path: Path) -> Generator[Opened]:
    with socket.socket() as idle:
        idle.bind(("127.0.0.1", 0))
        yield idle


@contextmanager
def datagram_socket(tmp_path: Path) -> Generator[Opened]:
    with socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        datagrams.bind(("127.0.0.1", 0))
        yield datagrams


@contextmanager
def link_itself(tmp_path: Path) -> Generator[Opened]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_the_guest_says_when_it_is_ready(guest: Guest):
    assert not guest.link.settled.is_set()
    await guest.everything_is_received()
    assert not guest.link.closed.is_set()


async def test_a_connection_reaches_the_guest_as_a_descriptor(guest: Guest):
    with guest.link.connect() as connection:
        data, fds, _, _ = await asyncio.to_thread(socket.recv_fds, guest.end, 16, MAX_FDS)
        assert (data, len(fds)) == (CONNECTION, 1)
        with socket.socket(fileno=fds[0]) as other:
            other.sendall(b"hello")
            assert connection.recv(16) == b"hello"
            assert not connection.getblocking()


async def test_connections_to_the_guests_listener_are_the_hosts(guest: Guest, listener: socket.socket):
    await guest.send(LISTENER, listener)
    for text in (b"one", b"two"):
        with socket.create_connection(listener.getsockname()) as client, await guest.next_connection() as accepted:
            client.sendall(text)
            accepted.setblocking(True)
            assert accepted.recv(16) == text


async def test_the_end_of_the_guest_is_noticed(guest: Guest):
    guest.end.close()
    async with asyncio.timeout(WAIT):
        await guest.link.closed.wait()

    with pytest.raises(GatewayError, match="the kernel gateway has exited"):
        guest.link.connect()


async def test_closing_tells_the_guest_and_may_happen_twice(guest: Guest):
    guest.link.close()
    guest.link.close()

    assert guest.end.recv(1) == b""
    assert guest.link.closed.is_set()
    with pytest.raises(GatewayError):
        guest.link.connect()


async def test_accepted_connections_do_not_linger_though_their_listener_does(guest: Guest, listener: socket.socket):
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 60))
    await guest.send(LISTENER, listener)
    with socket.create_connection(listener.getsockname()), await guest.next_connection() as accepted:
        assert struct.unpack("ii", accepted.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8))[0] == 0


async def test_no_more_is_accepted_than_the_loop_has_taken(guest: Guest, listener: socket.socket):
    await guest.send(LISTENER, listener)
    before = open_descriptors()
    with ExitStack() as clients:
        # The loop does not run meanwhile.
        for _ in range(100):
            clients.enter_context(socket.create_connection(listener.getsockname()))
        assert open_descriptors() - before <= 100 + MAX_WAITING + 4  # the listener, and what wakes its thread
        for _ in range(100):
            clients.enter_context(await guest.next_connection())


async def test_closing_ends_the_receiving_thread(guest: Guest):
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "ipybox-link")
    guest.link.close()
    thread.join(WAIT)

    assert not thread.is_alive()


async def test_closing_ends_the_accepting_thread_though_the_guest_keeps_its_listener(
    guest: Guest, listener: socket.socket
):
    await guest.send(LISTENER, listener)
    await guest.everything_is_received()
    threads = [thread for thread in threading.enumerate() if thread.name == "ipybox-accept"]
    assert len(threads) == 1
    guest.link.close()
    threads[0].join(WAIT)

    assert not threads[0].is_alive()


@pytest.mark.parametrize(
    "sent",
    [regular_file, connected_socket, unix_listener, socket_that_does_not_listen, datagram_socket, link_itself],
    ids=["file", "connected", "unix", "idle", "datagrams", "pair"],
)
@pytest.mark.parametrize("data", [LISTENER, READY, b"?"])
async def test_descriptors_that_are_no_tcp_listeners_are_closed(
    guest: Guest,
    tmp_path: Path,
    data: bytes,
    sent: Callable[[Path], AbstractContextManager[Opened]],
):
    with sent(tmp_path) as opened:
        before = open_descriptors()
        await guest.send(data, opened)
        await guest.everything_is_received()

        assert open_descriptors() == before


async def test_a_listener_after_the_refused_ones_is_taken(guest: Guest, tmp_path: Path, listener: socket.socket):
    with regular_file(tmp_path) as file:
        await guest.send(LISTENER, file, listener)
    with socket.create_connection(listener.getsockname()), await guest.next_connection():
        pass


async def test_a_second_listener_is_closed(guest: Guest, listener: socket.socket):
    await guest.send(LISTENER, listener)
    await guest.everything_is_received()
    before = open_descriptors()
    with socket.create_server(("127.0.0.1", 0)) as second:
        await guest.send(LISTENER, second, second)
        await guest.everything_is_received()
        address = second.getsockname()

    assert open_descriptors() == before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    with socket.create_connection(listener.getsockname()), await guest.next_connection():
        pass


async def test_a_listener_is_closed_where_none_is_wanted(listener: socket.socket):
    link = Link()
    with link.guest_end.dup() as end:
        link.open(None)
        before = open_descriptors()
        socket.send_fds(end, [LISTENER, READY], [listener.fileno()])
        async with asyncio.timeout(WAIT):
            await link.settled.wait()

        assert open_descriptors() == before
        link.close()


async def test_floods_of_descriptors_are_closed(guest: Guest, tmp_path: Path):
    before = open_descriptors()
    with ExitStack() as stack:
        files = [stack.enter_context(regular_file(tmp_path)) for _ in range(100)]
        for _ in range(20):
            await guest.send(LISTENER, *files)
        await guest.everything_is_received()

    assert open_descriptors() == before


async def test_garbage_does_not_disturb_the_link(guest: Guest, listener: socket.socket):
    garbage = bytes(byte for byte in range(256) if bytes([byte]) not in (LISTENER, READY)) * 8192
    await asyncio.to_thread(guest.end.sendall, garbage)
    assert not guest.link.settled.is_set()
    await guest.everything_is_received()
    await guest.send(LISTENER, listener)
    with socket.create_connection(listener.getsockname()), await guest.next_connection():
        pass


async def test_a_guest_that_does_not_read_is_an_error_and_does_not_block(guest: Guest):
    before = open_descriptors()

    def connect_without_end() -> None:
        with ExitStack() as connections:
            while True:
                connections.enter_context(guest.link.connect())

    with pytest.raises(GatewayError, match="accepts no connections"):
        connect_without_end()

    assert open_descriptors() <= before


async def test_a_guest_that_meddles_with_its_listener_does_not_block_the_host(guest: Guest, listener: socket.socket):
    await guest.send(LISTENER, listener)
    await guest.everything_is_received()
    listener.setblocking(True)
    with socket.create_connection(listener.getsockname()), await guest.next_connection():
        pass
    listener.setblocking(False)
    with socket.create_connection(listener.getsockname()), await guest.next_connection():
        pass
    listener.shutdown(socket.SHUT_RDWR)
    await guest.everything_is_received()

    assert not guest.link.closed.is_set()
