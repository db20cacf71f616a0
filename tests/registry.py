"""A registry of npm packages over TLS, with one MCP server, and a node whose global npmrc leads there."""

import hashlib
import io
import json
import os
import shutil
import ssl
import subprocess
import tarfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.servers import WAIT

#: The package, which is an MCP server with one tool.
PACKAGE = "ipybox-hello"

_SERVER = """#!/usr/bin/env node
const results = {
  "tools/list": {tools: [{name: "hello", inputSchema: {type: "object", properties: {}}}]},
  "tools/call": {content: [{type: "text", text: "hello from npx"}]},
};
require("readline").createInterface({input: process.stdin}).on("line", line => {
  const {id, method, params} = JSON.parse(line);
  results.initialize = {
    protocolVersion: params?.protocolVersion, capabilities: {tools: {}}, serverInfo: {name: "hello", version: "1"},
  };
  if (id !== undefined) console.log(JSON.stringify({jsonrpc: "2.0", id, result: results[method] ?? {}}));
}).on("close", () => process.exit());
"""


@dataclass
class Registry:
    """A running registry.

    Attributes:
        url: Its address.
        certificate: The file with the certificate that clients have to believe.
        asked: Set as soon as somebody asks for the package's archive.
        released: The archive is sent once this is set.
    """

    url: str
    certificate: Path
    asked: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)


def archive() -> bytes:
    """Returns the package as npm packs it."""
    manifest = {"name": PACKAGE, "version": "1.0.0", "bin": {PACKAGE: "server.js"}}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in (("package.json", json.dumps(manifest)), ("server.js", _SERVER)):
            info = tarfile.TarInfo(f"package/{name}")
            info.size, info.mode = len(content), 0o755
            tar.addfile(info, io.BytesIO(content.encode()))
    return packed.getvalue()


@contextmanager
def serving(directory: Path) -> Generator[Registry]:
    """Runs a registry; the certificate is made in `directory`."""
    directory.mkdir()
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    command = [*make, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True, timeout=WAIT)
    packed = archive()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, body = 200, b""
            if self.path == f"/{PACKAGE}":
                version = {
                    **{"name": PACKAGE, "version": "1.0.0", "bin": {PACKAGE: "server.js"}},
                    "dist": {
                        "tarball": f"{registry.url}/{PACKAGE}/-/{PACKAGE}-1.0.0.tgz",
                        "shasum": hashlib.sha1(packed, usedforsecurity=False).hexdigest(),
                    },
                }
                answer = {"name": PACKAGE, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
                body = json.dumps(answer).encode()
            elif self.path.endswith(".tgz"):
                registry.asked.set()
                registry.released.wait(4 * WAIT)
                body = packed
            else:
                status = 404
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            """Answers npm's question for security advisories: there are none."""
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Keeps quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    registry = Registry(f"https://127.0.0.1:{server.server_port}", certificate)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        registry.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


def node_with_global_npmrc(prefix: Path, npmrc: str) -> Path:
    """Makes a node whose global npmrc has this content, and returns the directory of its programs.

    npm finds that file by the path of node itself, so node is copied; npm is not.
    """
    (prefix / "bin").mkdir(parents=True)
    (prefix / "etc").mkdir()
    node, npx = (os.path.realpath(shutil.which(name) or name) for name in ("node", "npx"))
    try:
        os.link(node, prefix / "bin" / "node")
    except OSError:
        shutil.copy2(node, prefix / "bin" / "node")
    (prefix / "bin" / "npx").symlink_to(npx)
    (prefix / "etc" / "npmrc").write_text(npmrc)
    return prefix / "bin"
