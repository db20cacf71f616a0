"""The rules for the two files of an output parser.

The parsed type is appended to the generated part of a tool's module, which stays unchanged: registering again replaces
the generated part, and keeps the additions.
"""

import ast
import hashlib
import json
import operator
from collections.abc import Iterator

from ipybox.codeact.annotation import as_written
from ipybox.codeact.api_rules import signature_problems
from ipybox.codeact.imports import Import, imports, is_under
from ipybox.codeact.library import MCPPARSE, MCPTOOLS, RUN_PARSED, Library, McpTool, Name, is_name
from ipybox.codeact.problem import Problem, at, no_name
from ipybox.codeact.source import Function, SourceModule, UnreadableError

#: The generator writes it next to the modules, with a hash of each.
MANIFEST = ".ipybox.json"

_RESULT = "ParseResult"


def parser_problems(library: Library, name: Name) -> Iterator[Problem]:
    """What is wrong with a parser, and with what its tool's module says about it."""
    path = f"{name.path(MCPPARSE)}.py"
    parser = library.module(path)
    module = library.module(f"{name.path(MCPTOOLS)}.py")
    if module is None:
        if all(error.path != f"{name.path(MCPTOOLS)}.py" for error in library.unreadable):
            remedy = f"register the server {name.category}, or remove the parser"
            yield Problem(path, 1, f"tool {name.path(MCPTOOLS)}.py not found", remedy)
        return
    tool = McpTool(name, module)
    yield from _tool_problems(library, tool)
    if parser:
        yield from _parse_problems(parser, tool)


def orphan_problems(library: Library, tool: McpTool) -> Iterator[Problem]:
    """What is wrong with a tool whose output has no parser, but that speaks of one."""
    appended = [node for node in tool.module.tree.body if node.lineno > tool.generated]
    result = next((node for node in appended if isinstance(node, ast.ClassDef) and node.name == _RESULT), None)
    if node := tool.run_parsed or result:
        missing = f"{tool.name.path(MCPPARSE)}.py"
        yield at(tool.module, node, f"its parser {missing} is missing", f"write it, or remove `{node.name}` here")


def stray_parsers(library: Library) -> Iterator[Problem]:
    """What lies in `mcpparse` and is found by no tool."""
    for category in library.entries(MCPPARSE):
        path = f"{MCPPARSE}/{category.name}"
        if not category.is_dir:
            if category.name.endswith(".py") and category.name != "__init__.py":
                yield Problem(path, 1, "it is not the parser of any tool", "move it to mcpparse/<server>/<tool>.py")
        elif not is_name(category.name):
            yield no_name(path, category.name)
        else:
            for entry in library.entries(path):
                name = entry.name.removesuffix(".py")
                if name != entry.name and not is_name(name):
                    yield no_name(f"{path}/{entry.name}", name)


def _tool_problems(library: Library, tool: McpTool) -> Iterator[Problem]:
    module, name = tool.module, tool.name
    yield from _generated_problems(library, tool)
    append = f"append it to {module.path}"
    last = module.tree.body[-1] if module.tree.body else None
    if _RESULT not in module.classes():
        yield at(module, last, f"model `{_RESULT}` not found", f"{append}, as a pydantic model")
    found = [function for each in RUN_PARSED if (function := module.function(each))]
    if not found:
        remedy = f"{append}: `def run_parsed(params: Params) -> {_RESULT}:`"
        yield at(module, last, "function `run_parsed` not found", remedy)
    for function in found:
        yield from signature_problems(module, function)
        yield from _run_parsed_problems(module, function, name)
    outside = [statement for statement in module.tree.body if statement not in found]
    for each in imports(outside, f"{MCPTOOLS}.{name.category}"):
        if is_under(each.source, MCPPARSE):
            message = "the tool and its parser import each other"
            yield at(module, each.node, message, "import it in the body of `run_parsed`")


