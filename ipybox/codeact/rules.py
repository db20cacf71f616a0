"""The rules for saved code actions and output parsers, which find mistakes that an import doesn't report.

They inspect the imported code. In a tool's module, the code for a parser follows the generated code, so that
registering the server again can replace the generated code and keep the rest.
"""

import ast
import dataclasses
import datetime
import hashlib
import json
import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from enum import Enum
from functools import partial
from inspect import Parameter, formatannotation, getdoc, iscoroutinefunction, isfunction, signature
from pathlib import PurePath
from types import ModuleType, NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints, is_typeddict
from uuid import UUID

from pydantic import BaseModel

from ipybox.codeact.imported import forget, import_module_at, run_code
from ipybox.codeact.library import GENTOOLS, MCPPARSE, MCPTOOLS, RUN_PARSED, Library, McpTool, Name, is_name
from ipybox.codeact.problem import Problem, at, no_name
from ipybox.codeact.source import SourceModule, UnreadableError

#: The files of a saved code action.
FILES = ("__init__.py", "api.py", "impl.py")

#: The generator's file with a hash of each module in the directory.
MANIFEST = ".ipybox.json"

_RESULT = "ParseResult"


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
    interface = import_module_at(root, f"{package}.api", api.path)
    if hidden := [module for module in sys.modules if _is_implementation(module)]:
        message = f"importing the interface imports `{hidden[-1]}`, directly or indirectly"
        yield Problem(api.path, 1, message, "import tools in impl.py, and impl in the body of `run` only")
    run = getattr(interface, "run", None)
    if not isfunction(run):
        yield at(api, None, "function `run` not found", "define `def run(…) -> …:` at its top level")
        return
    hints = run_code(root, api.path, "resolving the type hints of", lambda: get_type_hints(run))
    yield from _undescribed(api, run, hints)
    for improper in improper_types(hints.get("return")):
        message = f"the return type contains `{improper}`, which is neither a model nor a plain type"
        yield at(api, api.function("run"), message, "return a pydantic model or a container of models or plain types")
    if getattr(sys.modules[package], "run", None) is not run:
        yield at(init, None, "it does not export `run`", "write `from .api import run`")
    implementation = import_module_at(root, f"{package}.impl", impl.path)
    own = getattr(implementation, "run", None)
    if not isfunction(own):
        yield at(impl, None, "function `run` not found", "define it with the same parameters as in api.py")
        return
    own_hints = run_code(root, impl.path, "resolving the type hints of", lambda: get_type_hints(own))
    yield from _differences(impl, (own, own_hints), (run, hints))


def _is_implementation(module: str) -> bool:
    return module.startswith((f"{MCPTOOLS}.", f"{MCPPARSE}.")) or (
        module.startswith(f"{GENTOOLS}.") and module.split(".")[3:] == ["impl"]
    )


def _undescribed(module: SourceModule, function: Callable[..., Any], hints: dict[str, Any]) -> Iterator[Problem]:
    name = function.__name__
    node = module.function(name)
    for parameter in signature(function).parameters:
        if parameter not in hints:
            message = f"parameter `{parameter}` of `{name}` has no type"
            yield at(module, node, message, f"annotate it, as in `{parameter}: str`")
    if "return" not in hints:
        yield at(module, node, f"`{name}` does not say what it returns", "annotate its result with `-> …`")
    if not getdoc(function):
        yield at(module, node, f"`{name}` has no docstring", "add a docstring that starts with what the caller gets")


_Typed = tuple[Callable[..., Any], dict[str, Any]]


def _differences(impl: SourceModule, own: _Typed, api: _Typed) -> Iterator[Problem]:
    """Yields the differences between `run` in impl.py and in api.py, both given with their type hints."""
    node = impl.function("run")
    if iscoroutinefunction(own[0]) != iscoroutinefunction(api[0]):
        here, there = ("async" if iscoroutinefunction(each[0]) else "sync" for each in (own, api))
        remedy = f"make it {there}, or make the one in api.py {here}"
        yield at(impl, node, f"`run` is {here} here and {there} in api.py", remedy)
    here, there = ([(each.name, each.kind) for each in _parameters(function)] for function, _ in (own, api))
    if here != there:
        takes, others = (_written(function, hints) for function, hints in (own, api))
        message = f"`run` takes ({takes}) here and ({others}) in api.py"
        yield at(impl, node, message, "use the same parameters as in api.py")
        return
    for name, expected in api[1].items():
        if own[1].get(name, Any) != expected:
            message = f"`{name}` has type {_named(own[1].get(name, Any))} here and {_named(expected)} in api.py"
            yield at(impl, node, message, "write the same type; import it from .api if it is defined there")


