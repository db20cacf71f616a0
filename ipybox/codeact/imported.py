"""Imports saved code again, and checks that this works and that the result matches its source.

The code of the workspace runs here; its output is dropped.
"""

import io
import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import partial
from importlib import import_module, invalidate_caches
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import TextIO, TypeVar, get_type_hints

from pydantic import BaseModel

from ipybox.codeact.library import GENTOOLS, MCPPARSE, MCPTOOLS, RUN_PARSED, McpTool, Name
from ipybox.codeact.problem import Problem, at
from ipybox.codeact.result_type import improper_types, is_model
from ipybox.codeact.source import SourceModule
from ipybox.codeact.tool_info import one_line

T = TypeVar("T")

#: Characters of what an exception says.
_LONGEST_REASON = 300

#: What frames call the body of a module.
_MODULE = "<module>"


class _BrokenError(Exception):
    """Code of the workspace failed."""

    def __init__(self, problem: Problem):
        super().__init__(problem)
        self.problem = problem


class _Muted(io.TextIOBase):
    """Drops what is printed until `muted` is false; what imported code has set up, as logging, may write later."""

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
    """Lets imports see the workspace like a kernel that has just started there.

    Earlier imports from it are forgotten, and so are the imports of the context: the next import reads the current
    files.
    """
    path, bytecode = sys.path[:], sys.dont_write_bytecode
    out, err = _Muted(sys.stdout), _Muted(sys.stderr)
    _forget(GENTOOLS, MCPPARSE, MCPTOOLS)
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
        _forget(GENTOOLS, MCPPARSE, MCPTOOLS)


def import_problems(root: Path, name: Name, api: SourceModule) -> Iterator[Problem]:
    """Yields the problems of a saved code action whose source has no faults."""
    package = name.module(GENTOOLS)
    _forget(package)
    try:
        imported = _import(root, f"{package}.api", api.path)
        if f"{package}.impl" in sys.modules:
            remedy = "import impl in the body of `run` only"
            yield Problem(api.path, 1, "importing api.py imports impl.py, directly or indirectly", remedy)
        run = api.function("run")
        hints = _run(root, api.path, "type hints", lambda: get_type_hints(imported.run))
        for improper in improper_types(hints.get("return")):
            remedy = "return a pydantic model or a container of models or plain types"
            yield at(
                api, run, f"the return type contains `{improper}`, which is neither a model nor a plain type", remedy
            )
        for class_, node in api.classes().items():
            if not is_model(getattr(imported, class_, None)):
                remedy = "derive it from pydantic's BaseModel, or move it to impl.py"
                yield at(api, node, f"class `{class_}` is not a model", remedy)
        path = f"{name.path(GENTOOLS)}/impl.py"
        impl = _import(root, f"{package}.impl", path)
        own = _run(root, path, "type hints", lambda: get_type_hints(impl.run))
        if own != hints:
            remedy = "import its types from .api"
            yield Problem(
                path, 1, "the type names of `run` match those in api.py, but refer to different types", remedy
            )
    except _BrokenError as exc:
        yield exc.problem


def parser_import_problems(root: Path, tool: McpTool, parser: SourceModule) -> Iterator[Problem]:
    """Yields the problems of a parser whose source, and that of its tool, has no faults."""
    module = tool.module
    _forget(tool.name.module(MCPTOOLS), tool.name.module(MCPPARSE))
    try:
        imported = _import(root, tool.name.module(MCPTOOLS), module.path)
        if tool.name.module(MCPPARSE) in sys.modules:
            remedy = "import the parser in the body of `run_parsed` only"
            yield at(module, tool.run_parsed, "importing the tool imports its parser, directly or indirectly", remedy)
        result = imported.ParseResult
        if not (isinstance(result, type) and issubclass(result, BaseModel)):
            remedy = "derive it from pydantic's BaseModel"
            yield at(module, module.classes().get("ParseResult"), "`ParseResult` is not a pydantic model", remedy)
        for function in filter(None, (getattr(imported, each, None) for each in RUN_PARSED)):
            _run(root, module.path, "type hints", partial(get_type_hints, function))
        parse = _import(root, tool.name.module(MCPPARSE), parser.path).parse
        hints = _run(root, parser.path, "type hints", lambda: get_type_hints(parse))
        if hints.get("return") is not result:
            remedy = f"import it from {tool.name.module(MCPTOOLS)}"
            yield at(parser, parser.function("parse"), "it returns a different `ParseResult`", remedy)
    except _BrokenError as exc:
        yield exc.problem


def _import(root: Path, module: str, path: str) -> ModuleType:
    return _run(root, path, "import", lambda: import_module(module))


def _run(root: Path, path: str, what: str, action: Callable[[], T]) -> T:
    """Runs code of the workspace.

    Raises:
        _BrokenError: If it raised anything but an interrupt.
    """
    try:
        return action()
    except KeyboardInterrupt:
        raise
    except BaseException as exc:  # also SystemExit, and what code derives from BaseException
        place, line = _place(root, exc) or (path, 1)
        reason = one_line(f"{type(exc).__name__}: {_text(exc)}")[:_LONGEST_REASON]
        raise _BrokenError(Problem(place, line, f"{what} of {path} fails: {reason}", "fix this line")) from exc


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


def _forget(*names: str) -> None:
    """Makes the next import of these modules and their submodules read their files again."""
    for module in [each for each in sys.modules if any(f"{each}.".startswith(f"{name}.") for name in names)]:
        parent, _, child = module.rpartition(".")
        bytecode = vars(sys.modules.pop(module)).get("__cached__")
        if isinstance(bytecode, str):  # it may be older than its file, see `importing`
            with suppress(OSError):
                os.unlink(bytecode)
        # `from package import module` prefers the attribute.
        if parent in sys.modules:
            vars(sys.modules[parent]).pop(child, None)
