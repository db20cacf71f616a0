"""The kernel's half of the comm between a kernel of another Jupyter server and the application.

`ipybox.jupyter_engine.bridge` runs this source in the first cell, as the module `ipybox_comm`. It imports the standard
library only, and also runs on a Python that is too old for ipybox, which the application then reports.

Out go `comm_msg` messages on IOPub, in come `comm_msg` messages on the control channel, which ipykernel serves on a
thread of its own, so also while a cell runs. Each has an operation (`op`), and bytes as its buffer:

    kernel → application    call      one part of the request of a tool call: id, n of `of`
                            withdraw  the result of a call is not needed anymore
                            got       the result of a call has arrived
                            done, failed    the answer to setup, files, probe or ping
    application → kernel    ack       the whole request of a call has arrived: it need not be repeated
                            reply     one part of the result of a call: id, n of `of`, HTTP status
                            setup, files, probe, ping

IOPub may drop messages. Therefore a call is repeated until it is acknowledged; the application runs an id only once.
"""

from __future__ import annotations

import atexit
import hashlib
import io
import os
import platform
import shutil
import sys
import tempfile
import time
import zipfile
from importlib import invalidate_caches
from importlib.util import find_spec
from typing import Any, Callable, Sequence  # noqa: UP035 - as `bridge` also runs on old versions of Python

import zmq

#: Bytes in one message: servers accept 10 MiB from a client.
PART_BYTES = 1 << 20

#: Fields of an `execute_request` that `ipybox.guest.protocol` has, which is sent later, and of its reply.
INPUTS, READ = "ipybox_inputs", "ipybox_read"

#: Seconds after which a call that was not acknowledged is repeated, and fails.
RESEND, GIVE_UP = 2.0, 60.0


class Call:
    """A tool call that waits for its result."""

    def __init__(self, call_id: str, parts: Sequence[memoryview], on_done: Callable[[], object]):
        self.id = call_id
        self.parts = parts
        self.begun = time.monotonic()
        self.acknowledged = False
        #: The parts of the result that have arrived.
        self.answer: dict[int, bytes] = {}
        self._waiting = [on_done]
        self._result = (0, b"")
        self._error = ""

    @property
    def settled(self) -> bool:
        """Whether there is a result or an error."""
        return not self._waiting

    def settle(self, result: tuple[int, bytes] = (0, b""), error: str = "") -> None:
        """Ends the wait with a result or an error, unless it has ended."""
        try:
            on_done = self._waiting.pop()  # only one thread can
        except IndexError:
            return
        self._result, self._error = result, error
        on_done()

    def outcome(self) -> tuple[int, bytes]:
        """Returns the HTTP status and the body of the result.

        Raises:
            ConnectionError: If the call failed without one.
        """
        if self._error:
            raise ConnectionError(self._error)
        return self._result


