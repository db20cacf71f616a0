"""Checks the tool calls of a cell before it runs: modules, parameters and literal values.

A cell is refused only for errors that it would certainly raise, and for parameters in another style, such as
`per_page` for `perPage`, which an open schema accepts without effect. Anything undecidable counts as correct:

- Imports at the start of the cell are performed first, as Python would. They end at the first statement that could
  affect an import: anything but an import of `mcptools` or a library, or a literal assignment.
- `Params(...)` is checked with the class itself, where it is evaluated unconditionally: in a statement at the top
  level, or in the body of a plain loop there.
- Nothing is reported about calls if a name could mean something else by then (`_is_doubtful`).
"""

import ast
import os
import sys
from bisect import bisect_left
from collections import ChainMap, Counter
from collections.abc import Collection, Iterable, Iterator
from difflib import get_close_matches
from importlib.util import find_spec
from itertools import islice
from types import FunctionType, ModuleType
from typing import Any

from IPython.core.error import InputRejected

from ipybox.guest.tracebacks import is_library

#: The package of all generated packages, the class of a tool's arguments, and the module of its base class.
TOOLS, PARAMS = "mcptools", "Params"
MODELS = "ipybox.guest.tools.models"

#: Maximum characters of a cell, calls checked and findings made, findings and names shown, and entries of a directory.
MAX_CELL, MAX_CALLS, MAX_SHOWN, MAX_NAMES, MAX_ENTRIES = 100_000, 100, 20, 8, 5000

#: Maximum characters of a reason.
MAX_REASON = 200

#: Minimum similarity of a suggested name.
SIMILAR = 0.7

_CODE = (FunctionType, classmethod, staticmethod)

#: Names whose use could rebind others, change modules, or end the cell early.
_UNCERTAIN = {
    "exec", "eval", "globals", "locals", "vars", "setattr", "delattr", "__dict__", "__setattr__", "__globals__",
    "f_globals", "f_locals", "get_ipython", "user_ns", "run_cell", "run_line_magic", "run_cell_magic", "load_session",
    "importlib", "import_module", "__import__", "reload", "modules",
    "patch", "mock", "monkeypatch", "exit", "quit", "_exit", "abort", "kill", "SystemExit",
}  # fmt: skip


class CellCheckError(InputRejected):
    """A cell was refused because of its tool calls. IPython reports it like an error of the cell's code."""

    def _render_traceback_(self) -> list[str]:
        return f"{type(self).__name__}: {self}".splitlines()


def check_cell(tree: ast.AST, source: str, namespace: dict[str, Any]) -> None:
    """Raises a CellCheckError if tool calls of a cell, given as the tree that would run and its text, would fail."""
    if not isinstance(tree, ast.Module) or len(source) > MAX_CELL or not (TOOLS in source or PARAMS in source):
        return
    try:
        found = [*dict.fromkeys(_findings(tree.body, source.split("\n"), namespace))]
    except KeyboardInterrupt:
        raise
    except BaseException:  # such as the error of an import, which the cell will raise
        return
    if found:
        more = [f"and {len(found) - MAX_SHOWN} more"] if len(found) > MAX_SHOWN else []
        raise CellCheckError("\n".join(["nothing ran", *found[:MAX_SHOWN], *more]))


def _suggestion(name: str, known: Iterable[str]) -> str:
    """Returns the end of a sentence about an unknown name: the most similar known name, or else all of them."""
    names = [each for each in known if each.isidentifier() and not each.startswith("_") and each != name]
    if close := get_close_matches(name, names, 1, SIMILAR):
        return f": did you mean {close[0]}?"
    more = [f"and {len(names) - MAX_NAMES} more"] if len(names) > MAX_NAMES else []
    return f": it has {', '.join([*names[:MAX_NAMES], *more])}" if names else ""


def _findings(body: list[ast.stmt], lines: list[str], namespace: dict[str, Any]) -> list[str]:
    found: list[str] = []
    names, start = ChainMap[str, Any]({}, namespace), 0
    for statement in body[: max((n for n, each in enumerate(body, 1) if TOOLS in _packages(each)), default=0)]:
        if not _is_inert(statement):
            break
        start += 1
        names.update(dict.fromkeys(_bindings([statement])))
        missing = islice(_import(statement, names), MAX_CALLS - len(found))
        found += [f"line {statement.lineno}: {text}" for text in missing]
    mentions = [number for number, line in enumerate(lines, 1) if PARAMS in line]
    calls = (call for each in body[start:] for call in _calls(each, mentions))
    problems = ((call, text) for call in islice(calls, MAX_CALLS) for text in _wrong_arguments(call, names))
    wrong = [*islice(problems, MAX_CALLS)]
    if wrong and not _is_doubtful(body, start, namespace, {_root(call.func) for call, _ in wrong}):
        found += [f"line {call.lineno}: {text}" for call, text in wrong]
    return found


