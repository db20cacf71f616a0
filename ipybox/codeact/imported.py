"""Imports saved code as a fresh kernel would, and discards the code's output."""

import io
import os
import sys
from collections.abc import Callable, Generator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from importlib import import_module, invalidate_caches
from pathlib import Path
from signal import ITIMER_REAL, SIGALRM, setitimer, signal
from threading import current_thread, main_thread
from traceback import walk_tb
from types import ModuleType
from typing import TextIO, TypeVar

from ipybox.codeact.library import GENTOOLS, MCPPARSE, MCPTOOLS
from ipybox.codeact.tool_info import one_line

T = TypeVar("T")

#: Maximum characters of an exception's text.
_LONGEST_REASON = 300

#: Time limit for each piece of code, in seconds: `ipybox check` waits for all of them together.
_TIMEOUT = 20.0

#: The name of a module body's frame.
_MODULE = "<module>"


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """A problem in a file, and how to fix it. The path is relative to the workspace."""

    path: str
    line: int
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}; {self.remedy}"


class BrokenError(Exception):
    """Code in the workspace failed; `problem` says where and how."""

    def __init__(self, problem: Problem):
        super().__init__(problem)
        self.problem = problem


class _Muted(io.TextIOBase):
    """Discards output until `muted` is false. Passes on later output: imported code may have set up logging."""

    def __init__(self, stream: TextIO):
        self.muted = True
        self._stream = stream

    def write(self, text: str, /) -> int:
        return len(text) if self.muted else self._stream.write(text)

    def flush(self) -> None:
        if not self.muted:
            self._stream.flush()


@contextmanager
def importing(root: Path) -> Generator[None]:
    """Makes imports after `forget` see the workspace as a fresh kernel would, and forgets them on exit."""
    path, bytecode = sys.path[:], sys.dont_write_bytecode
    out, err = _Muted(sys.stdout), _Muted(sys.stderr)
    invalidate_caches()
    sys.path.insert(0, str(root))
    # Python doesn't notice that bytecode is stale if the file changed within a second and kept its size.
    sys.dont_write_bytecode = True
    try:
        with chdir(root), redirect_stdout(out), redirect_stderr(err):
            yield
    finally:
        out.muted = err.muted = False
        sys.path[:] = path
        sys.dont_write_bytecode = bytecode
        forget()


def import_module_at(root: Path, module: str, path: str) -> ModuleType:
    """Imports a workspace module from its file; raises a BrokenError if that fails."""
    return run_code(root, path, "importing", lambda: import_module(module))


def run_code(root: Path, path: str, what: str, action: Callable[[], T]) -> T:
    """Runs workspace code; raises a BrokenError if that takes too long, or raises anything but KeyboardInterrupt."""
    try:
        with _limited():
            return action()
    except KeyboardInterrupt:
        raise
    except BaseException as exc:  # including SystemExit, and subclasses of BaseException in the code
        place, line = _place(root, exc) or (path, 1)
        reason = one_line(f"{type(exc).__name__}: {_text(exc)}")[:_LONGEST_REASON]
        raise BrokenError(Problem(place, line, f"{what} {path} failed: {reason}", "fix this line")) from exc


#: Code may catch any Exception.
_Late = type("TimeoutError", (BaseException,), {})


@contextmanager
def _limited() -> Generator[None]:
    """Raises an error in code of the main thread that runs too long, again and again: it says where."""

    def late(*_: object) -> None:
        raise _Late(f"it takes longer than {_TIMEOUT:g} s")

    if current_thread() is not main_thread():
        yield
        return
    before = signal(SIGALRM, late)
    setitimer(ITIMER_REAL, _TIMEOUT, _TIMEOUT)
    try:
        yield
    finally:
        setitimer(ITIMER_REAL, 0)
        signal(SIGALRM, before)


def forget() -> None:
    """Makes the next import of saved code read its files again."""
    for module in [each for each in sys.modules if each.partition(".")[0] in (GENTOOLS, MCPPARSE, MCPTOOLS)]:
        parent, _, child = module.rpartition(".")
        bytecode = vars(sys.modules.pop(module)).get("__cached__")
        if isinstance(bytecode, str):  # may be stale, see `importing`
            with suppress(OSError):
                os.unlink(bytecode)
        # `from package import module` prefers the package's attribute.
        if parent in sys.modules:
            vars(sys.modules[parent]).pop(child, None)


def _place(root: Path, exc: BaseException) -> tuple[str, int] | None:
    """Returns the innermost workspace file and line in an exception's traceback, skipping called tools."""
    frames = [(frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in walk_tb(exc.__traceback__)]
    if isinstance(exc, SyntaxError) and exc.filename:
        frames.append((exc.filename, exc.lineno or 1, _MODULE))
    for name, line, function in reversed(frames):
        if Path(name).is_relative_to(root):
            file = Path(name).relative_to(root)
            if file.parts[0] != MCPTOOLS or function == _MODULE:
                return file.as_posix(), line
    return None


def _text(exc: BaseException) -> str:
    try:
        return str(exc)
    except Exception:  # workspace code may raise anything
        return ""