def parser_problems(library: Library, name: Name) -> Iterator[Problem]:
    """Yields the problems of a parser, and of the code appended to its tool's module."""
    parser_path, path = f"{name.path(MCPPARSE)}.py", f"{name.path(MCPTOOLS)}.py"
    parser, module = library.module(parser_path), library.module(path)
    if module is None and all(error.path != path for error in library.unreadable):
        remedy = f"register the server {name.category}, or remove the parser"
        yield Problem(parser_path, 1, f"tool {path} not found", remedy)
    if parser is None or module is None:
        return
    if changed := next(_generated_problems(library, McpTool(name, module)), None):
        yield changed
        return
    forget()
    root = library.workspace.root
    tool = import_module_at(root, name.module(MCPTOOLS), path)
    if name.module(MCPPARSE) in sys.modules:
        message = "importing the tool imports its parser, directly or indirectly"
        yield at(
            module, McpTool(name, module).run_parsed, message, "import the parser in the body of `run_parsed` only"
        )
    result = getattr(tool, _RESULT, None)
    if not (isinstance(result, type) and issubclass(result, BaseModel)):
        problem = "not found" if result is None else "is not a pydantic model"
        remedy = f"append it to {path}, derived from pydantic's BaseModel"
        yield at(module, module.classes().get(_RESULT), f"model `{_RESULT}` {problem}", remedy)
        return
    found = [each for each in (getattr(tool, name, None) for name in RUN_PARSED) if isfunction(each)]
    if not found:
        remedy = f"append it to {path}: `def run_parsed(params: Params) -> {_RESULT}:`"
        yield at(module, module.tree.body[-1], "function `run_parsed` not found", remedy)
    for function in found:
        hints = run_code(root, path, "resolving the type hints of", partial(get_type_hints, function))
        yield from _undescribed(module, function, hints)
        yield from _run_parsed_problems(module, function, hints, tool)
    parse = getattr(import_module_at(root, name.module(MCPPARSE), parser_path), "parse", None)
    yield from _parse_problems(library, parser, parse, tool)


def _run_parsed_problems(
    module: SourceModule, function: Callable[..., Any], hints: dict[str, Any], tool: ModuleType
) -> Iterator[Problem]:
    name, node = function.__name__, module.function(function.__name__)
    if [hints.get(each.name) for each in _parameters(function)] != [tool.Params]:
        yield at(module, node, f"`{name}` must take only the tool's `Params`", f"write `{name}(params: Params)`")
    if hints.get("return", tool.ParseResult) is not tool.ParseResult:
        yield at(module, node, f"`{name}` returns {_named(hints['return'])}", f"write `-> {_RESULT}`")
    if iscoroutinefunction(function) != name.endswith("_async"):
        is_now = "async" if iscoroutinefunction(function) else "sync"
        remedy = "make `run_parsed` sync and call `run`; make `run_parsed_async` async and await `run_async`"
        yield at(module, node, f"`{name}` is {is_now}", remedy)


def _parse_problems(library: Library, parser: SourceModule, parse: object, tool: ModuleType) -> Iterator[Problem]:
    expected = signature(tool.run).return_annotation
    head = f"def parse(result: {_named(expected)}) -> {_RESULT}:"
    node = parser.function("parse")
    if not isfunction(parse):
        yield at(parser, None, "function `parse` not found", f"define `{head}`")
        return
    hints = run_code(library.workspace.root, parser.path, "resolving the type hints of", lambda: get_type_hints(parse))
    if iscoroutinefunction(parse):
        yield at(parser, node, "`parse` is async", f"write `{head}`")
    parameters = _parameters(parse)
    required = [each.name for each in parameters if each.default is Parameter.empty]
    if [hints.get(each.name) for each in parameters[:1]] != [expected] or len(required) > 1:
        message = f"`parse` takes ({_written(parse, hints)}), but the tool's `run` returns {_named(expected)}"
        yield at(parser, node, message, f"write `{head}`")
    if hints.get("return") is not tool.ParseResult:
        message = f"`parse` returns {_named(hints.get('return'))}, not the tool's `{_RESULT}`"
        yield at(parser, node, message, f"write `{head}`, and import {_RESULT} from {tool.__name__}")


