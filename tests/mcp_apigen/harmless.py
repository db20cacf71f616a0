"""What a generated module may hold: an import, models, enums and the tool, in the forms that `render` writes.

Everything else is refused, by its place in the syntax tree: nothing is looked for, so nothing can be overlooked.
"""

import ast
import io
import re
import tokenize
from typing import NoReturn

_IMPORTED = {
    "UNSET", "Among", "Annotated", "Any", "CheckedInput", "Choice", "CLIENT", "Default", "Exact", "Field", "Literal",
    "SafeInteger", "Output", "Input",
}  # fmt: skip
_BASES = {"CheckedInput", "Input", "Output"}
_GENERIC = {"list", "dict", "Exact"}
_SCALARS = {"str", "int", "float", "bool", "Any", "SafeInteger"}
_CHECKS = {"Field", "Among"}
_VARIANTS = {"run_async = run.aio", "run_many, run_many_async = (run.many, run.many_async)"}


# Plain words: comments that type checkers, linters or formatters obey have such marks, or begin with such words.
_COMMENT = re.compile(r"# (?!(?:noqa|nosec|nosonar|nolint|pragma)\b)\w[^#:=]*", re.IGNORECASE)


class Harmful(Exception):
    """A generated module holds something that no generated module should."""


class Module:
    """The check of one module's source.

    Attributes:
        deferred: The strings among its annotations, which are evaluated when a model is built.

    Raises:
        Harmful: It holds something else than models and calls of the tool.
    """

    def __init__(self, source: str, tool_name: str, module_name: str):
        self.tree = ast.parse(source)
        self.deferred: set[str] = set()
        named = "" if tool_name == module_name else f"({tool_name!r})"
        self._decorator = f"CLIENT.tool{named}"
        defined = [_defined(node) for node in self.tree.body]
        self._classes = {name for name in defined if name is not None}
        if self._classes & {*_SCALARS, *_GENERIC, *_CHECKS, *_IMPORTED}:
            _refuse(self.tree)
        match self.tree.body:
            case [ast.Expr(value=ast.Constant(value=str())), *statements]:
                pass
            case statements:
                pass
        for node in statements:
            self._statement(node)
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT and not (_COMMENT.fullmatch(token.string) and token.string.isprintable()):
                raise Harmful(f"a generated module has the comment {token.string[:300]!r}")

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.ImportFrom(names=names, level=1, module=None):
                if not all(each.name in _IMPORTED and each.asname is None for each in names):
                    _refuse(node)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id="Choice")) as call):
                if call.keywords or len(call.args) != 2 or ast.unparse(call.args[0]) != repr(name):
                    _refuse(node)
                _literal(call.args[1])
            case ast.Assign() if ast.unparse(node) in _VARIANTS:
                pass
            case ast.ClassDef(bases=[ast.Name(id=base)], decorator_list=[]) if base in _BASES:
                self._keywords(node.keywords)
                for item in node.body:
                    self._field(item)
            case ast.FunctionDef(name="run"):
                self._function(node)
            case _:
                _refuse(node)

    def _keywords(self, keywords: list[ast.keyword]) -> None:
        for keyword in keywords:
            if keyword.arg != "extra" or not isinstance(keyword.value, ast.Constant):
                _refuse(keyword)

    def _field(self, node: ast.stmt) -> None:
        match node:
            case ast.AnnAssign(target=ast.Name(), annotation=annotation, value=default):
                self._type(annotation)
                _default(default)
            case ast.Pass() | ast.Expr(value=ast.Constant(value=str())):
                pass
            case _:
                _refuse(node)

    def _type(self, node: ast.expr) -> None:
        match node:
            case ast.Name(id=name) if name in _SCALARS or name in self._classes:
                pass
            case ast.Constant(value=None):
                pass
            case ast.Constant(value=str(text)) if text not in self.deferred:
                self.deferred.add(text)
                self._type(ast.parse(text, mode="eval").body)
            case ast.Constant(value=str()):
                pass
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                self._type(left)
                self._type(right)
            case ast.Subscript(value=ast.Name(id="Literal"), slice=values):
                _literal(values)
            case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[first, *checks])):
                self._type(first)
                for check in checks:
                    _check(check)
            case ast.Subscript(value=ast.Name(id=generic), slice=arguments) if generic in _GENERIC:
                for argument in arguments.elts if isinstance(arguments, ast.Tuple) else [arguments]:
                    self._type(argument)
            case _:
                _refuse(node)

    def _function(self, node: ast.FunctionDef) -> None:
        if ast.unparse(node.args) not in ("params: Params", "params: Params=Params()"):
            _refuse(node)
        if [ast.unparse(each) for each in node.decorator_list] != [self._decorator]:
            _refuse(node)
        if node.returns is None or ast.unparse(node.returns) not in ("str", "Result"):
            _refuse(node)
        match node.body:
            case [ast.Expr(ast.Constant(value=value))] | [ast.Expr(ast.Constant(str())), ast.Expr(ast.Constant(value))]:
                if value is not ...:
                    _refuse(node)
            case _:
                _refuse(node)


def _defined(node: ast.stmt) -> str | None:
    match node:
        case ast.ClassDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]) if name != "run_async":
            return name
        case _:
            return None


def _default(node: ast.expr | None) -> None:
    match node:
        case None | ast.Constant() | ast.Name(id="UNSET"):
            pass
        case ast.Call(func=ast.Name(id="Default"), args=[value], keywords=[]):
            _literal(value)
        case ast.Call(func=ast.Name(id="Field"), args=[], keywords=keywords):
            for keyword in keywords:
                if keyword.arg != "default" or ast.unparse(keyword.value) != "UNSET":
                    _literal(keyword.value)
        case _:
            _refuse(node)


def _check(node: ast.expr) -> None:
    match node:
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords) if name in _CHECKS:
            for argument in (*arguments, *(keyword.value for keyword in keywords)):
                _literal(argument)
        case _:
            _refuse(node)


def _literal(node: ast.expr) -> None:
    match node:
        case ast.Constant():
            pass
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
            pass
        case ast.List(elts=items) | ast.Tuple(elts=items):
            for item in items:
                _literal(item)
        case ast.Dict(keys=keys, values=values):
            for item in (*keys, *values):
                _literal(item or _refuse(node))
        case _:
            _refuse(node)


def _refuse(node: ast.AST) -> NoReturn:
    raise Harmful(f"a generated module holds {type(node).__name__}: {ast.unparse(node)[:300]}")
