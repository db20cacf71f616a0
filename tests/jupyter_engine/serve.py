"""Runs a Jupyter server on a free port of the loopback interface, and prints the port.

Usage: python serve.py {gateway,server} ARGUMENT…
"""

import sys
from typing import Any, cast

from tornado.ioloop import IOLoop

sys.modules["rfc3987_syntax"] = None  # pyright: ignore[reportArgumentType] - slow to import, and not needed

_KIND, *_ARGUMENTS = sys.argv[1:]

if _KIND == "gateway":
    from kernel_gateway.gatewayapp import KernelGatewayApp as App  # pyright: ignore[reportMissingTypeStubs]
else:
    from jupyter_server.serverapp import ServerApp as App

_app: Any = cast(Any, App).instance()
_app.initialize(_ARGUMENTS)


def _print_port() -> None:
    print(next(iter(_app.http_server._sockets.values())).getsockname()[1], flush=True)


cast(Any, IOLoop.current()).add_callback(_print_port)  # Jupyter Server listens when it starts
_app.start()
