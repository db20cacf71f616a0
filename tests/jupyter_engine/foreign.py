"""Jupyter servers that are not ipybox's, for kernels there, and a connection to them that can be cut."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.servers import WAIT

TOKEN = "not-to-be-seen-anywhere"

#: Has a server pass on all output, as ipybox requires.
UNLIMITED = "--ZMQChannelsWebsocketConnection.limit_rate=False"

Kind = Literal["gateway", "server"]


@dataclass
class JupyterServer:
    """A server that runs.

    Attributes:
        port: Its port of the loopback interface.
        token: Its token.
        url: Its URL.
    """

    port: int
    token: str = TOKEN
    scheme: str = "http"
    path: str = ""

    @property
    def url(self) -> str:
        return f"{self.scheme}://localhost:{self.port}{self.path}"

    def through(self, wire: "Wire") -> str:
        """Returns its URL by way of a connection that can be cut."""
        return f"{self.scheme}://127.0.0.1:{wire.port}{self.path}"


@asynccontextmanager
async def jupyter(
    directory: Path,
    kind: Kind = "gateway",
    *,
    limits: Sequence[str] = (UNLIMITED,),
    certificate: Path | None = None,
    python: Path | str = sys.executable,
    env: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
) -> AsyncGenerator[JupyterServer]:
    """Runs a Kernel Gateway or a Jupyter Server, whose kernels have `directory` as their working directory.

    Args:
        directory: The directory.
        kind: Which of the two.
        limits: Options about the rate of output; with none, the server limits it, as it does by default.
        certificate: Its certificate and key, for TLS.
        python: The Python in whose environment it is installed.
        env: Environment variables in addition to those of this process.
        prefix: A command that runs the server, which may do so in another network namespace: the server gets a socket
            that listens in this one.
    """
    arguments = [*limits]
    if kind == "gateway":
        app = "KernelGatewayApp"
        arguments += [f"--{app}.auth_token={TOKEN}"]
    else:
        app = "ServerApp"
        arguments += ["--allow-root", "--no-browser", f"--IdentityProvider.token={TOKEN}"]
        arguments += [f"--{app}.base_url=/user/me/", f"--{app}.root_dir={directory}"]
    arguments += [f"--{app}.port=0", f"--{app}.ip=127.0.0.1", f"--{app}.port_retries=0"]
    if certificate is not None:
        arguments += [f"--{app}.certfile={certificate}", f"--{app}.keyfile={certificate}"]
    private = {"JUPYTER_RUNTIME_DIR": str(directory), "JUPYTER_CONFIG_DIR": str(directory)}
    script = str(Path(__file__).with_name("serve.py"))
    log = directory / f"{kind}.log"
    with log.open("w") as written, socket.create_server(("127.0.0.1", 0)) as listener:
        inherited = [listener.fileno()] if prefix else []
        process = await asyncio.create_subprocess_exec(
            *(*prefix, str(python), script, kind, *map(str, inherited), *arguments),
            cwd=directory,
            env={**os.environ, **private, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=written,
            pass_fds=inherited,
        )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(3 * WAIT):
            line = await process.stdout.readline()
        assert line, log.read_text()
        path = "" if kind == "gateway" else "/user/me"
        yield JupyterServer(int(line), scheme="http" if certificate is None else "https", path=path)
    finally:
        with suppress(ProcessLookupError):
            process.terminate()  # it ends its kernels
        await process.wait()


class Wire:
    """Passes connections on to a port, until they are cut."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        #: Whether new connections are closed at once.
        self.down = False
        self.port = 0

    def cut(self) -> None:
        """Breaks all connections."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator["Wire"]:
        """Accepts connections in the context."""
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.cut()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await server.wait_closed()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.down:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        there, to_there = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers |= {writer, to_there}
        await asyncio.gather(self._copy(reader, to_there), self._copy(there, writer))
        self._writers -= {writer, to_there}
        self._tasks.discard(task)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.transport.abort()
