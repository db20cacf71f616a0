"""Reads annotations as they are written."""

import ast
from collections.abc import Iterator

from ipybox.codeact.source import Function

#: Types that tell callers nothing, wherever they are.
_VAGUE = {"Any", "object"}
#: Containers that tell callers nothing without element types.
_CONTAINERS = {
    "dict", "list", "tuple", "set", "frozenset",
    "Dict", "List", "Tuple", "Set", "FrozenSet", "Mapping", "Sequence", "Iterable",
}  # fmt: skip


def vague_type(annotation: ast.expr) -> str | None:
    """Returns the first type in it that tells callers nothing: `Any`, `object` or a container of unknown elements."""
    return next(_vague(annotation), None)


def names_in(annotation: ast.expr | None) -> set[str]:
    """The names that it refers to, also within strings."""
    return set(_names(annotation)) if annotation is not None else set()


def names_of(function: Function) -> set[str]:
    """The names that the annotations of a function refer to."""
    annotations = [*(each.annotation for each in parameters(function)), function.returns]
    return set[str]().union(*map(names_in, annotations))


def parameters(function: Function) -> list[ast.arg]:
    """All parameters, in their order."""
    arguments = function.args
    some = [*arguments.posonlyargs, *arguments.args, arguments.vararg, *arguments.kwonlyargs, arguments.kwarg]
    return [each for each in some if each is not None]


def kinds(function: Function) -> list[tuple[str, str]]:
    """The name of each parameter, and how it is passed."""
    arguments = function.args
    groups = {
        "positional-only": arguments.posonlyargs,
        "positional": arguments.args,
        "*": [arguments.vararg],
        "keyword-only": arguments.kwonlyargs,
        "**": [arguments.kwarg],
    }
    return [(each.arg, kind) for kind, group in groups.items() for each in group if each is not None]


def as_written(annotation: ast.expr | None) -> str:
    """It as text, the same for the same type: without white space, and strings as what they hold."""
    if annotation is None:
        return "nothing"
    expression = _in_string(annotation)
    return ast.unparse(expression if expression is not None else annotation)


def _vague(node: ast.expr, *, of_something: bool = False) -> Iterator[str]:
    match node:
        case ast.Constant() if (expression := _in_string(node)) is not None:
            yield from _vague(expression)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            if name in _VAGUE or (name in _CONTAINERS and not of_something):
                yield name
        case ast.Subscript(value=value, slice=inner):
            if _last(value) != "Literal":
                yield from _vague(value, of_something=True)
                yield from _vague(_of_annotated(inner) if _last(value) == "Annotated" else inner)
        case ast.Tuple(elts=items) | ast.List(elts=items):
            for item in items:
                yield from _vague(item)
        case ast.BinOp(left=left, right=right):
            yield from _vague(left)
            yield from _vague(right)
        case _:
            pass


def _names(annotation: ast.expr) -> Iterator[str]:
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Constant) and (expression := _in_string(node)) is not None:
            yield from (each.id for each in ast.walk(expression) if isinstance(each, ast.Name))


def _in_string(node: ast.expr) -> ast.expr | None:
    match node:
        case ast.Constant(value=str(text)):
            try:
                return ast.parse(text, mode="eval").body
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return None
        case _:
            return None


def _last(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _of_annotated(inner: ast.expr) -> ast.expr:
    return inner.elts[0] if isinstance(inner, ast.Tuple) and inner.elts else inner
