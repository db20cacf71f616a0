"""The Jupyter Kernel Gateway inside the gateway process: it listens on no port; connections arrive over the link."""

import logging
import os
import shutil
import socket
import tempfile
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from ipybox.guest.descendants import adopt_orphans, kill_descendants
from ipybox.guest.import_placeholders import placeholders
from ipybox.guest.protocol import DIRECTORY_VARIABLE, MAX_FDS, READY
from ipybox.guest.tools.protocol import TOKEN_VARIABLE
from ipybox.support.gc_pause import gc_paused

with gc_paused(own=True):
    with suppress(ImportError), placeholders():  # other Jupyter versions may not work with them
        import_module("kernel_gateway.gatewayapp")
    from kernel_gateway.gatewayapp import KernelGatewayApp  # pyright: ignore[reportMissingTypeStubs]
    from kernel_gateway.services.kernels.handlers import MainKernelHandler  # pyright: ignore[reportMissingTypeStubs]
    from tornado.httpserver import HTTPServer
    from tornado.ioloop import IOLoop
    from tornado.iostream import IOStream
    from traitlets.config import Config

    from ipybox.guest import provisioner
    from ipybox.guest.kernel_manager import session_variables

#: Maximum bytes of a message from a client: more than the code of any cell needs.
MAX_MESSAGE_BYTES = 1 << 30


class GuestGatewayApp(KernelGatewayApp):
    """A kernel gateway whose connections come from the application over the link."""

    link: socket.socket

    def init_webapp(self) -> None:
        """Sets up the handlers; unlike the gateway's default, they check the Host header of each request."""
        super().init_webapp()
        self.web_app.settings.update(
            allow_remote_access=False,
            local_hostnames=["localhost"],
            websocket_max_message_size=MAX_MESSAGE_BYTES,
        )

    def init_http_server(self) -> None:
        """Creates the HTTP server without a listening socket, and starts to accept connections from the link."""
        self.http_server = HTTPServer(self.web_app)
        loop: Any = IOLoop.current()
        loop.add_handler(self.link.fileno(), self._receive_connections, IOLoop.READ)
        self.link.sendall(READY)
        if (spare := cast(Any, self.kernel_manager).spare) is not None:
            loop.add_callback(spare.start)  # the first request gets it

    def _receive_connections(self, _fd: int, _events: int) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(self.link, 4096, MAX_FDS)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        for fd in fds:
            connection = socket.socket(fileno=fd)
            connection.setblocking(False)
            self.http_server.handle_stream(IOStream(connection), ("127.0.0.1", 0))
        if not data:
            self._end()

    def _end(self) -> None:
        """Kills all kernels and exits immediately, because the application is gone or requests it."""
        kill_descendants()
        shutil.rmtree(self.runtime_dir, ignore_errors=True)
        os._exit(0)


async def start_kernel(handler: Any) -> None:
    """Answers a request for a kernel, which ends at once if its client has disconnected meanwhile.

    The gateway's own method replaces one of the kernel manager's meanwhile, so kernels that start concurrently would
    get each other's variables. https://github.com/jupyter-server/kernel_gateway/pull/133
    """
    given: dict[str, Any] = cast(Any, handler.get_json_body() or {}).get("env") or {}
    session_variables.set({name: given[name] for name in (DIRECTORY_VARIABLE, TOKEN_VARIABLE) if name in given})
    await cast(Any, super(MainKernelHandler, handler)).post()
    if handler.request.connection.stream.closed():
        await handler.kernel_manager.shutdown_kernel(handler._headers["Location"].rpartition("/")[2], now=True)


def gateway_config(runtime_dir: str, log_level: str) -> Config:
    """Returns the configuration of gateway and kernels."""
    config: Any = Config()
    config.GuestGatewayApp.log_level = logging.getLevelNamesMapping()[log_level]
    config.GuestGatewayApp.ws_ping_interval = 0  # end of file reports a lost peer
    config.JupyterWebsocketPersonality.list_kernels = True
    config.ZMQChannelsWebsocketConnection.limit_rate = False  # it would drop output above 1 MB/s
    config.GuestGatewayApp.kernel_manager_class = "ipybox.guest.kernel_manager.GuestMultiKernelManager"
    config.GuestGatewayApp.kernel_websocket_connection_class = "ipybox.guest.kernel_manager.GuestKernelConnection"
    config.MappingKernelManager.kernel_manager_class = "ipybox.guest.kernel_manager.GuestKernelManager"
    config.MappingKernelManager.buffer_offline_messages = False
    # Clients have their own timeouts, after which they shut down the kernel.
    config.MappingKernelManager.kernel_info_timeout = 3600.0
    config.KernelManager.autorestart = False  # only the client restarts a kernel
    config.KernelManager.shutdown_wait_time = 2.0
    # Kernel channels are sockets in a private directory. Where a sandbox blocks AF_UNIX, they are ports of its loopback
    # interface, which is also private.
    config.KernelManager.transport = "ipc" if unix_sockets_work(runtime_dir) else "tcp"
    return config


def unix_sockets_work(directory: str) -> bool:
    """Returns whether this process may create AF_UNIX sockets in `directory`."""
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.bind(str(Path(scratch) / "s"))
        except OSError:
            return False
    return True


def run_gateway(link: socket.socket, runtime_dir: str, log_level: str) -> None:
    """Runs the gateway until the link is closed."""
    # Jupyter's own gateway also causes this warning: its kernel managers emit no events.
    warnings.filterwarnings("ignore", message="KernelManager class .* is not a subclass of 'ServerKernelManager'")
    cast(Any, MainKernelHandler).post = start_kernel
    app = GuestGatewayApp()
    app.link, app.runtime_dir = link, runtime_dir
    app.update_config(gateway_config(runtime_dir, log_level))
    run: Any = app  # its methods are not annotated
    run.initialize([])
    # Otherwise daemons would leave the process tree, and could not be monitored or killed with their kernel.
    adopt_orphans(cast(Any, IOLoop.current()).asyncio_loop, provisioner.running)
    run.start()
