"""Imports saved code as a fresh kernel would. Its output is dropped."""

import io
import os
import sys
from collections.abc import Callable, Generator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout, suppress
from importlib import import_module, invalidate_caches
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import TextIO, TypeVar

from ipybox.codeact.library import GENTOOLS, MCPPARSE, MCPTOOLS
from ipybox.codeact.problem import Problem
from ipybox.codeact.tool_info import one_line

T = TypeVar("T")

#: Characters of an exception's text.
_LONGEST_REASON = 300

#: What frames call the body of a module.
_MODULE = "<module>"


class BrokenError(Exception):
    """Code of the workspace failed; `problem` says where and how."""

    def __init__(self, problem: Problem):
        super().__init__(problem)
        self.problem = problem


class _Muted(io.TextIOBase):
    """Drops output until `muted` is false, because imported code may have set up logging that writes later."""

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
    """Lets imports after `forget` see the workspace like a fresh kernel, and forgets those of the context."""
    path, bytecode = sys.path[:], sys.dont_write_bytecode
    out, err = _Muted(sys.stdout), _Muted(sys.stderr)
    invalidate_caches()
    sys.path.insert(0, str(root))
    # Bytecode is taken for that of a file of the same size that was changed within the same second.
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
    """Imports a module of the workspace from its file; raises a BrokenError if that fails."""
    return run_code(root, path, "importing", lambda: import_module(module))


def run_code(root: Path, path: str, what: str, action: Callable[[], T]) -> T:
    """Runs code of the workspace; raises a BrokenError if that raises anything but an interrupt."""
    try:
        return action()
    except KeyboardInterrupt:
        raise
    except BaseException as exc:  # also SystemExit, and what code derives from BaseException
        place, line = _place(root, exc) or (path, 1)
        reason = one_line(f"{type(exc).__name__}: {_text(exc)}")[:_LONGEST_REASON]
        raise BrokenError(Problem(place, line, f"{what} {path} failed: {reason}", "fix this line")) from exc


def forget() -> None:
    """Makes the next import of saved code read its files again."""
    for module in [each for each in sys.modules if each.partition(".")[0] in (GENTOOLS, MCPPARSE, MCPTOOLS)]:
        parent, _, child = module.rpartition(".")
        bytecode = vars(sys.modules.pop(module)).get("__cached__")
        if isinstance(bytecode, str):  # it may be older than its file, see `importing`
            with suppress(OSError):
                os.unlink(bytecode)
        # `from package import module` prefers the attribute.
        if parent in sys.modules:
            vars(sys.modules[parent]).pop(child, None)


def _place(root: Path, exc: BaseException) -> tuple[str, int] | None:
    """Returns the innermost line of the workspace in an exception's traceback, outside of called tools."""
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
    except Exception:  # the workspace's code may raise anything
        return ""