def _packages(statement: ast.AST) -> list[str]:
    """Returns the top-level packages that a statement imports; empty names for relative imports."""
    if isinstance(statement, ast.ImportFrom):
        return [(statement.module or "").partition(".")[0] if not statement.level else ""]
    return [alias.name.partition(".")[0] for alias in statement.names] if isinstance(statement, ast.Import) else []


def _is_inert(statement: ast.AST) -> bool:
    """Returns whether a statement can't affect imports."""
    match statement:
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            return aliases[0].name != "*" and all(map(_is_trusted, _packages(statement)))
        case ast.Assign(targets=targets, value=value):
            return all(isinstance(each, ast.Name) for each in targets) and bool(_literals({"": value}))
        case _:
            return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_trusted(package: str) -> bool:
    spec = find_spec(package or ".") if package not in (TOOLS, "ipybox") else None
    origin = str(spec.origin) if spec else ""
    return package in (TOOLS, "ipybox") or origin in ("built-in", "frozen") or is_library(origin)


def _import(statement: ast.stmt, names: ChainMap[str, Any]) -> Iterator[str]:
    """Performs an import of `mcptools`, adds what it binds to `names`, and yields what doesn't exist."""
    for alias in statement.names if isinstance(statement, ast.Import | ast.ImportFrom) else ():
        of_module = isinstance(statement, ast.ImportFrom)
        module = str(statement.module) if of_module else alias.name
        if module.partition(".")[0] != TOOLS:
            continue
        try:
            __import__(module, None, None, [alias.name] if of_module else [])
        except ModuleNotFoundError as error:
            owner, _, name = str(error.name).rpartition(".")
            if not f"{module}.".startswith(f"{error.name}."):
                raise
            yield _has_no(owner, name) if owner else f"there is no {name}: no MCP server is registered"
            continue
        value = sys.modules[module if of_module or alias.asname else TOOLS]
        if of_module:
            value = getattr(value, alias.name, sys.modules.get(f"{module}.{alias.name}", names))
        names[alias.asname or (alias.name if of_module else TOOLS)] = value
        if value is names:
            yield _has_no(module, alias.name)


def _has_no(module: str, name: str) -> str:
    owner = sys.modules[module]
    known: list[str] = []
    for directory in getattr(owner, "__path__", ()):
        with os.scandir(directory) as entries:
            known += sorted(each.name.removesuffix(".py") for each in islice(entries, MAX_ENTRIES))
    what = "tool " if module.count(".") == 1 else ""
    return f"{module} has no {what}{name}{_suggestion(name, known or vars(owner))}"


def _calls(statement: ast.stmt, mentions: list[int], *, every_round: bool = False) -> Iterator[ast.Call]:
    """Yields the calls of `Params` that a statement evaluates, unless a loop has no rounds.

    `mentions` are the lines with `Params`, in order. `every_round` means that no loop in it is left early.
    """
    first = bisect_left(mentions, statement.lineno)
    if first == len(mentions) or mentions[first] > (statement.end_lineno or 0):
        return
    match statement:
        case ast.Expr(value=value) | ast.Assign(value=value):
            yield from _evaluated(value)
        case ast.For(iter=value, body=body):
            yield from _evaluated(value)
            if every_round or not any(isinstance(node, ast.Break | ast.Continue) for node in ast.walk(statement)):
                yield from (call for each in body for call in _calls(each, mentions, every_round=True))
        case _:
            pass


def _evaluated(node: ast.AST) -> Iterator[ast.Call]:
    parts: Iterable[ast.AST] = ()
    match node:
        case (
            ast.ListComp(elt=element, generators=[loop])
            | ast.Starred(value=ast.GeneratorExp(elt=element, generators=[loop]))
        ):
            parts = (loop.iter, *(() if loop.ifs else (element,)))
        case ast.IfExp(test=first) | ast.BoolOp(values=[first, *_]):
            parts = (first,)
        case ast.Lambda() | ast.Compare() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            pass
        case _:
            parts = ast.iter_child_nodes(node)
    for part in parts:
        yield from _evaluated(part)
    if isinstance(node, ast.Call) and PARAMS in (getattr(node.func, "id", ""), getattr(node.func, "attr", "")):
        yield node


def _wrong_arguments(call: ast.Call, names: ChainMap[str, Any]) -> list[str]:
    model = _value(call.func, names)
    given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    if not isinstance(model, type) or MODELS not in sys.modules or len(given) < len(call.keywords):
        return []
    return [f"{ast.unparse(call.func)}{text}" for text in _wrong_values(model, _literals(given), given)]