def _run_parsed_problems(module: SourceModule, function: Function, name: Name) -> Iterator[Problem]:
    types = [as_written(each.annotation) for each in (*function.args.posonlyargs, *function.args.args)]
    if types != ["Params"] or function.args.kwonlyargs or function.args.vararg or function.args.kwarg:
        remedy = f"write `{function.name}(params: Params)`"
        yield at(module, function, f"`{function.name}` must take only the tool's `Params`", remedy)
    if function.returns and as_written(function.returns) != _RESULT:
        message = f"`{function.name}` returns {as_written(function.returns)}"
        yield at(module, function, message, f"write `-> {_RESULT}`")
    if isinstance(function, ast.AsyncFunctionDef) != function.name.endswith("_async"):
        remedy = "make `run_parsed` sync and call `run`; make `run_parsed_async` async and await `run_async`"
        is_now = "async" if isinstance(function, ast.AsyncFunctionDef) else "sync"
        yield at(module, function, f"`{function.name}` is {is_now}", remedy)
    sources = [each.source for each in imports(function.body, f"{MCPTOOLS}.{name.category}")]
    if not any(is_under(source, name.module(MCPPARSE)) for source in sources):
        remedy = f"write `from {MCPPARSE}.{name.category} import {name.tool} as parser` in its body"
        yield at(module, function, f"`{function.name}` does not import the parser", remedy)


def _parse_problems(parser: SourceModule, tool: McpTool) -> Iterator[Problem]:
    run = tool.module.function("run")
    expected = as_written(run.returns) if run else "str"
    head = f"def parse(result: {expected}) -> {_RESULT}:"
    if again := parser.classes().get(_RESULT):
        remedy = f"remove it and import the one from {tool.name.module(MCPTOOLS)}"
        yield at(parser, again, f"`{_RESULT}` is defined again", remedy)
    elif not any(each.source == f"{tool.name.module(MCPTOOLS)}.{_RESULT}" for each in _top(parser, tool.name)):
        remedy = f"write `from {tool.name.module(MCPTOOLS)} import {_RESULT}` at the top"
        yield at(parser, None, f"`{_RESULT}` is not imported from the tool", remedy)
    parse = parser.function("parse")
    if parse is None:
        yield at(parser, None, "function `parse` not found", f"define `{head}`")
        return
    if isinstance(parse, ast.AsyncFunctionDef):
        yield at(parser, parse, "`parse` is async", f"write `{head}`")
    types = [as_written(each.annotation) for each in (*parse.args.posonlyargs, *parse.args.args)]
    if types[:1] != [expected] or len(types) - len(parse.args.defaults) > 1:
        message = f"`parse` takes ({ast.unparse(parse.args)}), but the tool's `run` returns {expected}"
        yield at(parser, parse, message, f"write `{head}`")
    if as_written(parse.returns) != _RESULT:
        yield at(parser, parse, f"`parse` returns {as_written(parse.returns)}", f"write `{head}`")


def _generated_problems(library: Library, tool: McpTool) -> Iterator[Problem]:
    """What differs from what was generated."""
    remedy = "register the server again: code below `run_async` is kept, and the current file is saved next to it"
    recorded = _recorded(library, tool.name)
    if recorded is None:
        yield at(tool.module, None, f"{MANIFEST} next to it doesn't record what was generated", remedy)
        return
    digest, length = recorded
    if hashlib.sha256(tool.module.text.encode()[:length]).hexdigest() != digest:
        yield at(tool.module, None, "generated code in this module was changed", remedy)


def _recorded(library: Library, name: Name) -> tuple[str, int] | None:
    """The hash of a tool's module as it was generated and the bytes of that, if they were recorded."""
    try:
        manifest = json.loads(library.workspace.text(f"{MCPTOOLS}/{name.category}/{MANIFEST}"))
        record = manifest["modules"][name.tool]
        return record["source"], operator.index(record["length"])
    except (OSError, UnreadableError, ValueError, RecursionError, LookupError, TypeError):
        return None


def _top(parser: SourceModule, name: Name) -> Iterator[Import]:
    return imports(parser.tree.body, f"{MCPPARSE}.{name.category}")
