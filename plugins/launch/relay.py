"""Answers an MCP client within milliseconds, and connects it to the server as soon as the server runs.

    relay.py [--greeted] COMMAND ...

COMMAND builds the environment, then becomes the server, which speaks MCP on stdin and stdout. Until it answers
`initialize`, it may send progress with the token below. If it answers with an error or exits, calls return the reason,
and the next call starts it again.

    until the server runs     `initialize`, `tools/list` and `ping` are answered from server.json; others wait
    from then on              bytes are copied, both ways

The server receives the client's own `initialize`; its response is not passed on. Other messages follow in order.
If the server's tools differ from those of server.json, the relay notifies the client. The server ends with this
process, even if that is killed, because its stdin closes.

Runs with Python 3.8 or later, because it also reports that a newer Python is missing. With `--greeted`, the client
already has the response to its first message, `initialize`.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn, cast

if TYPE_CHECKING:
    Message = dict[str, Any]

#: The server's first responses; a test compares them with the server.
STATIC = Path(__file__).absolute().with_name("server.json")

#: Maximum seconds that a call waits for the server. Claude Code gives up on a call after MCP_TOOL_TIMEOUT milliseconds.
MAX_WAIT = 300.0
MARGIN = 5.0

#: Bytes of the server's stderr that are kept; the last line says why it exited.
KEPT_ERRORS = 4096

#: Ids of the relay's own requests, and the progress token of the setup.
INITIALIZE, LIST_TOOLS, TOKEN = "ipybox-initialize", "ipybox-tools", "ipybox-set-up"

METHOD_NOT_FOUND, INTERNAL_ERROR = -32601, -32603


class Lines:
    """Splits bytes into lines; `pending` is the beginning of an incomplete one."""

    pending = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Returns the lines that these bytes complete."""
        *lines, self.pending = (self.pending + data).split(b"\n")
        return lines


class Held:
    """A client's message that waits for the server."""

    def __init__(self, line: bytes, message: Message, patience: float):
        self.line, self.id, self.method = line, message.get("id"), message["method"]
        self.token = members(members(message.get("params")).get("_meta")).get("progressToken")
        self.received = time.monotonic()
        self.deadline = self.received + patience


