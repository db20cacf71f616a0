"""The network: from the sandbox nothing is reached but the tool port and the hosts that its settings allow."""

import asyncio
import json
import secrets
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from tests import servers
from tests.security import kernels, network_attacks
from tests.security.conftest import Row
from tests.security.kernels import Attack, Kernel, Outcome, Place, Probe, held, named, running

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.kernel]

#: A domain that is allowed, and resolves nowhere.
ALLOWED = "allowed.example"


def own_address(family: socket.AddressFamily, anywhere: str, loopback: str) -> str:
    """The address of the interface that leads out; nothing is sent. That of loopback if there is none."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((anywhere, 9))
        except OSError:
            return loopback
        return str(probe.getsockname()[0])


def binds(address: str) -> bool:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


OWN_V4 = own_address(socket.AF_INET, "192.0.2.254", "127.0.0.1")
OWN_V6 = own_address(socket.AF_INET6, "2001:db8::1", "::1")
HAS_V6 = binds("::1")


class Ear(asyncio.DatagramProtocol):
    """Somebody on the host who listens, answers HTTP, and notes all that is said.

    Attributes:
        speak: Says a word from the host itself.
    """

    def __init__(self, speak: Callable[[str], str]):
        self.speak = speak
        self._noted = bytearray()
        self._more = asyncio.Event()
        self._transport: asyncio.DatagramTransport | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            self._note(data)
            if b" HTTP/1." in data:
                body = data + b"\0"
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        writer.close()

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int] | None) -> None:
        self._note(data)
        if self._transport is not None and addr:
            self._transport.sendto(data, addr)

    async def hears(self, word: str) -> None:
        async with asyncio.timeout(servers.WAIT):
            while word.encode() not in self._noted:
                self._more.clear()
                await self._more.wait()

    async def has_heard(self, word: str) -> bool:
        """Whether a word has come, of those that were said up to now."""
        later = new_word()
        await asyncio.to_thread(self.speak, later)
        await self.hears(later)
        return word.encode() in self._noted

    def _note(self, data: bytes) -> None:
        self._noted += data
        self._more.set()


@dataclass(frozen=True)
class Host:
    """Who listens, and what arguments of attacks can hold in braces."""

    ears: Mapping[str, Ear]
    names: Mapping[str, str]


@dataclass(frozen=True)
class Kernels:
    """A kernel outside, one with the default settings, one whose settings allow some host, and one with all of them."""

    plain: Kernel
    sandboxed: Kernel
    restricted: Kernel
    opened: Kernel


@asynccontextmanager
async def listening(directory: Path) -> AsyncGenerator[Host]:
    """Listens on all kinds of sockets that attacks try."""
    loop = asyncio.get_running_loop()
    abstract = f"ipybox-probe-{secrets.token_hex(8)}"
    names = {"own": OWN_V4, "own6": OWN_V6, "abstract": abstract, "allowed_name": ALLOWED}
    ears: dict[str, Ear] = {}
    async with AsyncExitStack() as stack:

        async def stream(name: str, listener: socket.socket, speak: Callable[[str], str]) -> None:
            ears[name] = Ear(speak)
            listener.listen()
            server = await asyncio.start_server(ears[name].serve, sock=listener)
            stack.callback(server.close)

        async def datagram(name: str, listener: socket.socket, speak: Callable[[str], str]) -> None:
            ears[name] = ear = Ear(speak)
            transport, _ = await loop.create_datagram_endpoint(lambda: ear, sock=listener)
            stack.callback(transport.close)

        for name, host in (("tcp", ""), ("allowed", ""), *([("tcp6", "::")] if HAS_V6 else [])):
            listener = socket.socket(socket.AF_INET6 if host else socket.AF_INET)
            if host:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind((host, 0))
            names[name] = port = str(listener.getsockname()[1])
            local = "::1" if host else "127.0.0.1"
            await stream(name, listener, lambda word, at=(local, port): network_attacks.tcp(*at, word))
        listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        listener.bind(("", 0))
        names["udp"] = port = str(listener.getsockname()[1])
        await datagram("udp", listener, lambda word: network_attacks.udp("127.0.0.1", names["udp"], word))
        for name, address in (("path", str(directory / "docker.sock")), ("abstract stream", f"\0{abstract}")):
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(address)
            await stream(name, listener, lambda word, at=address: network_attacks.unix_stream(at, word))
        for name, address in (("log", str(directory / "log")), ("abstract datagram", f"\0{abstract}")):
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            listener.bind(address)
            await datagram(name, listener, lambda word, at=address: network_attacks.unix_datagram(at, word))
        names |= {"path": str(directory / "docker.sock"), "log": str(directory / "log")}
        yield Host(ears, names)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host(tmp_path_factory: pytest.TempPathFactory, shared: None) -> AsyncIterator[Host]:
    # Paths of sockets are short.
    async with listening(tmp_path_factory.mktemp("ears")) as listening_host:
        yield listening_host


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def all_kernels(host: Host, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Kernels]:
    def settings(name: str, *domains: str) -> Path:
        file = tmp_path_factory.mktemp("settings") / f"{name}.json"
        file.write_text(json.dumps({"network": {"allowedDomains": domains}}))
        return file

    restricted = settings("restricted", ALLOWED, f"localhost:{host.names['allowed']}")
    opened = settings("opened", "localhost", "127.0.0.1", "[::1]", *{OWN_V4, ALLOWED})
    async with AsyncExitStack() as stack:

        async def kernel(sandbox: bool = True, config: Path | None = None) -> Kernel:
            directory = tmp_path_factory.mktemp("workspace")
            place = Place(directory, directory, "")
            return await stack.enter_async_context(running(place, sandbox=sandbox, config=config))

        yield Kernels(await kernel(False), await kernel(), await kernel(config=restricted), await kernel(config=opened))


def new_word() -> str:
    return f"word{secrets.token_hex(8)}"


async def say(probe: Probe, kernel: Kernel, host: Host, word: str) -> Outcome:
    names = {**host.names, "word": word}
    return await kernel.run(probe.attack, *(argument.format_map(names) for argument in probe.arguments))


async def control(probe: Probe, kernel: Kernel, host: Host, ear: str) -> None:
    word = new_word()
    outcome = await say(probe, kernel, host, word)
    assert outcome.got is not None, f"the attack does not work where nothing stops it: {outcome}"
    await host.ears[ear].hears(word)


async def is_silent(probe: Probe, kernel: Kernel, host: Host, ear: str) -> Outcome:
    word = new_word()
    outcome = await say(probe, kernel, host, word)
    assert not await host.ears[ear].has_heard(word), f"the host was reached: {outcome}"
    return outcome


# --- without an allowed host


def probe(name: str, attack: Attack, *arguments: str) -> Probe:
    return Probe(name, attack, (*arguments, "{word}"))


DIRECT: list[tuple[Probe, str]] = [
    (probe("TCP to the host's loopback", network_attacks.tcp, "127.0.0.1", "{tcp}"), "tcp"),
    (probe("TCP to another address of loopback", network_attacks.tcp, "127.1.2.3", "{tcp}"), "tcp"),
    (probe("TCP to the host's own address", network_attacks.tcp, "{own}", "{tcp}"), "tcp"),
    (probe("TCP to the unspecified address", network_attacks.tcp, "0.0.0.0", "{tcp}"), "tcp"),
    (probe("TCP to localhost by name", network_attacks.tcp, "localhost", "{tcp}"), "tcp"),
    (probe("TCP to whatever may be loopback", network_attacks.through_all_addresses_of_loopback, "{tcp}"), "tcp"),
    (probe("TCP to a mapped address", network_attacks.mapped, "127.0.0.1", "{tcp}"), "tcp"),
    (probe("TCP fast open", network_attacks.fast_open, "127.0.0.1", "{tcp}"), "tcp"),
    (probe("multipath TCP", network_attacks.multipath, "127.0.0.1", "{tcp}"), "tcp"),
    (probe("TCP from another program", network_attacks.from_a_program, "127.0.0.1", "{tcp}"), "tcp"),
    (probe("HTTP to the host", network_attacks.http, "{own}", "{tcp}"), "tcp"),
    (probe("TCP in other network namespaces", network_attacks.other_network_namespaces, "{tcp}"), "tcp"),
    (probe("UDP to the host's loopback", network_attacks.udp, "127.0.0.1", "{udp}"), "udp"),
    (probe("UDP to the host's own address", network_attacks.udp, "{own}", "{udp}"), "udp"),
    (probe("DNS to a name server of the host", network_attacks.dns_query, "127.0.0.1", "{udp}"), "udp"),
    (probe("DNS to a name server at the host's address", network_attacks.dns_query, "{own}", "{udp}"), "udp"),
    (probe("a Unix socket (docker.sock, ssh-agent)", network_attacks.unix_stream, "{path}"), "path"),
    (probe("a Unix socket through another program", network_attacks.unix_socket_of_a_program, "{path}"), "path"),
    (probe("a Unix socket of a pair, connected again", network_attacks.connected_anew, "{path}"), "path"),
    (probe("Unix sockets that are open already", network_attacks.inherited_unix_sockets, "{path}"), "path"),
    (probe("a Unix datagram socket (the system's log)", network_attacks.unix_datagram, "{log}"), "log"),
    (probe("one end of a pair of Unix datagram sockets", network_attacks.datagram_of_a_pair, "{log}"), "log"),
    (probe("one end of a pair of raw Unix sockets", network_attacks.datagram_of_a_raw_pair, "{log}"), "log"),
    (probe("an abstract Unix socket (D-Bus)", network_attacks.abstract_stream, "{abstract}"), "abstract stream"),
    (
        probe("an abstract Unix datagram socket", network_attacks.abstract_datagram, "{abstract}"),
        "abstract datagram",
    ),
    (
        probe("an end of a pair to an abstract socket", network_attacks.abstract_datagram_of_a_pair, "{abstract}"),
        "abstract datagram",
    ),
]
DIRECT_V6: list[tuple[Probe, str]] = [
    (probe("TCP to the host's loopback, IPv6", network_attacks.tcp, "::1", "{tcp6}"), "tcp6"),
    (probe("TCP to the host's own address, IPv6", network_attacks.tcp, "{own6}", "{tcp6}"), "tcp6"),
]


def named_ears(probes: list[tuple[Probe, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("probe", "ear"), probes, ids=[probe.name for probe, _ in probes])


@named_ears(DIRECT + (DIRECT_V6 if HAS_V6 else []))
async def test_nobody_on_the_host_is_reached(
    probe: Probe, ear: str, all_kernels: Kernels, host: Host, table: list[Row]
):
    await control(probe, all_kernels.plain, host, ear)

    outcome = await is_silent(probe, all_kernels.sandboxed, host, ear)
    await is_silent(probe, all_kernels.restricted, host, ear)

    held(table, "Network", probe, "reached", outcome)


PACKETS = [
    Probe("raw sockets", network_attacks.raw_packets),
    Probe("packet sockets", network_attacks.packets),
]


@named([Probe("ICMP to the host's own address", network_attacks.icmp, ("{own}",)), *(PACKETS if kernels.ROOT else [])])
async def test_no_packet_leaves(probe: Probe, all_kernels: Kernels, host: Host, table: list[Row]):
    outside = await say(probe, all_kernels.plain, host, "")
    assert outside.got, f"the attack does not work where nothing stops it: {outside}"

    within = await say(probe, all_kernels.sandboxed, host, "")

    if OWN_V4 != "127.0.0.1" or not probe.arguments:
        assert within.got is None
    held(table, "Network", probe, outside.got, within)


async def test_there_is_no_route(all_kernels: Kernels, table: list[Row]):
    probe = Probe("finding a route", network_attacks.routes)
    outside = await all_kernels.plain.run(probe.attack)
    assert outside.got, f"this machine has no route itself: {outside}"

    for kernel in (all_kernels.sandboxed, all_kernels.restricted, all_kernels.opened):
        assert await kernel.run(probe.attack) == Outcome("")
        assert await kernel.run(network_attacks.interfaces) == Outcome("")

    held(table, "Network", probe, "routes", "none, and no interface but loopback")


@pytest.mark.parametrize(
    "address",
    [
        *("169.254.169.254", "169.254.170.2", "fd00:ec2::254", "100.100.100.200", "168.63.129.16"),
        *("8.8.8.8", "1.1.1.1", "10.0.0.1", "172.17.0.1", "192.168.0.1", "2001:4860:4860::8888", OWN_V4),
    ],
)
async def test_addresses_have_no_way_to_them(address: str, all_kernels: Kernels, table: list[Row]):
    assert (await all_kernels.plain.run(network_attacks.reachable, OWN_V4)).got == OWN_V4

    within = await all_kernels.sandboxed.run(network_attacks.reachable, address)

    assert within == Outcome("" if address != "127.0.0.1" else address)
    held(table, "Network", Probe(f"a way to {address}", network_attacks.reachable), "(its own address)", "unreachable")


async def test_names_are_not_resolved(all_kernels: Kernels, table: list[Row]):
    probe = Probe("resolving a name", network_attacks.resolve, ("example.org",))

    within = await all_kernels.sandboxed.run(probe.attack, *probe.arguments)

    assert within.got is None
    assert within.error.startswith("gaierror")
    held(table, "Network", probe, "(see DNS)", within)


async def test_of_all_ports_only_the_tool_port_leads_out(all_kernels: Kernels, host: Host, table: list[Row]):
    """All ports that are found on the host are tried, and all that are found inside; the latter are accounted for."""
    kernel = all_kernels.sandboxed
    on_the_host = (await all_kernels.plain.run(network_attacks.listening_ports)).got or ""
    assert host.names["tcp"] in on_the_host.split()
    assert (await all_kernels.plain.run(network_attacks.open_ports, host.names["tcp"])).got == host.names["tcp"]
    inside = set(((await kernel.run(network_attacks.listening_ports)).got or "").split())

    answered = await kernel.run(network_attacks.open_ports, *on_the_host.split(), *inside)

    channels = set(((await kernel.run(network_attacks.kernel_ports)).got or "").split())
    proxies = set(map(str, network_attacks.PROXY_PORTS))
    tool_port = (await kernel.executor.execute("import os; print(os.environ['TOOL_SERVER_PORT'])")).text
    assert answered.got is not None
    assert set(answered.got.split()) <= inside
    assert inside - channels - proxies == {tool_port}
    held(table, "Network", Probe("trying all ports", network_attacks.open_ports), "reached", "the tool port alone")


# --- through the proxies of srt

PROXIED: list[tuple[Probe, str]] = [
    *(
        (probe(f"{how} to {host}", attack, host, "{tcp}"), "tcp")
        for how, attack in (
            ("CONNECT", network_attacks.connect_method),
            ("a proxied GET", network_attacks.proxied_get),
            ("SOCKS", network_attacks.socks),
        )
        for host in ("localhost", "127.0.0.1")
    ),
    (probe("CONNECT to the host's own address", network_attacks.connect_method, "{own}", "{tcp}"), "tcp"),
    (probe("SOCKS to an address of loopback", network_attacks.socks_to_an_address, "127.0.0.1", "{tcp}"), "tcp"),
    (probe("SOCKS to the host's own address", network_attacks.socks_to_an_address, "{own}", "{tcp}"), "tcp"),
    (
        probe(
            "SOCKS to a name with a null byte", network_attacks.socks_with_a_null_byte, ALLOWED, "127.0.0.1", "{tcp}"
        ),
        "tcp",
    ),
    (
        probe(
            "a proxied GET with an allowed Host header",
            network_attacks.proxied_get_with_another_host,
            *("127.0.0.1", "{tcp}", ALLOWED),
        ),
        "tcp",
    ),
    (
        probe(
            "a second request in an allowed connection",
            network_attacks.second_request,
            *("localhost:{allowed}", "localhost", "{tcp}"),
        ),
        "tcp",
    ),
    (probe("other spellings of loopback", network_attacks.other_names_of_loopback, "{tcp}"), "tcp"),
    *(
        [
            (probe("CONNECT to ::1", network_attacks.connect_method, "::1", "{tcp6}"), "tcp6"),
            (probe("SOCKS to ::1", network_attacks.socks_to_an_address, "::1", "{tcp6}"), "tcp6"),
        ]
        if HAS_V6
        else []
    ),
]


@named_ears(PROXIED)
async def test_the_proxies_lead_to_allowed_hosts_only(
    probe: Probe, ear: str, all_kernels: Kernels, host: Host, table: list[Row]
):
    await control(probe, all_kernels.opened, host, ear)

    outcome = await is_silent(probe, all_kernels.restricted, host, ear)
    await is_silent(probe, all_kernels.sandboxed, host, ear)

    held(table, "Proxies", probe, "reached, if allowed", outcome)


async def test_an_allowed_port_of_a_host_is_reached(all_kernels: Kernels, host: Host):
    allowed = probe("CONNECT to the allowed port", network_attacks.connect_method, "localhost", "{allowed}")

    await control(allowed, all_kernels.restricted, host, "allowed")
    await is_silent(allowed, all_kernels.sandboxed, host, "allowed")


async def test_probes_of_the_proxies_log_in(all_kernels: Kernels):
    """The proxies' credentials are no secret to the inside: that hosts are refused does not depend on them."""
    for kernel in (all_kernels.opened, all_kernels.restricted):
        assert (await kernel.run(network_attacks.credentials)).got