def _wrong_values(model: type[Any], values: dict[str, Any], given: Collection[str]) -> list[str]:
    """Returns which of the `given` arguments don't exist, are missing, or are rejected, by the `values` that are known.

    Each text is meant to follow the model's name. Only models that are as they were generated are checked.
    """
    from pydantic import ValidationError  # which a cell with `Params` imports anyway

    from ipybox.guest.tools.arguments import as_json
    from ipybox.guest.tools.models import CheckedInput, Input

    if model.__bases__ not in ((Input,), (CheckedInput,)) or any(
        isinstance(each, _CODE) for each in vars(model).values()
    ):
        return []
    others = {key: object() for key in given if key not in values}
    fields = model.model_fields
    try:
        if others:  # only fields of any type accept an object, and no schema is checked with it
            model.__pydantic_validator__.validate_python({**as_json(values), **others})
        else:
            model(**values)
    except ValidationError as error:
        problems: list[Any] = error.errors(include_url=False, include_context=False, include_input=False)
    else:
        problems = []
    if not problems and all(key in fields for key in given):
        return []
    names = {field.alias: key for key, field in fields.items() if field.alias} | dict(zip(fields, fields, strict=True))
    used = {names.get(key, key) for key in given}
    unused = [key for key in fields if key not in used]
    # An open schema accepts anything, but a name that is a parameter in another style is a mistake.
    styles = {_plain(key): key for key in unused if model.model_config.get("extra") == "allow"}
    meant = {key: styles.get(_plain(key)) for key in given if key not in names}
    lines = [f" has no {key}: did you mean {field}?" for key, field in meant.items() if field]
    return lines + _texts(problems, {names.get(key, key) for key in others}, unused)


def _texts(problems: list[Any], others: Collection[str], unused: list[str]) -> list[str]:
    lines: list[str] = []
    missing: list[str] = []
    reasons: dict[str, list[str]] = {}
    for each in problems[:MAX_CALLS]:
        field, *place = map(str, each["loc"] or [""])
        if others and field in ("", *others):  # the check was without the schema, or of the object
            continue
        if not place and each["type"] == "missing":
            missing.append(field)
        elif not place and each["type"] == "extra_forbidden":
            lines.append(f" has no {field}{_suggestion(field, unused)}")
        else:
            reasons.setdefault(field, []).append(": ".join(filter(None, (".".join(place), each["msg"]))))
    for field, texts in reasons.items():
        reason = " ".join("; ".join(texts).split())
        lines.append(f"({field and f'{field}=…'}): {reason[:MAX_REASON]}")
    return lines + ([f" needs {', '.join(missing)}"] if missing else [])


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _literals(values: dict[str, ast.expr]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            continue
    return found


def _value(node: ast.expr, names: ChainMap[str, Any]) -> Any:
    """Returns the value of a name, or of an attribute of a module; None for all other expressions."""
    match node:
        case ast.Name(id=name):
            return names.get(name)
        case ast.Attribute(value=owner, attr=name):
            return vars(module).get(name) if type(module := _value(owner, names)) is ModuleType else None
        case _:
            return None


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_doubtful(body: list[ast.stmt], start: int, namespace: dict[str, Any], names: Collection[str]) -> bool:
    """Returns whether names could mean something else than at the end of the first `start` statements."""
    bound, first = _bindings(body), _bindings(body[:start])
    passed: Counter[str] = Counter()  # modules that other code could change
    for node in (node for statement in body for node in ast.walk(statement)):
        match node:
            case ast.Name(id=name):
                passed[name] += 1
            case ast.Attribute(value=ast.Name(id=name)) | ast.Call(func=ast.Name(id=name)):
                passed[name] -= 1
            case _:
                pass
    return (
        any(bound[name] != first[name] or passed[name] for name in names)
        or any(_is_uncertain(node, {PARAMS, *names}) for statement in body[start:] for node in ast.walk(statement))
        or any(_is_of_user(namespace.get(name)) for name in passed)
    )


def _is_of_user(value: Any) -> bool:
    """Returns whether a value is a module, function or object of the user, whose code could bind names."""
    home = str(getattr(value, "__module__", None) or getattr(value, "__name__", None) or "builtins").partition(".")[0]
    return home == "__main__" or not _is_trusted(home)


def _bindings(body: Iterable[ast.stmt]) -> Counter[str]:
    """Returns how often names are bound, in any scope."""
    bound: Counter[str] = Counter()
    for node in (node for statement in body for node in ast.walk(statement)):
        match node:
            case ast.Name(id=name):
                bound[name] += not isinstance(node.ctx, ast.Load)
            case ast.alias(name=name, asname=asname):
                bound[asname or name.partition(".")[0]] += 1
            case _:  # functions, classes, parameters, handlers and patterns
                bound.update(str(getattr(node, field)) for field in {"name", "arg", "rest"}.intersection(node._fields))
    return bound


def _is_uncertain(node: ast.AST, names: Collection[str]) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name, ctx=ast.Load()):
            return name in _UNCERTAIN
        case ast.Attribute(attr=name):
            return name in names or _root(node) in names
        case ast.Constant(value=str() as text):
            return TOOLS in text or text in names  # as in `patch("mcptools…")` or `variables["list_commits"] = …`
        case ast.Import() | ast.ImportFrom():
            return not _is_inert(node)
        case _:
            return False