class Bridge:
    """Sends tool calls to the application, and does what the application orders.

    Args:
        kernel: The kernel of ipykernel.
        comm_id: The id of the comm, which the application knows.
        inherited: The handler of other messages of this type, if there is one.
        execute: The kernel's handler of cells.
        directory: The directory for files, if there is one.
    """

    def __init__(self, kernel: Any, comm_id: str, inherited: Any, execute: Any, directory: str):
        self.kernel = kernel
        self.comm_id = comm_id
        self.process = os.getpid()
        self.calls: dict[str, Call] = {}
        self.archive: dict[int, bytes] = {}
        self.directory = directory
        self.inherited = inherited
        self.execute = execute
        self.handlers: dict[str, Callable[[Any, Any], dict[str, Any] | None]] = {
            "ack": self.on_ack,
            "reply": self.on_reply,
            "setup": self.on_setup,
            "files": self.on_files,
            "probe": self.on_probe,
            "ping": self.on_ping,
        }

    def take(self, stream: Any, ident: Any, message: Any) -> Any:
        """Handles a message of the control channel, on the thread of that channel."""
        content = message["content"]
        if content.get("comm_id") != self.comm_id:
            return None if self.inherited is None else self.inherited(stream, ident, message)
        order = content["data"]
        try:
            answer = self.handlers[order["op"]](order, message)
        except Exception as error:
            self.send({"op": "failed", "text": f"{type(error).__name__}: {error}"}, parent=message)
        else:
            if answer is not None:
                self.send(dict(answer, op="done"), parent=message)
        return None

    def send(self, data: dict[str, Any], parent: Any = None, buffers: Any = None) -> None:
        """Sends a message to the application; any thread may."""
        kernel = self.kernel
        content = {"comm_id": self.comm_id, "data": data}
        topic = ("comm-" + self.comm_id).encode()
        kernel.session.send(kernel.iopub_socket, "comm_msg", content, parent=parent, ident=topic, buffers=buffers)

    def send_after_output(self, send: Callable[[], object]) -> None:
        """Has the output until now sent and then `send` called, without waiting for it.

        The thread of IOPub does one after the other: to send from here would come before what it has yet to flush.
        """
        for stream in (sys.stdout, sys.stderr):
            publisher: Any = getattr(stream, "pub_thread", None)
            if publisher is not None and not stream.closed:
                publisher.schedule(getattr(stream, "_flush"))  # noqa: B009 - only the streams of ipykernel have it
        self.kernel.iopub_thread.schedule(send)

    # Tool calls, from threads of the user.

    def begin(self, body: bytes, on_done: Callable[[], object]) -> Call:
        """Sends the request of a tool call; `on_done` is called on any thread when there is a result."""
        if os.getpid() != self.process:
            raise ConnectionError("a process that code starts can't call tools here: call them in the kernel itself")
        view = memoryview(body)
        parts = [view[start : start + PART_BYTES] for start in range(0, len(view), PART_BYTES)] or [view]
        call = Call(os.urandom(16).hex(), parts, on_done)
        self.calls[call.id] = call
        self.send_after_output(lambda: self.transmit(call))
        return call

    def transmit(self, call: Call) -> None:
        """Sends the request, or sends it again; gives up on an application that does not answer."""
        if time.monotonic() - call.begun > GIVE_UP:
            call.settle(error=f"the application did not answer within {GIVE_UP:g} s")
            return
        for number, part in enumerate(call.parts):
            self.send({"op": "call", "id": call.id, "n": number, "of": len(call.parts)}, buffers=[part])

    def withdraw(self, call: Call) -> None:
        """Forgets a call, and withdraws it if it has no result."""
        if self.calls.pop(call.id, None) is not None and not call.settled:
            # In the way of the call itself, which it must not overtake.
            self.kernel.iopub_thread.schedule(lambda: self.send({"op": "withdraw", "id": call.id}))

    # Orders of the application, on the control thread.

    def on_ack(self, order: Any, message: Any) -> None:
        """Notes that a call need not be repeated."""
        call = self.calls.get(order["id"])
        if call is not None:
            call.acknowledged = True

    def on_reply(self, order: Any, message: Any) -> None:
        """Adds one part of a result; acknowledges the last one, also if it is a repetition."""
        call = self.calls.get(order["id"])
        if call is None:
            self.send({"op": "got", "id": order["id"]})
            return
        call.acknowledged = True
        call.answer[order["n"]] = bytes(message["buffers"][0])
        if len(call.answer) == order["of"]:
            body = b"".join(call.answer[number] for number in range(order["of"]))
            self.send({"op": "got", "id": call.id})
            call.settle(result=(order["status"], body))

    def on_setup(self, order: Any, message: Any) -> dict[str, Any]:
        """Sets the environment variables of the application, and describes the kernel."""
        os.environ.update(order["env"])
        self.keep_output()
        has_pydantic = find_spec("pydantic") is not None
        return {"python": list(sys.version_info[:2]), "host": platform.node(), "pydantic": has_pydantic}

    def on_files(self, order: Any, message: Any) -> dict[str, Any]:
        """Adds one part of an archive; the last one replaces the files that code imports."""
        if order["n"] == 0:  # the rest of an earlier one will not come
            self.archive = {}
        self.archive[order["n"]] = bytes(message["buffers"][0])
        if len(self.archive) < order["of"]:
            return {}
        data = b"".join(self.archive[number] for number in range(order["of"]))
        self.archive = {}
        if hashlib.sha256(data).hexdigest() != order["sha256"]:
            raise ValueError("the archive arrived incomplete")
        self.replace_files(data)
        return {}

    def on_probe(self, order: Any, message: Any) -> dict[str, Any]:
        """Prints as much as the application wants, to show whether the server passes all of it on."""
        text = "x" * order["characters"]
        for _ in range(order["messages"]):
            content = {"name": "stdout", "text": text}
            self.kernel.session.send(self.kernel.iopub_socket, "stream", content, parent=message, ident=b"stream")
        return {}

    def on_ping(self, order: Any, message: Any) -> dict[str, Any]:
        """Shows that this kernel has the state that the application expects."""
        self.keep_output()
        return {}

    def keep_output(self) -> None:
        """Keeps all output for the server, which may be on another host or have connected again.

        By default, ZeroMQ drops messages for a connection that is 1,000 behind.
        """
        thread = getattr(self.kernel.iopub_socket, "io_thread", None)  # only it may use the socket
        if thread is not None:
            thread.schedule(lambda: thread.socket.setsockopt(zmq.SNDHWM, 0))

    def replace_files(self, data: bytes) -> None:
        """Replaces the files below the directory that code imports from."""
        if not self.directory:
            self.directory = tempfile.mkdtemp(prefix="ipybox-kernel-")
            sys.path.insert(0, self.directory)
            atexit.register(remove, self.directory, self.process)
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
            for name in names:
                path = os.path.join(self.directory, *name.split("/"))
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path + ".new", "wb") as file:
                    file.write(archive.read(name))
                os.replace(path + ".new", path)
        wanted = {os.path.join(self.directory, *name.split("/")) for name in names}
        for parent, _, files in os.walk(self.directory):
            for name in files:
                path = os.path.join(parent, name)
                if path not in wanted and not name.endswith(".pyc"):
                    os.remove(path)
        invalidate_caches()

    # Variables of the application, on the thread of cells.

    def take_execution(self, stream: Any, ident: Any, message: Any) -> Any:
        """Handles a cell, which may have variables, or a request to read one."""
        content = message["content"]
        if READ not in content and INPUTS not in content:
            return self.execute(stream, ident, message)
        try:
            if READ in content:
                reply, buffers = self.read(content[READ], message)
                self.kernel.session.send(stream, "execute_reply", reply, message, ident=ident, buffers=buffers)
                return None
            inputs = content.pop(INPUTS)
            self.set_variables(inputs["variables"], message["buffers"])
        except BaseException as error:  # whatever it is, and also an interrupt: the application waits for a reply
            self.kernel.session.send(stream, "execute_reply", failure(error), message, ident=ident)
            return None
        return self.execute_with(inputs["environment"], stream, ident, message)

    def read(self, name: str, message: Any) -> Any:
        """Returns the reply with a variable, and its data."""
        from ipybox.guest.variables import read_reply

        # From here on, an interrupt has an effect.
        getattr(self.kernel, "_publish_execute_input")("", message, self.kernel.execution_count)  # noqa: B009
        return read_reply(self.kernel.shell, name)

    def set_variables(self, entries: Any, buffers: Any) -> None:
        """Sets variables of the user, all or none."""
        from ipybox.guest.variables import set_variables

        set_variables(self.kernel.shell, entries, buffers)

    async def execute_with(self, env: Any, stream: Any, ident: Any, message: Any) -> None:
        """Executes a cell with environment variables."""
        from ipybox.guest.variables import environment

        with environment(env):
            handled = self.execute(stream, ident, message)
            if hasattr(handled, "__await__"):
                await handled

    def end(self) -> None:
        """Fails all calls, as another application has taken over the kernel."""
        for call in list(self.calls.values()):
            call.settle(error="another application has taken over the kernel")


