"""The kernel process: IPython's kernel with ipybox's extension, and nothing of the user's own configuration.

Usage: python -P -m ipybox.guest.kernel CONNECTION_FILE PARENT_PID MEMORY_LIMIT PROCESS_LIMIT

A limit of 0 is none.
"""

import asyncio
import json
import signal
import socket
import sys
import warnings
from typing import Any, cast

from ipybox.guest.process import die_with_parent
from ipybox.guest.rlimits import limit_process
from ipybox.loading import loading

with loading():
    from ipykernel import kernelapp
    from ipykernel.iostream import IOPubThread
    from ipykernel.ipkernel import IPythonKernel
    from ipykernel.kernelapp import IPKernelApp
    from jupyter_client.jsonutil import json_default
    from jupyter_client.session import json_packer
    from tornado.ioloop import IOLoop
    from traitlets.config import Config


class PrivateIOPubThread(IOPubThread):
    """Publishes output, without the loopback port on which ipykernel takes the output of forked children.

    Their text goes to the file descriptors instead, in order (`ipybox.guest.streams`); their displays are dropped.
    """

    def _setup_pipe_in(self) -> None:
        """Opens no port."""

    def _really_send(self, msg: Any, *args: Any, **kwargs: Any) -> None:
        if self._is_master_process():
            cast(Any, super())._really_send(msg, *args, **kwargs)


class GuestKernel(IPythonKernel):
    """Replies to each execution, also to one that is interrupted just before its code runs or after."""

    async def execute_request(self, stream: Any, ident: Any, parent: Any) -> None:
        """Executes a cell; ipykernel itself would leave out the reply, and the cell would never end."""
        try:
            await cast(Any, super()).execute_request(stream, ident, parent)
        except KeyboardInterrupt:
            name = "KeyboardInterrupt"
            error = {"status": "error", "ename": name, "evalue": "", "traceback": [name]}
            cast(Any, self.session).send(stream, "execute_reply", error, parent, ident=ident)


class GuestKernelApp(IPKernelApp):
    """Publishes all output, however far its reader is behind: ZeroMQ would drop messages from the 1,000th on.

    https://libzmq.readthedocs.io/en/latest/zmq_setsockopt.html
    """

    def init_iopub(self, context: Any) -> None:
        """Opens the socket for output."""
        context.sndhwm = 0
        cast(Any, super()).init_iopub(context)


def pack_json(message: object) -> bytes:
    """Returns a message part as JSON, also where its text holds a lone surrogate, which UTF-8 can't encode."""
    try:
        return json_packer(message)
    except UnicodeEncodeError:
        return json.dumps(message, default=json_default).encode()


def kernel_config() -> Config:
    """Returns the configuration of the kernel."""
    config: Any = Config()
    config.InteractiveShellApp.extensions = ["ipybox.guest.extension"]
    config.InteractiveShell.colors = "nocolor"
    config.HistoryManager.enabled = False
    config.Session.packer = "ipybox.guest.kernel.pack_json"
    config.GuestKernelApp.log_level = "ERROR"
    config.GuestKernelApp.kernel_class = GuestKernel
    return config


def wake_at_signals(loop: asyncio.AbstractEventLoop) -> None:
    """Makes each signal wake the event loop, so that an interrupt reaches a cell that awaits something.

    ipykernel's handler cancels such a cell by `IOLoop.add_callback`, which wakes nobody when it is called in the
    loop's own thread: the cell would go on until the loop has something else to do.
    """
    woken, waking = socket.socketpair()
    for end in (woken, waking):
        end.setblocking(False)
    loop.add_reader(woken, woken.recv, 4096)
    signal.set_wakeup_fd(waking.detach(), warn_on_full_buffer=False)


def main() -> None:
    """Runs the kernel until it is shut down or its gateway ends."""
    connection_file, parent_pid, memory, processes = sys.argv[1:]
    die_with_parent(int(parent_pid))
    limit_process(memory=int(memory) or None, processes=int(processes) or None)
    # ipykernel warns about unencrypted TCP, which is used only on the loopback interface of a sandbox.
    warnings.filterwarnings("ignore", message="Kernel is running over TCP without encryption")
    cast(Any, kernelapp).IOPubThread = PrivateIOPubThread
    app: Any = GuestKernelApp.instance(config=kernel_config())  # its methods are not annotated
    app.initialize(["-f", connection_file])
    wake_at_signals(cast(Any, IOLoop.current()).asyncio_loop)
    app.start()


if __name__ == "__main__":
    main()
