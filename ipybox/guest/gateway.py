"""The gateway process: a Jupyter Kernel Gateway that does not listen on any port.

Its standard input is the link to the application (`ipybox.guest.protocol`): each connection of its HTTP server arrives
there as a descriptor, and end of file tells it to end, with all its kernels. Code in the kernels reaches the
application's tool server through a loopback port; this process gives the listening socket to the application.
"""

import argparse
import json
import logging
import os
import shutil
import socket
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any, cast

from ipybox.support.gc_pause import gc_paused

# jsonschema imports these for its format checks, if they are installed. They are not needed; one takes 1.4 s to compile
# a grammar, the others 0.1 s together.
for unneeded in ("fqdn", "isoduration", "rfc3986_validator", "rfc3987_syntax", "uri_template", "webcolors"):
    sys.modules[unneeded] = None  # type: ignore[assignment]

with gc_paused(own=True):
    from kernel_gateway.gatewayapp import KernelGatewayApp  # pyright: ignore[reportMissingTypeStubs]
    from tornado.httpserver import HTTPServer
    from tornado.ioloop import IOLoop
    from tornado.iostream import IOStream
    from traitlets.config import Config

    from ipybox.guest import kernel_manager
    from ipybox.guest.kernel_manager import GuestKernelManager

from ipybox.guest.protocol import ENVIRONMENT_FILE, LISTENER, MAX_FDS, READY
from ipybox.guest.strays import adopt_orphans, kill_descendants
from ipybox.guest.tools.protocol import TOKEN_VARIABLE

#: Names the program that the host runs for each crash; for root, bubblewrap leaves it writable.
CORE_PATTERN = "/proc/sys/kernel/core_pattern"

#: The largest message that the gateway accepts from its client: the code of a cell, with room to spare.
MAX_MESSAGE_BYTES = 1 << 30


class GuestGatewayApp(KernelGatewayApp):
    """A kernel gateway whose connections come from the application over the link."""

    link: socket.socket
    prespawn: bool

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
        loop.add_handler(self.link.fileno(), self._take_connections, IOLoop.READ)
        self.link.sendall(READY)
        if self.prespawn:
            loop.add_callback(cast(Any, self.kernel_manager).prespawn)

    def _take_connections(self, _fd: int, _events: int) -> None:
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
        """Ends this process with all its kernels, immediately: the application is gone or requests it."""
        kill_descendants()
        shutil.rmtree(self.runtime_dir, ignore_errors=True)
        os._exit(0)


def take_link() -> socket.socket:
    """Takes the link from standard input, so that no kernel inherits it."""
    link = socket.socket(fileno=os.dup(0))
    link.setblocking(False)
    with open(os.devnull, "rb") as devnull:
        os.dup2(devnull.fileno(), 0)
    return link


