"""The interface of a tool: its source without the bodies of functions and without what only makes it work."""

import ast
from collections.abc import Iterator

from ipybox.codeact.card import Card, first_sentence
from ipybox.codeact.library import GENTOOLS, MCPTOOLS, RUN_PARSED
from ipybox.codeact.source import Function, Module

#: Characters of an interface; the longest that was ever generated has 15,000.
MAX_INTERFACE = 20_000

#: Decorators of methods that are part of a model's interface; those of its validators are not.
_VISIBLE = ("property", "computed_field", "cached_property")


def interface(card: Card) -> str:
    """What is needed in order to call a tool: its models, its functions' heads and docstrings, and an example."""
    shown = "\n\n".join(_parts(card.module, whole_doc=card.root == MCPTOOLS))
    if len(shown) > MAX_INTERFACE:
        shown = f"{shown[:MAX_INTERFACE]}…\n# the rest is in {card.module.path}"
    return f"# {card.module.path}\n{shown}\n\n{_example(card)}"


def _parts(module: Module, *, whole_doc: bool) -> Iterator[str]:
    """The parts of a module that its callers need."""
    for index, node in enumerate(module.tree.body):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))) if index == 0:
                # That of a tool's own module says what the tool does; that of an `api.py`, where its functions don't.
                yield module.source_of(node) if whole_doc else f'"""{first_sentence(text)}"""'
            case ast.ClassDef(name=name) if not name.startswith("_"):
                yield _class(module, node)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name in ("run", *RUN_PARSED):
                yield _head(module, node)
            case ast.Assign() | ast.AnnAssign():
                if not _is_private(node):
                    yield module.source_of(node)
            case _:
                pass


def _class(module: Module, node: ast.ClassDef) -> str:
    """A class without the bodies of its methods; of those, without what no caller uses."""
    head = module.between((node.lineno, 0), _start(node.body[0])).rstrip()
    lines = [head]
    for statement in node.body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                if any(_name(each) in _VISIBLE for each in statement.decorator_list):
                    lines.append(f"    @property\n    {_head(module, statement)}")
            case ast.Pass():
                lines[0] += " pass"
            case _:
                comment = module.comment_after(statement)
                lines.append(f"    {module.source_of(statement)}{comment and f'  # {comment}'}")
    return "\n".join(lines)


def _head(module: Module, node: Function) -> str:
    """A function's head and docstring."""
    head = module.between((node.lineno, node.col_offset), _start(node.body[0])).rstrip()
    match node.body[0]:
        case ast.Expr(value=ast.Constant(value=str())) as doc:
            return f"{head}\n{' ' * (node.col_offset + 4)}{module.source_of(doc)}"
        case _:
            return f"{head} ..."


def _start(node: ast.stmt) -> tuple[int, int]:
    """Where a statement starts, with its decorators."""
    match node:
        case ast.FunctionDef(decorator_list=[first, *_]) | ast.ClassDef(decorator_list=[first, *_]):
            return first.lineno, first.col_offset - 1
        case _:
            return node.lineno, node.col_offset


def _is_private(node: ast.Assign | ast.AnnAssign) -> bool:
    target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
    # That there is `run_async`, the example says.
    return isinstance(target, ast.Name) and (target.id.startswith("_") or target.id == "run_async")


def _name(decorator: ast.expr) -> str:
    if isinstance(decorator, ast.Call):
        decorator = decorator.func
    if isinstance(decorator, ast.Attribute):
        return decorator.attr
    return decorator.id if isinstance(decorator, ast.Name) else ""


def _example(card: Card) -> str:
    """How to import and call it, in two lines."""
    unnamed = {each.arg for each in card.run.args.posonlyargs}
    names = [each.name for each in card.parameters if not each.default and each.name.isidentifier()]
    required = ", ".join("…" if name in unnamed and card.root == GENTOOLS else f"{name}=…" for name in names)
    if card.root == GENTOOLS:
        awaited = "await " if isinstance(card.run, ast.AsyncFunctionDef) else ""
        return f"# from {card.name.module(GENTOOLS)} import run\n# result = {awaited}run({required})"
    called = card.parsed or card.run
    awaited = "await " if isinstance(called, ast.AsyncFunctionDef) else ""
    imported = f"# from {card.name.module(MCPTOOLS)} import Params, {called.name}"
    note = "" if card.parsed else "; run_async(params) is the same, awaited"
    return f"{imported}\n# result = {awaited}{called.name}(Params({required})){note}"
