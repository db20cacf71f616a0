"""A port of the loopback interface behind which everything is that the repository wants the host to reach.

What it answers: a package index with one harmless package for the user, an MCP server that asks for a sign-in, and
404. A client that uses it as a proxy, or requests a path that begins with `/trap-`, leaves a mark.
"""

import base64
import hashlib
import io
import json
import threading
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

WHEEL = "harmless-1.0-py3-none-any.whl"
_METADATA = "harmless-1.0.dist-info"


class Door:
    """The port.

    Attributes:
        opened: Set when the user's own browser was started.
    """

    def __init__(self, marks: Path):
        self._marks = marks
        self.opened = threading.Event()
        door = self

        class Handler(_Handler):
            def handle_one_request(self) -> None:
                self.door = door
                super().handle_one_request()

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = False
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"

    @contextmanager
    def open(self) -> Generator["Door"]:
        """Answers for the time of the context."""
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def mark(self, name: str) -> None:
        (self._marks / name).write_text("")

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Returns status, content type and body for a path."""
        if path.startswith("/trap-"):
            self.mark(path.split("/")[1])
        if path == "/opened":
            self.opened.set()
        if path == "/index/harmless/":
            return 200, "text/html", f'<a href="/{WHEEL}">{WHEEL}</a>'.encode()
        if path == f"/{WHEEL}":
            return 200, "application/zip", _wheel()
        if path.startswith("/.well-known/oauth-protected-resource"):
            return _json(200, {"resource": f"{self.url}/mcp", "authorization_servers": [self.url]})
        if path.startswith("/.well-known/"):
            endpoints = {
                f"{each}_endpoint": f"{self.url}/{each}" for each in ("authorization", "token", "registration")
            }
            also = {"response_types_supported": ["code"], "code_challenge_methods_supported": ["S256"]}
            return _json(200, {"issuer": self.url, **endpoints, **also})
        return 404, "text/plain", b""


class _Handler(BaseHTTPRequestHandler):
    door: Door
    timeout = 10

    def do_GET(self) -> None:
        self._answer(*self.door.answer(self._path()))

    def do_HEAD(self) -> None:  # as uv asks for a wheel
        self._answer(*self.door.answer(self._path()))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self._path()
        if path == "/mcp":
            self._answer(401, "text/plain", b"")
        elif path == "/registration":
            self._answer(*_json(201, {**json.loads(body), "client_id": "x"}))
        else:
            self._answer(*self.door.answer(path))

    def do_CONNECT(self) -> None:
        self._path()
        self._answer(502, "text/plain", b"")

    def _path(self) -> str:
        """Returns the path of the request, having marked through which proxy it came."""
        kind, _, credentials = self.headers.get("Proxy-Authorization", "").partition(" ")
        if kind == "Basic":
            self.door.mark(base64.b64decode(credentials).decode().partition(":")[0])
        return urlsplit(self.path).path

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        if status == 401:
            metadata = f"{self.door.url}/.well-known/oauth-protected-resource/mcp"
            self.send_header("WWW-Authenticate", f'Bearer resource_metadata="{metadata}"')
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is that of the base
        pass


def _json(status: int, content: dict[str, Any]) -> tuple[int, str, bytes]:
    return status, "application/json", json.dumps(content).encode()


def _wheel() -> bytes:
    files = {
        "harmless.py": "",
        f"{_METADATA}/METADATA": "Metadata-Version: 2.1\nName: harmless\nVersion: 1.0\n",
        f"{_METADATA}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines: list[str] = []
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(text)}")
    files[f"{_METADATA}/RECORD"] = "\n".join([*lines, f"{_METADATA}/RECORD,,", ""])
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for name, text in files.items():
            file.writestr(name, text)
    return archive.getvalue()