def offer_tool_port(link: socket.socket) -> int:
    """Gives the application a listening socket on the guest's loopback, and returns its port."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        socket.send_fds(link, [LISTENER], [listener.fileno()])
        return listener.getsockname()[1]


def take_environment(runtime_dir: str) -> dict[str, str]:
    """Returns the environment of kernels, which the application wrote to a file."""
    file = Path(runtime_dir) / ENVIRONMENT_FILE
    environment = json.loads(file.read_text())
    file.unlink()
    return environment


def gateway_config(runtime_dir: str, log_level: str) -> Config:
    """Returns the configuration of gateway and kernels."""
    config: Any = Config()
    config.GuestGatewayApp.log_level = logging.getLevelNamesMapping()[log_level]
    config.GuestGatewayApp.ws_ping_interval = 0  # a lost peer shows as end of file
    config.JupyterWebsocketPersonality.list_kernels = True
    config.JupyterWebsocketPersonality.env_whitelist = [
        TOKEN_VARIABLE
    ]  # variables that a client may set for its kernel
    config.ZMQChannelsWebsocketConnection.limit_rate = False  # it would drop output above 1 MB/s
    config.GuestGatewayApp.kernel_manager_class = "ipybox.guest.kernel_manager.GuestMultiKernelManager"
    config.GuestGatewayApp.kernel_websocket_connection_class = "ipybox.guest.kernel_manager.GuestKernelConnection"
    config.MappingKernelManager.kernel_manager_class = "ipybox.guest.kernel_manager.GuestKernelManager"
    config.MappingKernelManager.buffer_offline_messages = False
    config.KernelManager.shutdown_wait_time = 2.0
    # Kernel channels are files in a private directory, except where a sandbox blocks AF_UNIX; there the
    # loopback interface is private, too.
    config.KernelManager.transport = "ipc" if unix_sockets_work(runtime_dir) else "tcp"
    return config


def unix_sockets_work(directory: str) -> bool:
    """Tells whether this process may make AF_UNIX sockets in `directory`."""
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.bind(str(Path(scratch) / "s"))
        except OSError:
            return False
    return True


def _arguments() -> argparse.Namespace:
    """Returns the arguments with which `kernel_mgr.gateway_launch` starts this process."""
    parser = argparse.ArgumentParser(prog="ipybox.guest.gateway")
    parser.add_argument("--log-level", default="WARNING")
    parser.add_argument("--tools", action="store_true", help="offer a tool server port to kernels")
    parser.add_argument("--prespawn", action="store_true", help="start a kernel for the first request")
    parser.add_argument("--directory", help="where kernels run (default: the working directory)")
    parser.add_argument(
        "--confine", action="store_true", help="give up capabilities and system calls that sandboxed code does not need"
    )
    parser.add_argument(
        "--writable", nargs="*", default=[], help="with --confine: files and directories that stay writable"
    )
    parser.add_argument("--memory-limit", type=int, help="bytes of memory for each process of a kernel")
    parser.add_argument("--process-limit", type=int, help="processes of all kernels")
    parser.add_argument("--proxy", action="store_true", help="pass the proxies of the sandbox to kernels")
    return parser.parse_args()


def main() -> None:
    """Runs the gateway until the link is closed."""
    arguments = _arguments()
    if arguments.confine:
        from ipybox.guest.confine import confine, protect_process
        from ipybox.guest.landlock import restrict_writes

        confine()
        if not restrict_writes(arguments.writable) and os.access(CORE_PATTERN, os.W_OK):
            sys.exit("as root, the sandbox needs Landlock (Linux 5.19 or later): run ipybox as an ordinary user")
        protect_process()
    link = take_link()
    if arguments.directory is not None:
        os.chdir(arguments.directory)
    runtime_dir = os.environ["IPYBOX_RUNTIME_DIR"]
    environment = take_environment(runtime_dir)
    if arguments.proxy:
        environment = dict(os.environ) | environment
    if arguments.tools:
        environment["TOOL_SERVER_HOST"] = "127.0.0.1"
        environment["TOOL_SERVER_PORT"] = str(offer_tool_port(link))
    GuestKernelManager.environment = environment
    GuestKernelManager.memory_limit = arguments.memory_limit
    if arguments.confine:  # without a sandbox it would count all processes of the user
        GuestKernelManager.process_limit = arguments.process_limit

    # Jupyter's own gateway has this warning, too: its kernel managers emit no events.
    warnings.filterwarnings("ignore", message="KernelManager class .* is not a subclass of 'ServerKernelManager'")
    app = GuestGatewayApp()
    app.link, app.prespawn = link, arguments.prespawn
    app.runtime_dir = runtime_dir
    app.update_config(gateway_config(runtime_dir, arguments.log_level))
    run: Any = app  # its methods are not annotated
    run.initialize([])
    # Processes that left the tree could neither be monitored nor ended with their kernel.
    adopt_orphans(cast(Any, IOLoop.current()).asyncio_loop, lambda: kernel_manager.running)
    run.start()


if __name__ == "__main__":
    main()
