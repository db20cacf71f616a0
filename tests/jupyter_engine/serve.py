"""Runs a Jupyter server on a free port of the loopback interface, and prints the port.

Usage: python serve.py {gateway,server} [DESCRIPTOR] ARGUMENT…

With a descriptor, the server also accepts connections of the socket that it inherits, and prints that one's port.
"""

import socket
import sys
from typing import Any, cast

from tornado.ioloop import IOLoop

sys.modules["rfc3987_syntax"] = None  # pyright: ignore[reportArgumentType] - slow to import, and not needed

_KIND, *_ARGUMENTS = sys.argv[1:]
_INHERITED = socket.socket(fileno=int(_ARGUMENTS.pop(0))) if _ARGUMENTS[0].isdigit() else None

if _KIND == "gateway":
    from kernel_gateway.gatewayapp import KernelGatewayApp as App  # pyright: ignore[reportMissingTypeStubs]
else:
    from jupyter_server.serverapp import ServerApp as App

_app: Any = cast(Any, App).instance()
_app.initialize(_ARGUMENTS)


def _print_port() -> None:
    if _INHERITED is not None:
        _INHERITED.setblocking(False)
        _app.http_server.add_socket(_INHERITED)
    listening = _INHERITED or next(iter(_app.http_server._sockets.values()))
    print(listening.getsockname()[1], flush=True)


cast(Any, IOLoop.current()).add_callback(_print_port)  # Jupyter Server listens when it starts
_app.start()
