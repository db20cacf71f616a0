"""A tool's interface: its source without function bodies and implementation details.

The short interface, shown by searches, truncates texts and omits what the example shows anyway. Its first line is the
import.
"""

import ast
import json
from collections.abc import Iterator

from ipybox.codeact.library import GENTOOLS, MCPTOOLS, RUN_PARSED
from ipybox.codeact.source import Function, SourceModule
from ipybox.codeact.tool_info import ToolInfo, cut, first_sentence, has_default, one_line, text_of

#: Maximum characters of an interface. The longest one ever generated has 15,000.
MAX_INTERFACE = 20_000

#: Maximum characters of a note in a short interface, for a required field, and for an optional one.
REQUIRED_NOTE = 120
NOTE = 60
#: Maximum characters of a tool's summary in a short interface.
SUMMARY = 120

#: Decorators of the methods to show in a model's interface.
_VISIBLE = ("property", "computed_field", "cached_property")


def interface(card: ToolInfo) -> str:
    """Returns what a caller needs: the tool's models, its functions' heads and docstrings, and an example."""
    shown = "\n\n".join(_parts(card, short=False))
    return f"# {card.module.path}\n{_bounded(card, shown)}\n\n# {_import(card)}\n# {_call(card)}"


def short_interface(card: ToolInfo) -> str:
    """Returns the interface with truncated texts, and for an MCP tool with an example instead of functions."""
    said = f"  # {cut(card.summary, SUMMARY)}" if card.root == MCPTOOLS and card.summary else ""
    shown = "\n".join(_parts(card, short=True))
    return f"{_import(card)}{said}\n{_bounded(card, shown)}\n# {_call(card)}"


def _bounded(card: ToolInfo, shown: str) -> str:
    return shown if len(shown) <= MAX_INTERFACE else f"{shown[:MAX_INTERFACE]}…\n# the rest is in {card.module.path}"


def _parts(card: ToolInfo, *, short: bool) -> Iterator[str]:
    module = card.module
    called = ("run", *RUN_PARSED) if not short else ("run",) if card.root == GENTOOLS else ()
    for index, node in enumerate(module.tree.body):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))) if index == 0 and not short:
                # An MCP tool is described by its module docstring, a saved code action by the docstring of `run`.
                yield module.source_of(node) if card.root == MCPTOOLS else f'"""{first_sentence(text)}"""'
            case ast.ClassDef(name=name) if not name.startswith("_"):
                yield _class(module, node, short=short)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name in called:
                yield _head(module, node)
            case ast.Assign() | ast.AnnAssign():
                if not _is_private(node):
                    source = module.source_of(node)
                    yield _in_short(node, source) if short else source
            case _:
                pass


def _in_short(node: ast.stmt, source: str) -> str:
    """Returns an assignment on one line, with a choice's values instead of its members: `Params` accepts both."""
    match node:
        case ast.Assign(targets=[ast.Name(name)], value=ast.Call(func=ast.Name("Choice"), args=[_, given])):
            values = given.values if isinstance(given, ast.Dict) else [given]
            texts = [each.value for each in values if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            if isinstance(given, ast.Dict) and any(text.split() != [text] for text in texts):
                return f"{name} = Choice({json.dumps(texts, ensure_ascii=False)})"
            return f"{name} = Choice({json.dumps(' '.join(texts), ensure_ascii=False)})"
        case _:
            return one_line(source)


def _class(module: SourceModule, node: ast.ClassDef, *, short: bool) -> str:
    """Returns a class's fields and properties; if `short`, with one line per field."""
    lines = [module.between((node.lineno, 0), _start(node.body[0])).rstrip()]
    for statement, following in zip(node.body, [*node.body[1:], None], strict=True):
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                if any(_name(each) in _VISIBLE for each in statement.decorator_list):
                    lines.append(f"    @property\n    {_head(module, statement)}")
            case ast.Pass():
                lines[0] += " pass"
            case ast.Expr(value=ast.Constant(value=str())) if short:
                pass
            case _:
                source, note = module.source_of(statement), module.comment_after(statement)
                if short:
                    optional = isinstance(statement, ast.AnnAssign) and has_default(statement.value)
                    note = one_line(note or text_of(following))
                    if optional and len(note) > NOTE:
                        note = first_sentence(note)
                    note = cut(note, NOTE if optional else REQUIRED_NOTE)
                    source = one_line(source)
                lines.append(f"    {source}{note and f'  # {note}'}")
    return "\n".join(lines) if len(lines) > 1 or not short or lines[0].endswith("pass") else f"{lines[0]} ..."


def _head(module: SourceModule, node: Function) -> str:
    head = module.between((node.lineno, node.col_offset), _start(node.body[0])).rstrip()
    match node.body[0]:
        case ast.Expr(value=ast.Constant(value=str())) as doc:
            return f"{head}\n{' ' * (node.col_offset + 4)}{module.source_of(doc)}"
        case _:
            return f"{head} ..."


def _start(node: ast.stmt) -> tuple[int, int]:
    """Returns the line and column where a statement starts, including decorators."""
    match node:
        case ast.FunctionDef(decorator_list=[first, *_]) | ast.ClassDef(decorator_list=[first, *_]):
            return first.lineno, first.col_offset - 1
        case _:
            return node.lineno, node.col_offset


def _is_private(node: ast.Assign | ast.AnnAssign) -> bool:
    target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
    name = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
    # The example already shows `run`, and the skill names its variants.
    return isinstance(name, ast.Name) and (name.id.startswith("_") or name.id in ("run_async", "run_many"))


def _name(decorator: ast.expr) -> str:
    if isinstance(decorator, ast.Call):
        decorator = decorator.func
    if isinstance(decorator, ast.Attribute):
        return decorator.attr
    return decorator.id if isinstance(decorator, ast.Name) else ""


def _import(card: ToolInfo) -> str:
    module, _, tool = card.name.module(card.root).rpartition(".")
    return f"from {module}.{tool} import run" if card.root == GENTOOLS else f"from {module} import {tool}"


def _call(card: ToolInfo) -> str:
    unnamed = {each.arg for each in card.run.args.posonlyargs}
    names = [each.name for each in card.parameters if not each.default and each.name.isidentifier()]
    required = ", ".join("…" if name in unnamed and card.root == GENTOOLS else f"{name}=…" for name in names)
    if card.root == GENTOOLS:
        awaited = "await " if isinstance(card.run, ast.AsyncFunctionDef) else ""
        return f"result = {awaited}run({required})"
    called, tool = card.parsed or card.run, card.name.tool
    awaited = "await " if isinstance(called, ast.AsyncFunctionDef) else ""
    result = f" -> {card.module.source_of(called.returns)}" if called.returns else ""
    return f"{awaited}{tool}.{called.name}({tool}.Params({required})){result}"
