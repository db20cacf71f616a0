"""Renders the source of a tool's module: its description, its types, then `run` and its variants.

The source is short on purpose: agents read these modules, and pay for every token.
"""

import re
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from operator import attrgetter

from ipybox.mcp_apigen.render import naming
from ipybox.mcp_apigen.render.annotations import Annotator, Definition
from ipybox.mcp_apigen.render.text import LINE_LENGTH, block, commented, docstring, literal, quote
from ipybox.mcp_apigen.schema.ir import DictType, EnumType, ListType, Model, ModelField, Type, UnenforcedType, UnionType

_SOURCES = {
    "typing": {"Annotated", "Any", "Literal"},
    "ipybox.tool_exec.client": {"ToolRunner"},
    "ipybox.tool_exec.models": {
        "UNSET", "Among", "CheckedInput", "Choice", "Default", "Exact", "SafeInteger", "Output", "Input",
    },
    "pydantic": {"Field"},
}  # fmt: skip

# Words that add nothing to the names.
_EMPTY = {
    "a", "an", "and", "as", "at", "be", "by", "for", "from", "id", "identifier", "if", "in", "into", "is", "it", "list",
    "name", "number", "of", "on", "or", "pagination", "result", "results", "string", "that", "the", "this", "to",
    "value", "whether", "will", "with",
}  # fmt: skip
_WORD = re.compile(r"[A-Za-z][a-z]+|[A-Z]+(?![a-z])")
# A description with numbers, quotations, remarks or words of another script says something.
_SAYING = re.compile(r"[^\w\s.,/-]|\d", re.ASCII)
_ENDING = re.compile(r"(?<=[a-z]{3})(?:ies|es|s|ed|ing)\b")
_LEAST_PREFIX, _LONGEST_PREFIX = 4, 40

#: The last lines. `run_async` is the last name, after which people's additions start.
_VARIANTS = "run_many, run_many_async = run.many, run.many_async\nrun_async = run.aio"

_WIRE_NAME, _REQUIRED = attrgetter("wire_name"), attrgetter("required")


def render_tool(
    tool_name: str, module: str, description: str, params: Model, result: Model | None
) -> tuple[str, set[str]]:
    """Returns the source of a tool's module, and the names that it imports from its package.

    Without a result model, the tool returns text.
    """
    sent: dict[Definition, bool] = {}
    visited: set[Model] = set()
    _define(params, sent, visited, is_sent=True)
    if result:
        _define(result, sent, visited, is_sent=False)
    fields: dict[Definition, dict[str, str]] = {}
    # In the body of its class, a field would shadow a class of the same name.
    taken = {"Params": 1, "Result": 1}
    for each in sent:
        if isinstance(each, Model):
            fields[each] = naming.field_names(map(_WIRE_NAME, each.fields))
            taken |= dict.fromkeys(fields[each].values(), 1)
    classes: dict[Definition, str] = {params: "Params"}
    if result:
        classes[result] = "Result"
    for each, is_sent in sent.items():
        if each not in classes:
            classes[each] = naming.class_name(each.hint, taken, "" if is_sent else "Result")
    parts: list[str] = []
    defined: set[Definition] = set()
    uses = {"CLIENT"}
    for each, is_sent in sent.items():
        if isinstance(each, EnumType):
            parts.append(_enum(each, classes[each]))
            uses.add("Choice")
        else:
            parts.append(_model(each, Annotator(tool_name, classes, is_sent, defined, uses), fields[each]))
        defined.add(each)
    parts += [_run(tool_name, module, params, result), _VARIANTS]
    head = [*docstring(description), "", _import("from . import", uses)]
    return "\n".join([*head, *_apart(parts)]).lstrip("\n") + "\n", uses


def _apart(parts: list[str]) -> Iterator[str]:
    """Yields the parts with empty lines before them: two around classes and functions, none between single lines."""
    blocks = ("class ", "@")
    for last, part in pairwise(["", *parts]):
        if part.startswith(blocks) or last.startswith(blocks):
            yield f"\n\n{part}"
        else:
            yield f"\n{part}" if not last or "\n" in part + last else part