#: The bridge of this kernel, which `install` makes.
bridge: Bridge


def failure(error: BaseException) -> dict[str, Any]:
    """Returns the reply that a variable could not be set or read."""
    text = str(error) if type(error).__name__ == "VariableError" else f"{type(error).__name__}: {error}"
    reply: dict[str, Any] = {"status": "error", "ename": "VariableError", "evalue": text, "traceback": []}
    return dict(reply, ipybox_variable_error=text)


def remove(directory: str, process: int) -> None:
    """Removes the files of a kernel that exits, but not for a child that it has forked."""
    if os.getpid() == process:
        shutil.rmtree(directory, ignore_errors=True)


def install(kernel: Any, comm_id: str) -> None:
    """Makes a new bridge in place of that of another application, if there is one."""
    global bridge
    inherited, directory = kernel.control_handlers.get("comm_msg"), ""
    execute = kernel.shell_handlers["execute_request"]
    previous: Any = getattr(inherited, "__self__", None)
    if hasattr(previous, "inherited"):
        inherited, execute, directory = previous.inherited, previous.execute, previous.directory
        previous.end()
    bridge = Bridge(kernel, comm_id, inherited, execute, directory)
    kernel.control_handlers["comm_msg"] = bridge.take
    kernel.shell_handlers["execute_request"] = bridge.take_execution
