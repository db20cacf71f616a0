"""The kernel process: IPython's kernel, set up for code actions, and without the user's own configuration.

Usage: python -P -m ipybox.guest.kernel CONNECTION_FILE PARENT_PID MEMORY_LIMIT PROCESS_LIMIT

A limit of 0 means no limit. The connection file is for other programs and lists only the ports. The gateway sends the
kernel its ports, keys and session variables over a channel that no other process can read: standard input, or the
socket on which a forked kernel receives its request (`ipybox.guest.template`).
"""

import asyncio
import atexit
import faulthandler
import importlib
import json
import logging
import os
import signal
import socket
import sys
import time
import warnings
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, cast

from ipybox.guest import descendants
from ipybox.guest.import_placeholders import missing
from ipybox.guest.interrupts import POKE, interrupts_end
from ipybox.guest.kernel_output import KernelOutput
from ipybox.guest.landlock import isolate_process
from ipybox.guest.packages import STDOUT, import_from, keep_bytecode_out_of_git, let_children_import, packages_dir
from ipybox.guest.process import close_input, die_with_parent, do_nothing, end_child, limit_process
from ipybox.guest.protocol import (
    DIRECTORY_VARIABLE,
    ENVIRONMENT,
    INPUTS,
    READ,
    REQUIRE_ESCAPE,
    SHELL_VARIABLE,
    VARIABLE_ERROR,
    VARIABLES,
)
from ipybox.support.gc_pause import gc_paused

# The debugger takes a fifth of the import time, opens a port, and is not offered to people who attach.
with gc_paused(own=True), missing("debugpy"):
    # Imported for its effect: it records that debugpy is missing.
    from ipykernel import debugger as _debugger  # noqa: F401  # pyright: ignore[reportUnusedImport]
    from ipykernel.ipkernel import IPythonKernel
    from ipykernel.kernelapp import IPKernelApp
    from IPython.core.error import StdinNotImplementedError
    from jupyter_client.jsonutil import json_clean, json_default
    from tornado.ioloop import IOLoop
    from traitlets import DottedObjectName, Type
    from traitlets.config import Config

    from ipybox.guest.shell import ZMQInteractiveShell

from ipybox.guest.streams import OutputThread
from ipybox.guest.tracebacks import MAX_TEXT, error_content

logger = logging.getLogger(__name__)

# Bound early, because code may replace `json.dumps` and `json.loads`, which jupyter_client calls for each message.
encode_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=json_default).encode
encode_ascii_json = json.JSONEncoder(default=json_default).encode
decode_json = json.JSONDecoder().decode

#: Seconds to wait for the control thread at exit.
EXIT_GRACE = 1.0

NO_INPUT = (
    "input() is not available because no user can answer it here. Put the value in the code, or ask for it before "
    "running the cell."
)