def _define(kind: Type, found: dict[Definition, bool], visited: set[Model], *, is_sent: bool) -> None:
    """Adds everything that gets a class, before what refers to it; only recursion leads to forward references."""
    match kind:
        case ListType(item=inner) | DictType(value=inner) | UnenforcedType(meant=inner):
            _define(inner, found, visited, is_sent=is_sent)
        case UnionType(options):
            for option in options:
                _define(option, found, visited, is_sent=is_sent)
        case EnumType():
            found.setdefault(kind, is_sent)
        case Model() if kind not in visited:
            visited.add(kind)
            for item in kind.fields:
                _define(item.type, found, visited, is_sent=is_sent)
            found[kind] = is_sent
        case _:
            pass


def _enum(enum: EnumType, name: str) -> str:
    members = naming.member_names(enum.values)
    head, values = f"{name} = Choice(", " ".join(members)
    if all(value == member for value, member in members.items()):
        line = f"{head}{quote(name)}, {quote(values)})"
        if len(line) <= LINE_LENGTH:
            return line
        wrapped = textwrap.wrap(values, LINE_LENGTH - 8, break_long_words=False, break_on_hyphens=False)
        strings = [f'"{each} "' for each in wrapped[:-1]] + [f'"{wrapped[-1]}",']
        return "\n".join([head, f"    {quote(name)},", *(f"    {each}" for each in strings), ")"])
    named = {member: value for value, member in members.items()}
    line = f"{head}{quote(name)}, {literal(named)})"
    if len(line) <= LINE_LENGTH:
        return line
    return "\n".join([head, f"    {quote(name)},", *block(named, "", indent=4), ")"])


def _model(model: Model, annotator: Annotator, names: dict[str, str]) -> str:
    base = "Output" if not annotator.sent else "CheckedInput" if model.checked else "Input"
    annotator.uses.add(base)
    # Servers may add fields to results.
    extra = ', extra="forbid"' if annotator.sent and model.forbid_extra else ""
    body = docstring(model.description, 4)
    if body and model.fields:
        body.append("")
    words = " ".join(_WORD.findall(" ".join([annotator.tool_name, *names]))).lower()
    known = {*_ENDING.sub("", words).split()}
    # Fields that callers must give come first.
    needed: list[ModelField] = []
    others: list[ModelField] = []
    for item in model.fields:
        (needed if item.required and item.default is None else others).append(item)
    for item in needed + others:
        lines = annotator.field_lines(item, names[item.wire_name])
        if not is_redundant(item.description, known):
            # At the end of the line if there is room, else below.
            line = commented(lines[0], item.description) if len(lines) == 1 else None
            lines = [line] if line else [*lines, *docstring(item.description, 4)]
        body += lines
    return "\n".join([f"class {annotator.classes[model]}({base}{extra}):", *(body or ["    pass"])])


def _run(tool_name: str, module: str, params: Model, result: Model | None) -> str:
    # A default of `Params()` would check defaults and the schema when the module is imported.
    required = params.checked or any(map(_REQUIRED, params.fields))
    argument = "params: Params" if required else "params: Params = Params()"
    named = "" if tool_name == module else f"({quote(tool_name)})"
    head = f"def run({argument}) -> {'Result' if result else 'str'}:"
    return f"@CLIENT.tool{named}\n{head} ..."


def render_imports(names: set[str]) -> list[str]:
    """Returns the lines that import names for the modules of a package."""
    lines: list[str] = []
    for source, known in _SOURCES.items():
        if names & known:
            lines += [_import(f"from {source} import", names & known), *([""] if source == "typing" else [])]
    return lines


def _import(head: str, names: set[str]) -> str:
    ordered = sorted(sorted(names), key=str.isupper, reverse=True)  # as ruff does: constants first
    line = f"{head} {', '.join(ordered)}"
    return line if len(line) <= LINE_LENGTH else "\n".join([f"{head} (", *(f"    {name}," for name in ordered), ")"])


def is_redundant(description: str, known: set[str]) -> bool:
    """Returns whether each word of a description occurs in a name or adds nothing."""
    if _SAYING.search(description):
        return False
    for word in map(str.lower, _WORD.findall(description)):
        stem = _ENDING.sub("", word)
        # Names are often abbreviated, as `repo` is.
        if word in _EMPTY or stem in known:
            continue
        lengths = range(_LEAST_PREFIX, min(len(stem), _LONGEST_PREFIX) + 1)
        if not any(stem[:length] in known for length in lengths):
            return False
    return True