def orphan_problems(tool: McpTool) -> Iterator[Problem]:
    """Yields a problem if a tool refers to a missing parser."""
    appended = [node for node in tool.module.tree.body if node.lineno > tool.generated]
    result = next((node for node in appended if isinstance(node, ast.ClassDef) and node.name == _RESULT), None)
    if node := tool.run_parsed or result:
        missing = f"{tool.name.path(MCPPARSE)}.py"
        yield at(tool.module, node, f"its parser {missing} is missing", f"write it, or remove `{node.name}` here")


def misplaced_problems(library: Library) -> Iterator[Problem]:
    """Yields problems for entries of `gentools` and `mcpparse` that aren't saved code actions or parsers."""
    move = "move it into its own directory <category>/<tool>, split into __init__.py, api.py and impl.py"
    alone = {
        GENTOOLS: ("modules directly in `gentools` are ignored", move),
        MCPPARSE: ("it is not the parser of any tool", "move it to mcpparse/<server>/<tool>.py"),
    }
    for root, (message, remedy) in alone.items():
        for category in library.entries(root):
            path = f"{root}/{category.name}"
            if category.is_dir and not is_name(category.name):
                yield no_name(path, category.name)
            elif not category.is_dir and _is_module(category.name):
                yield Problem(path, 1, message, remedy)
            for entry in library.entries(path) if category.is_dir and is_name(category.name) else ():
                if root == GENTOOLS and not entry.is_dir and _is_module(entry.name):
                    yield Problem(
                        f"{path}/{entry.name}", 1, "a saved code action must be a package, not a module", move
                    )
                named = entry.is_dir if root == GENTOOLS else _is_module(entry.name)
                if named and not is_name(entry.name.removesuffix(".py")):
                    yield no_name(f"{path}/{entry.name}", entry.name.removesuffix(".py"))


def _generated_problems(library: Library, tool: McpTool) -> Iterator[Problem]:
    remedy = "register the server again: code below `run_async` is kept, and the current file is saved next to it"
    try:
        manifest = json.loads(library.workspace.text(f"{MCPTOOLS}/{tool.name.category}/{MANIFEST}"))
        record = manifest["modules"][tool.name.tool]
        digest, length = record["source"], operator.index(record["length"])
    except (OSError, UnreadableError, ValueError, RecursionError, LookupError, TypeError):
        yield at(tool.module, None, f"{MANIFEST} next to it doesn't record what was generated", remedy)
        return
    if hashlib.sha256(tool.module.text.encode()[:length]).hexdigest() != digest:
        yield at(tool.module, None, "generated code in this module was changed", remedy)


def _is_module(file: str) -> bool:
    return file.endswith(".py") and file != "__init__.py"


def _parameters(function: Callable[..., Any]) -> list[Parameter]:
    return [*signature(function).parameters.values()]


def _written(function: Callable[..., Any], hints: dict[str, Any]) -> str:
    return ", ".join(
        f"{each.name}: {_named(hints[each.name])}" if each.name in hints else each.name
        for each in _parameters(function)
    )


def _named(kind: Any) -> str:
    return "nothing" if kind is None else formatannotation(kind, base_module=getattr(kind, "__module__", None))


#: Models and plain types.
_PROPER = (
    *(BaseModel, Enum, BaseException),
    *(str, int, float, bytes, NoneType, Decimal, UUID, PurePath, datetime.date, datetime.time, datetime.timedelta),
)
_CONTAINERS = (list, dict, tuple, set, frozenset, Sequence, Mapping)


def improper_types(result: Any) -> Iterator[str]:
    """Yields the types in a result type that are neither models nor plain types nor containers of these."""
    origin = get_origin(result)
    if origin is Literal:
        return
    if origin in (Union, UnionType, *_CONTAINERS):
        for item in get_args(result):
            if item is not Ellipsis:
                yield from improper_types(item)
    elif hasattr(result, "__value__"):  # an alias of Python 3.12
        yield from improper_types(result.__value__)
    elif result is not None and not _is_proper(result):
        yield getattr(result, "__qualname__", None) or str(result)


def _is_proper(result: Any) -> bool:
    if not isinstance(result, type) or result in _CONTAINERS:
        return False
    kind = cast("type[Any]", result)
    described = is_typeddict(kind) or dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")
    return described or issubclass(kind, _PROPER)
