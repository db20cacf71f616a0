"""Requests approval before code starts a program: `!command`, `%%bash`, `subprocess` and the like.

A shell escape (`!command`, `x = !command`, `!!command`, `%sx`, `%system`, `%%bash` and other script magics) requests
approval for its own text; programs that it then starts need no other. An audit hook (PEP 578) catches all other
programs in all threads and forked children, and can't be removed.

This is guest code, and a convenience: code that bypasses it, with `ctypes` for example, has the kernel's rights.
"""

import functools
import json
import os
import pty
import shlex
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from http import HTTPStatus
from types import FrameType
from typing import Any, cast

from IPython.core.magics import script

from ipybox.guest.streams import mark_output
from ipybox.guest.tools.http import ConnectionPool, ServerAddress
from ipybox.guest.tools.protocol import SHELL_MAGIC_TOOL, SHELL_PATH, SHELL_TOOL, ShellRequest
from ipybox.support.errors import ShellCommandError

#: Describes a program that is about to start; `cmd` is always present.
Command = dict[str, str]

ESCAPE_REQUIRED = (
    "code may start programs only with shell escapes (require_shell_escape): use `!command`, `output = !command` or "
    "`%%bash`"
)

_SHELL = ["/bin/sh", "-c"]

#: Standard library functions that cause more than one event, bound before code can replace them.
_POSIX_SPAWN = cast(Any, subprocess.Popen)._posix_spawn.__code__
_SPAWN = cast(Any, os)._spawnvef.__code__
_SEARCH = cast(Any, os)._execvpe.__code__
_PTY_SPAWN = pty.spawn.__code__
_OS = cast(object, vars(os))

#: Whether the application has approved what the current task or thread starts.
_approved: ContextVar[bool] = ContextVar("approved", default=False)


class _Expanded(str):
    """A command whose variables have already been expanded."""


def control_commands(shell: Any, *, escape_only: bool) -> None:
    """Makes all code in this process request approval before it starts a program, permanently."""
    gate = CommandGate(escape_only)
    guard_escapes(shell, gate)
    guard_script_magics(shell, gate)
    "".encode("idna")  # connecting would import this codec, while another thread may hold import locks
    sys.addaudithook(gate.audit)


class CommandGate:
    """Requests approval before a program starts, or lets only shell escapes start programs."""

    def __init__(self, escape_only: bool):
        self._escape_only = escape_only
        self._pool = ConnectionPool(ServerAddress.of_kernel())

    @contextmanager
    def escape(self, tool_name: str, command: Command) -> Generator[None]:
        """Requests approval for a shell escape; programs started in the context need no other.

        Raises:
            ShellCommandError: If it is not approved.
        """
        self.ask(tool_name, command)
        token = _approved.set(True)
        try:
            yield
        finally:
            _approved.reset(token)

    def audit(self, event: str, args: tuple[Any, ...]) -> None:
        """Requests approval before a program starts. Python calls this for every audit event.

        Raises:
            ShellCommandError: If it is not approved.
        """
        describe = STARTS.get(event)
        if describe is None or _approved.get():
            return
        command = describe(sys._getframe(1), *args)  # pyright: ignore[reportPrivateUsage] documented for this use
        if command is None:
            return
        if self._escape_only:
            raise ShellCommandError(ESCAPE_REQUIRED)
        self.ask(SHELL_TOOL, command)

    def ask(self, tool_name: str, command: Command) -> None:
        """Waits until the application has approved a command.

        Raises:
            ShellCommandError: If the application rejects it or can't be reached.
        """
        request: ShellRequest = {"tool_name": tool_name, "tool_args": command, "output_mark": mark_output()}
        try:
            status, body = self._pool.request("POST", SHELL_PATH, json.dumps(request).encode())
            reply = cast(dict[str, Any], json.loads(body))
        except (OSError, ValueError) as exc:
            raise ShellCommandError(f"the shell command was not approved: can't ask the application: {exc}") from None
        if status != HTTPStatus.OK or "error" in reply:
            raise ShellCommandError(str(reply.get("error", f"the shell command was not approved: HTTP {status}")))