class Relay:
    """Connects one client to its server.

    Args:
        command: The command that becomes the server.
        greeted: Whether the client already has the response to its first message.
    """

    def __init__(self, command: list[str], greeted: bool):
        self._command, self._greeted = command, greeted
        static = json.loads(STATIC.read_bytes())
        self._versions, self._tools = static["protocolVersions"], static["tools"]
        self._initialize = static["initialize"]
        # The client reads resources only if the user wants that, see `ipybox.mcp_server.tools`.
        self._resources = "--resources=true" in command
        self._patience = MAX_WAIT
        if (limit := os.environ.get("MCP_TOOL_TIMEOUT", "")).isdigit() and int(limit) > 0:
            self._patience = max(min(MAX_WAIT, int(limit) / 1000 - MARGIN), 1.0)
        self._client, self._answers = Lines(), Lines()
        self._hello: Message | None = None
        self._initialized = False
        self._held: list[Held] = []
        self._status = "the server is starting"
        self._server: subprocess.Popen[bytes] | None = None
        self._stderr_tail = b""
        self._stderr: threading.Thread | None = None
        self._ready = False

    def run(self) -> int:
        """Serves until the client or the server ends, and returns the exit status."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        self._start()
        while not (self._ready and self._initialized):
            server = self._server
            stdout = None if server is None or server.stdout is None else server.stdout.fileno()
            soonest = min((held.deadline for held in self._held), default=None)
            timeout = None if soonest is None else max(soonest - time.monotonic(), 0)
            readable, _, _ = select.select([0] if stdout is None else [0, stdout], [], [], timeout)
            if stdout in readable:
                self._read_server()
            elif 0 in readable and not self._read_client():
                self._end()
                return 0
            self._expire()
        return self._copy()

    def _start(self) -> None:
        """Starts the command that becomes the server."""
        self._status, self._answers, self._ready = "the server is starting", Lines(), False
        self._server = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        self._stderr_tail = b""
        self._stderr = threading.Thread(target=self._read_stderr, args=(self._server,), daemon=True)
        self._stderr.start()
        self._greet()

    def _greet(self) -> None:
        if self._hello is not None and self._server is not None:
            self._send_server({**self._hello, "id": INITIALIZE})

    def _read_client(self) -> bool:
        """Reads the client's messages; returns whether the client is still connected."""
        data = os.read(0, 1 << 16)
        for line in self._client.feed(data):
            if line.strip():
                self._handle_client(line)
        return bool(data)

    def _handle_client(self, line: bytes) -> None:
        message = parsed(line)
        number, method = message.get("id"), message.get("method")
        if method == "initialize" and number is not None:
            self._answer_initialize(message)
        elif method == "ping" and number is not None:
            self._result(number, {})
        elif method == "tools/list" and number is not None:
            self._result(number, self._tools)
        elif method == "notifications/initialized":
            self._initialized = True
        elif method == "notifications/cancelled" and self._cancel(message):
            pass
        elif method is not None and number is not None and self._hello is None:
            self._error(number, METHOD_NOT_FOUND, "Method not found: begin with initialize")
        elif method is not None:
            self._hold(line, message)

    def _answer_initialize(self, message: Message) -> None:
        params = members(message.get("params"))
        asked, client = params.get("protocolVersion"), members(params.get("clientInfo")).get("name")
        result: Message = {
            "protocolVersion": asked if asked in self._versions else self._versions[-1],
            **self._initialize,
        }
        if self._resources or client != "claude-code":
            result["capabilities"] = {**result["capabilities"], "resources": {}}
        first, self._hello = self._hello is None, message
        if not (first and self._greeted):
            self._result(message["id"], result)
        if first:
            self._greet()

    def _cancel(self, message: Message) -> bool:
        """Drops a request that the client has cancelled, and returns whether it was waiting here."""
        number = members(message.get("params")).get("requestId")
        waiting = [held for held in self._held if held.id is not None and held.id == number]
        self._held = [held for held in self._held if held not in waiting]
        return bool(waiting)

    def _hold(self, line: bytes, message: Message) -> None:
        self._held.append(Held(line, message, self._patience))
        if self._server is None:
            self._start()

    def _read_server(self) -> None:
        assert self._server is not None
        assert self._server.stdout is not None
        data = os.read(self._server.stdout.fileno(), 1 << 16)
        for line in self._answers.feed(data):
            if line.strip() and not self._handle_server(line):
                return
        if not data:
            self._fail(None)

    def _handle_server(self, line: bytes) -> bool:
        """Handles a message from the server; returns whether to continue."""
        message = parsed(line)
        number, params, result = message.get("id"), members(message.get("params")), members(message.get("result"))
        if number == INITIALIZE and "error" in message:
            self._fail(str(members(message["error"]).get("message")))
            return False
        if number == INITIALIZE:
            self._send_server({"method": "notifications/initialized"})
            self._send_server({"id": LIST_TOOLS, "method": "tools/list"})
        elif number == LIST_TOOLS:
            if result.get("tools") != self._tools["tools"]:
                self._tools = result
                self._send({"method": "notifications/tools/list_changed"})
            self._ready = True
        elif message.get("method") == "notifications/progress" and params.get("progressToken") == TOKEN:
            self._report(str(params.get("message")))
        elif message:
            write(1, line + b"\n")
        return True

    def _report(self, status: str) -> None:
        """Reports the progress to waiting calls."""
        self._status = status
        for held in self._held:
            if held.token is not None:
                # As in the server, progress is the time; these values stay below the server's first one, a second.
                passed = round((time.monotonic() - held.received) / (2 * MAX_WAIT), 4)
                params = {"progressToken": held.token, "progress": passed, "message": status}
                self._send({"method": "notifications/progress", "params": params})

    def _fail(self, reason: str | None) -> None:
        """Fails all waiting calls with the reason; the next call tries again."""
        status, self._ready = self._end(), False
        if reason is None:
            said = [line.strip() for line in self._stderr_tail.decode(errors="replace").splitlines() if line.strip()]
            # ipybox's reports begin with its name, and a hint may follow; otherwise, use the end of a traceback.
            reports = [line for line in said if line.startswith("ipybox: ")] or said
            reason = reports[-1] if reports else f"the server exited with status {status}"
        held, self._held = self._held, []
        for each in held:
            self._refuse(each, reason)

    def _expire(self) -> None:
        """Answers calls whose deadline has passed."""
        now = time.monotonic()
        late = [held for held in self._held if held.deadline <= now]
        self._held = [held for held in self._held if held.deadline > now]
        for each in late:
            self._refuse(each, f"ipybox is not ready yet: {self._status}. This continues in the background; call again")

    def _refuse(self, held: Held, reason: str) -> None:
        text = reason if reason.startswith("ipybox") else f"ipybox: {reason}"
        if held.method == "tools/call":
            self._result(held.id, {"content": [{"type": "text", "text": text}], "isError": True})
        elif held.id is not None:
            self._error(held.id, INTERNAL_ERROR, text)

    def _copy(self) -> int:
        """Connects client and server until one of them ends, and returns the exit status of the server."""
        server = self._server
        assert server is not None
        assert server.stdin is not None
        assert server.stdout is not None
        begin = b"".join(held.line + b"\n" for held in self._held) + self._client.pending
        threading.Thread(target=copy, args=(0, server.stdin, begin), daemon=True).start()
        try:
            write(1, self._answers.pending)
            while data := os.read(server.stdout.fileno(), 1 << 16):
                write(1, data)
        except OSError:  # the client is gone
            server.terminate()
        return self._wait(server)

    def _end(self) -> int:
        """Ends the server and returns its exit status. A build continues without it."""
        server, self._server = self._server, None
        if server is None:
            return 0
        server.terminate()
        for stream in (server.stdin, server.stdout):
            if stream is not None:
                stream.close()
        return self._wait(server)

    def _wait(self, server: subprocess.Popen[bytes]) -> int:
        status = server.wait()
        if self._stderr is not None:
            self._stderr.join(1.0)
        return status if status >= 0 else 128 - status

    def _read_stderr(self, server: subprocess.Popen[bytes]) -> None:
        """Copies the server's stderr, and keeps its end."""
        assert server.stderr is not None
        with suppress(OSError):  # the reader is gone
            while data := os.read(server.stderr.fileno(), 1 << 16):
                self._stderr_tail = (self._stderr_tail + data)[-KEPT_ERRORS:]
                write(2, data)

    def _stop(self, number: int, _: object) -> None:
        """Ends this process and the server on a signal."""
        if self._server is not None:
            self._server.send_signal(number if self._ready else signal.SIGTERM)
        if not self._ready:  # otherwise, this process exits when the server's stdout ends
            os._exit(128 + number)

    def _send_server(self, message: Message) -> None:
        assert self._server is not None
        assert self._server.stdin is not None
        with suppress(BrokenPipeError):  # the end of its stdout reports that
            write(self._server.stdin.fileno(), encoded(message))

    def _result(self, number: Any, result: Any) -> None:
        self._send({"id": number, "result": result})

    def _error(self, number: Any, code: int, text: str) -> None:
        self._send({"id": number, "error": {"code": code, "message": text}})

    def _send(self, message: Message) -> None:
        write(1, encoded(message))


def parsed(line: bytes) -> Message:
    """Returns a message, or an empty object for anything else, such as the output of a library."""
    try:
        return members(json.loads(line))
    except (ValueError, RecursionError):
        return {}


def members(value: object) -> Message:
    """Returns a JSON value if it is an object, otherwise an empty object."""
    return cast("Message", value) if isinstance(value, dict) else {}


def encoded(message: Message) -> bytes:
    """Returns a message as a line."""
    return json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n"


def write(fd: int, data: bytes) -> None:
    """Writes all data."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def copy(source: int, target: IO[bytes], begin: bytes) -> None:
    """Writes buffered data, then copies the source to the target, and closes the target at the end."""
    try:
        write(target.fileno(), begin)
        while data := os.read(source, 1 << 16):
            write(target.fileno(), data)
    except OSError:  # the server is gone
        pass
    target.close()


def main(arguments: list[str]) -> NoReturn:
    """Serves on stdin and stdout, and exits with the server's status."""
    greeted = arguments[:1] == ["--greeted"]
    try:
        status = Relay(arguments[int(greeted) :], greeted).run()
    except OSError:  # the client is gone
        status = 1
    # Threads may block on reads that don't end.
    os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1:])
