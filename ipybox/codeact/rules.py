"""The rules for saved code actions and output parsers, which find mistakes that an import doesn't report.

They inspect the imported code.
"""

import ast
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import Parameter, Signature, formatannotation, getdoc, iscoroutinefunction, isfunction, signature
from types import ModuleType
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel

from ipybox.codeact.imported import Problem, forget, import_module_at, run_code
from ipybox.codeact.library import GENTOOLS, MCPPARSE, MCPTOOLS, RUN_PARSED, Library, Name
from ipybox.codeact.source import SourceModule

#: The files of a saved code action.
FILES = ("__init__.py", "api.py", "impl.py")

#: Types of results that don't say what a result contains.
_VAGUE = (Any, object, list, dict, tuple, set, frozenset, Mapping, Sequence)

_RESULT = "ParseResult"

_Hints = dict[str, Any]


def gentool_problems(library: Library, name: Name) -> Iterator[Problem]:
    """Yields a saved code action's problems. The library records unreadable files."""
    directory, package = name.path(GENTOOLS), name.module(GENTOOLS)
    present = {entry.name for entry in library.entries(directory)}
    remedy = f"a saved code action needs {', '.join(FILES[:-1])} and {FILES[-1]}: write it, or remove {directory}"
    yield from (
        Problem(f"{directory}/{file}", 1, "the file is missing", remedy) for file in FILES if file not in present
    )
    init, api, impl = (library.module(f"{directory}/{file}") if file in present else None for file in FILES)
    if not (init and api and impl):
        return
    forget()
    root = library.workspace.root
    run = getattr(import_module_at(root, f"{package}.api", api.path), "run", None)
    if hidden := [module for module in sys.modules if _is_implementation(module)]:
        message = f"importing the interface imports `{hidden[-1]}`, directly or indirectly"
        yield Problem(api.path, 1, message, "import tools in impl.py, and impl in the body of `run` only")
    if not isfunction(run):
        yield _at(api, None, "function `run` not found", "define `def run(…) -> …:` at its top level")
        return
    hints = _hints(library, api, run)
    yield from _undescribed(api, run, hints)
    for vague in vague_types(hints.get("return")):
        message = f"the return type contains `{vague}`, which doesn't say what it contains"
        yield _at(api, "run", message, "return a pydantic model or a container of models or plain types")
    if getattr(sys.modules[package], "run", None) is not run:
        yield _at(init, None, "it does not export `run`", "write `from .api import run`")
    own = getattr(import_module_at(root, f"{package}.impl", impl.path), "run", None)
    if not isfunction(own):
        yield _at(impl, None, "function `run` not found", "define it with the same parameters as in api.py")
        return
    here, there = _head(own, _hints(library, impl, own)), _head(run, hints)
    if here != there:
        remedy = "write the same parameters and types, without defaults, and import types from .api"
        yield _at(impl, "run", f"`{here}` is `{there}` in api.py", remedy)


def _is_implementation(module: str) -> bool:
    return module.startswith((f"{MCPTOOLS}.", f"{MCPPARSE}.")) or (
        module.startswith(f"{GENTOOLS}.") and module.split(".")[3:] == ["impl"]
    )


def vague_types(result: Any) -> Iterator[str]:
    """Yields the types in a result type that don't say what they contain, such as `dict` without parameters."""
    if any(result is vague for vague in _VAGUE):
        yield _named(result)
    for item in get_args(result):
        yield from vague_types(item)


def parser_problems(library: Library, name: Name) -> Iterator[Problem]:
    """Yields the problems of a parser, and of the code appended to its tool's module."""
    parser_path, path = f"{name.path(MCPPARSE)}.py", f"{name.path(MCPTOOLS)}.py"
    parser, module = library.module(parser_path), library.module(path)
    if module is None and path not in library.unreadable:
        remedy = f"register the server {name.category}, or remove the parser"
        yield Problem(parser_path, 1, f"tool {path} not found", remedy)
    if parser is None or module is None:
        return
    forget()
    root = library.workspace.root
    tool = import_module_at(root, name.module(MCPTOOLS), path)
    if name.module(MCPPARSE) in sys.modules:
        message = "importing the tool imports its parser, directly or indirectly"
        yield _at(module, "run_parsed", message, "import the parser in the body of `run_parsed` only")
    result = getattr(tool, _RESULT, None)
    if not (isinstance(result, type) and issubclass(result, BaseModel)):
        problem = "not found" if result is None else "is not a pydantic model"
        remedy = f"append it to {path}, derived from pydantic's BaseModel"
        yield _at(module, _RESULT, f"model `{_RESULT}` {problem}", remedy)
        return
    yield from _run_parsed_problems(library, module, tool)
    parse = getattr(import_module_at(root, name.module(MCPPARSE), parser_path), "parse", None)
    yield from _parse_problems(library, parser, parse, tool)