def guard_escapes(shell: Any, gate: CommandGate) -> None:
    """Makes `!command`, `x = !command` and the magics that use them request approval for the command to run."""
    expand, run, get_output = shell.var_expand, shell.system, shell.getoutput

    def var_expand(cmd: str, depth: int = 0, *args: Any, **kwargs: Any) -> str:
        return str(cmd) if isinstance(cmd, _Expanded) else expand(cmd, depth + 1, *args, **kwargs)

    def system(cmd: str) -> None:
        cmd = expand(cmd, depth=1)
        with gate.escape(SHELL_TOOL, {"cmd": cmd}):
            run(_Expanded(cmd))

    def getoutput(cmd: str, split: bool = True, depth: int = 0) -> Any:
        cmd = expand(cmd, depth=depth + 1)
        with gate.escape(SHELL_TOOL, {"cmd": cmd}):
            return get_output(_Expanded(cmd), split)

    shell.var_expand, shell.system, shell.getoutput = var_expand, system, getoutput


def guard_script_magics(shell: Any, gate: CommandGate) -> None:
    """Makes `%%script` and magics based on it, such as `%%bash`, request approval for the text of their cell."""
    magics: Any = script.ScriptMagics
    run = magics.shebang

    @functools.wraps(run)
    def shebang(self: Any, line: str, cell: str) -> Any:
        with gate.escape(SHELL_MAGIC_TOOL, {"cmd": cell, "program": line.strip()}):
            # IPython starts the program in another thread, in a copy of this context.
            return run(self, line, cell)

    magics.shebang = shebang
    shell.register_magics(magics)  # older versions of IPython have registered the method


def _popen(_: FrameType, executable: Any, args: Any, cwd: Any, _env: Any) -> Command:
    words = [args] if isinstance(args, str | bytes) else args
    command = _command(executable, words)
    return command if cwd is None else {**command, "cwd": os.fsdecode(cwd)}


def _system(_: FrameType, command: str | bytes) -> Command:
    return {"cmd": os.fsdecode(command)}


def _pty_spawn(_: FrameType, argv: Sequence[str]) -> Command:
    return _command(argv[0], argv)


def _posix_spawn(frame: FrameType, path: Any, argv: Sequence[Any], _env: Any) -> Command | None:
    if frame.f_code is _POSIX_SPAWN:
        return None  # its `Popen` event requested approval
    return _command(path, argv)


def _fork(frame: FrameType) -> Command | None:
    # `os.spawn*` has no event of its own on POSIX. A rejection here makes it fail in the parent, with a reason.
    if frame.f_code is not _SPAWN:
        return None
    return _command(frame.f_locals["file"], frame.f_locals["args"])


def _exec(frame: FrameType, path: Any, argv: Sequence[Any], _env: Any) -> Command | None:
    if frame.f_code is _SEARCH and isinstance(refused := frame.f_locals.get("saved_exc"), ShellCommandError):
        raise refused  # after which `os.execvp` tries the next directory
    caller: FrameType | None = frame
    while caller is not None and caller.f_globals is _OS:
        if caller.f_code is _SPAWN:
            return None  # the parent has requested approval
        caller = caller.f_back
    if caller is not None and caller.f_code is _PTY_SPAWN:
        return None  # as does this
    if isinstance(path, int):
        path = f"/dev/fd/{path}"
    elif not (os.path.isfile(path) and os.access(path, os.X_OK)):
        return None  # it fails: `os.execvp` tries each directory of PATH
    return _command(path, argv)


def _command(program: Any, argv: Sequence[Any]) -> Command:
    """Returns the description of a program with its arguments; for `sh -c`, of the command that the shell runs."""
    name, words = os.fsdecode(program), [os.fsdecode(word) for word in argv]
    if [name, *words[1:-1]] == _SHELL and len(words) == len(_SHELL) + 1:
        return {"cmd": words[-1]}
    command = {"cmd": shlex.join([name, *words[1:]])}
    if words and os.path.basename(words[0]) != os.path.basename(name):
        command["argv0"] = words[0]  # some programs act on it
    return command


#: Audit events before programs start, with the function that describes the program; None if it needs no approval.
#: https://docs.python.org/3/library/audit_events.html
STARTS: dict[str, Callable[..., Command | None]] = {
    "os.exec": _exec,
    "os.fork": _fork,
    "os.posix_spawn": _posix_spawn,
    "os.system": _system,
    "pty.spawn": _pty_spawn,
    "subprocess.Popen": _popen,
}