class GuestKernel(IPythonKernel):
    """Replies to each execution, and then reports that it is idle, even if ipykernel itself fails."""

    shell_class = Type(ZMQInteractiveShell)
    #: What to set before the current request's code runs, and the data of its variables.
    _inputs: tuple[dict[str, Any], list[Any]] | None = None

    async def do_execute(self, code: str, silent: bool, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Executes a cell and returns its reply."""
        shell: Any = self.shell
        number = shell.start_execution()
        execute = partial(cast(Any, super()).do_execute, code, silent, *args, **kwargs)
        try:
            reply = await (execute() if self._inputs is None else self._execute_with_inputs(execute))
            reply["execution_count"] = number
            shell.update_widgets()
            # Displaying the value raised, although the code did not; or the exception's text is too long.
            if reply.get("ename") == "NoneType" or len(reply.get("evalue", "")) > MAX_TEXT:
                reply |= shell.shown or {}
            return reply
        except BaseException as error:
            shell.abandon_execution()
            reply = {"execution_count": number, "payload": shell.payload_manager.read_payload()}
            shell.payload_manager.clear_payload()
            return reply | (shell.shown or error_content(error))
        finally:
            shell.execution_count = number + 1  # which ipykernel publishes with the next cell's code
            shell.streams.restore()

    async def _execute_with_inputs(self, execute: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        from ipybox.guest.variables import environment, set_variables
        from ipybox.support.errors import VariableError

        assert self._inputs is not None
        (inputs, buffers), self._inputs = self._inputs, None
        try:
            set_variables(self.shell, inputs[VARIABLES], buffers)
        except VariableError as error:
            return error_content(error) | {VARIABLE_ERROR: True}
        del buffers  # frees their memory before the cell runs
        with environment(inputs[ENVIRONMENT]):
            return await execute()

    def _cancel_on_sigint(self, future: asyncio.Future[Any]) -> Any:
        return interrupts_end(future)

    async def execute_request(self, stream: Any, ident: Any, parent: Any) -> None:
        """Executes a cell, or reads a variable, and sends the reply."""
        try:
            if READ in parent["content"]:
                self._read_variable(stream, ident, parent)
                return
            inputs = parent["content"].pop(INPUTS, None)
            self._inputs = None if inputs is None else (inputs, parent.pop("buffers"))
            await cast(Any, super()).execute_request(stream, ident, parent)
        except BaseException as error:
            cast(Any, self.session).send(stream, "execute_reply", error_content(error), parent, ident=ident)

    def _read_variable(self, stream: Any, ident: Any, parent: Any) -> None:
        from ipybox.guest.variables import read_reply

        kernel: Any = self
        kernel._publish_execute_input("", parent, kernel.execution_count)  # from here on, an interrupt has an effect
        content, buffers = read_reply(kernel.shell, parent["content"][READ])
        kernel.session.send(stream, "execute_reply", content, parent, ident=ident, buffers=buffers)

    def _process_children(self) -> list[Any]:
        """Returns the processes to end at shutdown; ipykernel would search the whole machine for them."""
        return cast(Any, super())._process_children() if descendants.has_children() else []

    async def dispatch_shell(self, msg: Any, /, *args: Any, **kwargs: Any) -> None:
        """Handles a request, and reports that the kernel is idle even if that fails."""
        try:
            await cast(Any, super()).dispatch_shell(msg, *args, **kwargs)
        except BaseException:
            logger.exception("a request failed")
            cast(Any, self)._publish_status("idle", "shell")


class GuestKernelApp(IPKernelApp):
    """Runs the kernel until it is shut down, whatever user code's tasks do."""

    #: The ports and message keys, from the gateway.
    connection: dict[str, Any]
    outstream_class = DottedObjectName("ipybox.guest.streams.GuestOutStream")
    output: KernelOutput
    #: Carries the session's variables, which the gateway sends when a session uses this kernel.
    session_stream: BinaryIO

    def init_connection_file(self) -> None:
        """Sets ports and keys without reading the file, which other sessions' kernels can write.

        Raises:
            ValueError: If there is no key: the kernel would run anybody's code.
        """
        if not self.connection["key"]:
            raise ValueError("the gateway sent no key")
        cast(Any, self).load_connection_info(self.connection)

    def write_connection_file(self, **kwargs: Any) -> None:
        """Writes nothing: the file must not contain the keys."""

    def load_config_file(self, *args: Any, **kwargs: Any) -> None:
        """Loads no configuration, which code of another session could have written."""

    def _run_startup_files(self) -> None:
        """Runs only the file that PYTHONSTARTUP names: another session's code could have written all others."""
        if startup := os.environ.get("PYTHONSTARTUP"):
            cast(Any, self)._exec_file(startup)

    def init_iopub(self, context: Any) -> None:
        """Starts the thread that sends output to the gateway. ipykernel's own would open two ports."""
        app: Any = self
        app.output.context = context
        app.configure_tornado_logger()
        app.iopub_thread = OutputThread(app.output, app.session)
        app.iopub_thread.start()
        app.iopub_socket = app.iopub_thread.background_socket

    def init_extensions(self) -> None:
        """Sets up this kernel once a session uses it. No message is read before that."""
        with self.session_stream as stream:
            os.environ.update(json.loads(read_line(stream)))
        importlib.invalidate_caches()  # packages may have been installed since
        cast(Any, super()).init_extensions()
        prepare_imports(Path.cwd())
        app: Any = self
        prepare_kernel(app.kernel, app.shell)
        if directory := os.environ.pop(DIRECTORY_VARIABLE, None):
            os.chdir(directory)
            sys.path.insert(0, directory)  # before the workspace

    def start(self) -> None:
        """Runs the kernel. A forked child that returns here, because its code awaits, is terminated."""
        app, process, loop = cast(Any, self), os.getpid(), IOLoop.current()
        os.register_at_fork(after_in_child=loop.stop)
        if app.poller is not None:
            app.poller.start()
        app.kernel.start()
        while not app.kernel.shell.exit_now:  # code can also stop the loop
            try:
                loop.start()
            except (KeyboardInterrupt, SystemExit):
                # asyncio lets these escape from a task, which has then ended. Continue the loop.
                # https://docs.python.org/3/library/asyncio-task.html#asyncio.Task
                logger.debug("a task ended with an exception that asyncio lets through", exc_info=True)
            if os.getpid() != process:
                print("a forked child was terminated when it returned to the kernel's event loop", file=sys.stderr)
                end_child(RuntimeError())


def pack_json(message: object) -> bytes:
    """Returns a message part as JSON, even if its text contains a lone surrogate, which UTF-8 can't encode.

    NaN and the like become text. jupyter_client does the same, but warns in the cell's output.
    """
    try:
        text = encode_json(message)
    except (TypeError, ValueError):
        message = json_clean(message)
        text = encode_json(message)
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return encode_ascii_json(message).encode()


def unpack_json(part: bytes) -> Any:
    """Returns the content of a message part."""
    return decode_json(part.decode(errors="replace"))


def prepare_imports(workspace: Path) -> None:
    """Lets this process and its children import from the workspace and its packages."""
    keep_bytecode_out_of_git(workspace)
    sys.path.insert(0, str(workspace))
    import_from(packages_dir(workspace))
    let_children_import(packages_dir(workspace))


def prepare_kernel(kernel: Any, shell: Any) -> None:
    """Sets up ordered output, no input, and approval of shell commands."""
    kernel.raw_input = kernel.getpass = refuse_input
    os.environ[STDOUT] = str(os.fstat(sys.stdout.fileno()).st_ino)
    atexit.register(finish_control_thread, shell, kernel)
    # `exit()` would let the cell continue, and end the kernel a moment later, during another cell.
    shell.ask_exit = sys.exit
    if (commands := os.environ.pop(SHELL_VARIABLE, None)) is not None:
        from ipybox.guest.shell_commands import control_commands  # takes time that other kernels need not spend

        control_commands(shell, escape_only=commands == REQUIRE_ESCAPE)


def finish_control_thread(shell: Any, kernel: Any) -> None:
    """Lets the control thread finish the shutdown request before ipykernel's own handler stops output.

    Otherwise the thread would wait ten seconds for output that never comes, and the exit would wait for the thread.
    """
    if shell.exit_now and kernel.control_thread is not None:
        kernel.control_thread.join(EXIT_GRACE)


def refuse_input(*_: object, **__: object) -> NoReturn:
    """Fails immediately, because no user could answer."""
    raise StdinNotImplementedError(NO_INPUT)


def kernel_config() -> Config:
    """Returns the configuration of the kernel."""
    config: Any = Config()
    config.InteractiveShell.colors = "nocolor"
    config.HistoryManager.enabled = False
    config.Session.packer = "ipybox.guest.kernel.pack_json"
    config.Session.unpacker = "ipybox.guest.kernel.unpack_json"
    config.GuestKernelApp.log_level = "ERROR"
    config.GuestKernelApp.kernel_class = GuestKernel
    return config


def read_line(stream: BinaryIO) -> bytes:
    """Returns the next message; ends this process if the gateway no longer needs the kernel, or has ended."""
    line = stream.readline()
    if not line.endswith(b"\n"):
        os._exit(0)
    return line


def main(connection: dict[str, Any], output: KernelOutput, session_stream: BinaryIO) -> None:
    """Runs the kernel until it is shut down or its gateway ends; the arguments are attributes of `GuestKernelApp`."""
    connection_file, parent_pid, memory, processes = sys.argv[1:]
    die_with_parent(int(parent_pid))
    isolate_process()
    limit_process(memory=int(memory) or None, processes=int(processes) or None)
    # IPython recommends `exit` even to cells that called it.
    warnings.filterwarnings("ignore", message="To exit: use")
    # An interrupt may arrive between calling this coroutine and its first step; the cell's error is enough.
    warnings.filterwarnings("ignore", message=r"coroutine '\w+\.run_cell_async' was never awaited")
    cast(Any, IOLoop).time = staticmethod(time.time)  # even if a test mocks `time.time`
    app: Any = GuestKernelApp.instance(config=kernel_config())  # its methods are not annotated
    app.connection, app.output, app.session_stream = connection, output, session_stream
    app.initialize(["-f", connection_file])
    # A crash in native code prints where the code was.
    cast(Any, faulthandler).enable(sys.__stderr__, all_threads=False)
    app.log.setLevel(app.log_level)  # traitlets creates a record for each message, and its handler drops most of them
    signal.signal(POKE, do_nothing)
    app.start()


def run_as_program() -> None:
    """Runs a kernel as a program, whose standard input replaces the socket of a forked kernel."""
    with socket.socket(fileno=os.dup(0)) as channel:
        output = KernelOutput(channel)
        stream = channel.makefile("rb")
    connection: dict[str, Any] = json.loads(read_line(stream))["connection"]
    close_input()
    main(connection, output, stream)


if __name__ == "__main__":
    run_as_program()
