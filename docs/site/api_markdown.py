"""Markdown of the API reference, for readers without a browser: signatures and docstrings."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

import yaml

#: The line by which mkdocstrings includes a module, class or function, and the indented YAML below it.
INCLUDE = re.compile(r"^::: ([\w.]+)$\n?((?: {4}.*\n)*)", re.MULTILINE)
#: The kinds of members that the reference lists: those that have docstrings.
DOCUMENTED: tuple[type, ...] = (FunctionType, type, property, cached_property)


def with_api(text: str) -> str:
    """Returns the Markdown of a page with signatures and docstrings in place of the lines that include them."""
    return INCLUDE.sub(_included, text)


def _included(match: re.Match[str]) -> str:
    settings: dict[str, Any] = yaml.safe_load(match[2]) or {}
    names: list[str] | None = settings.get("options", {}).get("members")
    text = _described(match[1].rpartition(".")[2], _find(match[1]), 3, names)
    return f"{text.rstrip()}\n"


def _find(name: str) -> object:
    try:
        return import_module(name)
    except ModuleNotFoundError:
        module, _, member = name.rpartition(".")
        return getattr(import_module(module), member)


def _described(name: str, member: object, level: int, names: list[str] | None = None) -> str:
    heading = "" if inspect.ismodule(member) else f"{'#' * level} {_signature(name, member)}\n\n"
    doc = inspect.getdoc(member)
    text = f"{doc}\n\n" if doc else ""
    members = (each for each in _members(member) if names is None or each[0] in names)
    return heading + text + "".join(_described(*each, min(level + 1, 4)) for each in members)


def _signature(name: str, member: object) -> str:
    if inspect.isclass(member):
        bases = [base.__name__ for base in member.__bases__ if base is not object and not base.__name__.startswith("_")]
        return f"class `{name}`" + (f" ({', '.join(bases)})" if bases else "")
    return f"`{_of_function(member)}`" if isinstance(member, FunctionType) else f"`{name}`"


def _of_function(function: FunctionType) -> str:
    """Returns the signature as the source has it, with names in place of annotations that are strings."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    for argument in every:
        argument.annotation = _annotation(argument.annotation)
    node.args.args = [argument for argument in node.args.args if argument.arg not in ("self", "cls")]
    returns = _annotation(node.returns)
    kind = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    return f"{kind}{node.name}({ast.unparse(node.args)})" + (f" -> {ast.unparse(returns)}" if returns else "")


def _annotation(node: ast.expr | None) -> ast.expr | None:
    return ast.Name(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, str) else node


def _members(owner: object) -> Iterator[tuple[str, object]]:
    """Yields public functions, classes and properties in the order of the source."""
    if not (inspect.isclass(owner) or inspect.ismodule(owner)):
        return
    for name, member in vars(owner).items():
        plain: object = getattr(member, "__func__", member)  # of a class method
        if not name.startswith("_") and isinstance(plain, DOCUMENTED) and _is_defined_in(owner, plain):
            yield name, plain


def _is_defined_in(owner: object, member: object) -> bool:
    """Whether it is not imported into the module."""
    return not isinstance(owner, ModuleType) or getattr(member, "__module__", "") == owner.__name__