def _run_parsed_problems(library: Library, module: SourceModule, tool: ModuleType) -> Iterator[Problem]:
    found = [each for each in (getattr(tool, name, None) for name in RUN_PARSED) if isfunction(each)]
    if not found:
        remedy = f"append it to {module.path}: `def run_parsed(params: Params) -> {_RESULT}:`"
        yield _at(module, _RESULT, "function `run_parsed` not found", remedy)
    for function in found:
        hints = _hints(library, module, function)
        yield from _undescribed(module, function, hints)
        name, is_async = function.__name__, function.__name__.endswith("_async")
        types = [hints.get(each) for each in (*signature(function).parameters, "return")]
        if types != [tool.Params, tool.ParseResult] or iscoroutinefunction(function) != is_async:
            wanted = f"{'async ' if is_async else ''}def {name}(params: Params) -> {_RESULT}:"
            yield _at(module, name, f"`{_head(function, hints)}` does not fit the tool", f"write `{wanted}`")


def _parse_problems(library: Library, parser: SourceModule, parse: object, tool: ModuleType) -> Iterator[Problem]:
    expected = signature(tool.run).return_annotation
    head = f"def parse(result: {_named(expected)}) -> {_RESULT}:"
    if not isfunction(parse):
        yield _at(parser, None, "function `parse` not found", f"define `{head}`")
        return
    hints = _hints(library, parser, parse)
    required = [each.name for each in signature(parse).parameters.values() if each.default is Parameter.empty]
    types = [hints.get(each) for each in (*required, "return")]
    if types != [expected, tool.ParseResult] or iscoroutinefunction(parse):
        remedy = f"write `{head}`, and import {_RESULT} from {tool.__name__}"
        yield _at(parser, "parse", f"`{_head(parse, hints)}` does not fit the tool", remedy)


def _undescribed(module: SourceModule, function: Callable[..., Any], hints: _Hints) -> Iterator[Problem]:
    name = function.__name__
    for parameter in signature(function).parameters:
        if parameter not in hints:
            message = f"parameter `{parameter}` of `{name}` has no type"
            yield _at(module, name, message, f"annotate it, as in `{parameter}: str`")
    if "return" not in hints:
        yield _at(module, name, f"`{name}` does not say what it returns", "annotate its result with `-> …`")
    if not getdoc(function):
        yield _at(module, name, f"`{name}` has no docstring", "add a docstring that starts with what the caller gets")


def _hints(library: Library, module: SourceModule, function: Callable[..., Any]) -> _Hints:
    root = library.workspace.root
    return run_code(root, module.path, "resolving the type hints of", lambda: get_type_hints(function))


def _head(function: Callable[..., Any], hints: _Hints) -> str:
    """Returns the first line of a function, with its resolved types, and without defaults."""
    parameters = [
        each.replace(annotation=hints.get(each.name, Any), default=Parameter.empty)
        for each in signature(function).parameters.values()
    ]
    shown = Signature(parameters, return_annotation=hints.get("return", Any))
    return f"{'async ' if iscoroutinefunction(function) else ''}def {function.__name__}{shown}"


def _named(kind: Any) -> str:
    return formatannotation(kind, base_module=getattr(kind, "__module__", None))


def _at(module: SourceModule, name: str | None, message: str, remedy: str) -> Problem:
    node: ast.stmt | None = None
    if name is not None:
        node = module.function(name) or module.classes().get(name)
    return Problem(module.path, 1 if node is None else node.lineno, message, remedy)
