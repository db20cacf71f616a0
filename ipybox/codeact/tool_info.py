"""Information about a tool from its syntax tree, without importing it."""

import ast
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from ipybox.codeact.library import GENTOOLS, MCPTOOLS, Library, Name, run_parsed
from ipybox.codeact.source import Function, SourceModule

#: Maximum characters of a default value in a signature.
_LONGEST_DEFAULT = 20


@dataclass(frozen=True, slots=True)
class Parameter:
    """A tool's parameter, with the source of its default."""

    #: With stars if variadic; or the slash or star that separates kinds of parameters.
    name: str
    default: str | None = None
    description: str = ""


@dataclass(frozen=True)
class ToolInfo:
    """A tool, for listings and searches."""

    #: `gentools` or `mcptools`.
    root: str
    name: Name
    #: The interface: `api.py` of a saved code action, or the module of an MCP tool.
    module: SourceModule
    run: Function
    #: The parameters in order; for an MCP tool, the fields of `Params`.
    parameters: tuple[Parameter, ...]
    #: The function that returns a parsed result, or None.
    parsed: Function | None = None

    @cached_property
    def doc(self) -> str:
        """The docstrings of the function and the module."""
        return "\n".join(filter(None, (ast.get_docstring(self.run), ast.get_docstring(self.module.tree))))

    @cached_property
    def summary(self) -> str:
        """The first sentence of the docstring."""
        return first_sentence(self.doc)

    @property
    def signature(self) -> str:
        """The name, parameters and result type on one line."""
        if self.root == MCPTOOLS:
            names = ", ".join(f"{each.name}?" if each.default else each.name for each in self.parameters)
            return f"{self.name}({names})"
        names = ", ".join(f"{each.name}={each.default}" if each.default else each.name for each in self.parameters)
        result = f" -> {one_line(self.module.source_of(self.run.returns))}" if self.run.returns else ""
        awaited = "await " if isinstance(self.run, ast.AsyncFunctionDef) else ""
        return f"{awaited}{self.name}({names}){result}"

    def described(self) -> dict[str, Any]:
        """Returns the information as JSON for programs."""
        return {
            "name": str(self.name),
            "kind": self.root,
            "module": self.name.module(self.root),
            "signature": self.signature,
            "summary": self.summary,
            "parsed": self.parsed is not None,
            "parameters": [asdict(parameter) for parameter in self.parameters],
        }


def gentool_cards(library: Library) -> Iterator[ToolInfo]:
    """Yields the saved code actions that have an interface."""
    for name in library.gentools():
        module = library.module(f"{name.path(GENTOOLS)}/api.py")
        if module and (run := module.function("run")):
            yield ToolInfo(GENTOOLS, name, module, run, tuple(_arguments(module, run)))


def mcp_cards(library: Library) -> Iterator[ToolInfo]:
    """Yields the MCP servers' tools."""
    for name, module in library.mcp_tools():
        if run := module.function("run"):
            yield ToolInfo(MCPTOOLS, name, module, run, tuple(_fields(module)), run_parsed(module))


def one_line(text: str) -> str:
    """Returns the text with all whitespace collapsed to single spaces."""
    return " ".join(text.split())


def cut(text: str, length: int) -> str:
    """Returns the text, truncated with an ellipsis to this many characters."""
    return text if len(text) <= length else f"{text[: length - 1].rstrip()}…"


def first_sentence(text: str) -> str:
    """Returns the first sentence of the first paragraph on one line."""
    paragraph = one_line(text.strip().partition("\n\n")[0])
    end = paragraph.find(". ")
    return paragraph[:end] if end > 0 else paragraph.removesuffix(".")


def _arguments(module: SourceModule, run: Function) -> Iterator[Parameter]:
    arguments = run.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + arguments.defaults
    for index, (argument, default) in enumerate(zip(positional, defaults, strict=True), 1):
        yield Parameter(argument.arg, _default(module, default))
        if index == len(arguments.posonlyargs):
            yield Parameter("/")
    if arguments.vararg:
        yield Parameter(f"*{arguments.vararg.arg}")
    elif arguments.kwonlyargs:
        yield Parameter("*")
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield Parameter(argument.arg, _default(module, default))
    if arguments.kwarg:
        yield Parameter(f"**{arguments.kwarg.arg}")


def _default(module: SourceModule, value: ast.expr | None) -> str | None:
    text = None if value is None else one_line(module.source_of(value))
    return text if text is None or len(text) <= _LONGEST_DEFAULT else "…"


def _fields(module: SourceModule) -> Iterator[Parameter]:
    params = module.classes().get("Params")
    body = params.body if params else []
    for statement, following in zip(body, [*body[1:], None], strict=False):
        match statement:
            case ast.AnnAssign(target=ast.Name(name), value=value):
                default = "…" if has_default(value) else None
                yield Parameter(name, default, module.comment_after(statement) or text_of(following))
            case _:
                pass


def has_default(value: ast.expr | None) -> bool:
    """Returns whether this value makes a field optional."""
    match value:
        case ast.Call(func=ast.Name("Field"), args=[], keywords=keywords):
            return any(keyword.arg == "default" for keyword in keywords)
        case _:
            return value is not None


def text_of(node: ast.stmt | None) -> str:
    """Returns the text of a string statement, such as the documentation below a field; otherwise, an empty text."""
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return text
        case _:
            return ""
