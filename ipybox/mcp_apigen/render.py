"""A tool as the source of a module: its models, then `run` and `run_async`.

Short on purpose: agents read these modules, so what they cost is their size in tokens.
"""

from ipybox.mcp_apigen import naming
from ipybox.mcp_apigen.annotations import Annotator, Definition
from ipybox.mcp_apigen.ir import DictType, EnumType, ListType, Model, Type, UnionType
from ipybox.mcp_apigen.text import LINE_LENGTH, docstring, quote

_SOURCES = {
    "typing": ("Annotated", "Any", "Literal"),
    "ipybox.tool_exec.models": ("UNSET", "Among", "Choice", "Exact", "ToolModel", "ToolParams", "wire"),
    "pydantic": ("Field",),
}


def render_tool(tool_name: str, description: str, params: Model, result: Model | None) -> str:
    """The source of a tool's module; without a result model, the tool returns text."""
    sent = _definitions(params)
    received = [each for each in (_definitions(result) if result else []) if each not in sent]
    fields = {
        each: naming.field_names(item.wire_name for item in each.fields)
        for each in (*sent, *received)
        if isinstance(each, Model)
    }
    # A class that has the name of a field would be shadowed by it in the body of the field's class.
    taken = {"Params", "Result"}.union(*(names.values() for names in fields.values()))
    classes: dict[Definition, str] = {params: "Params"}
    if result:
        classes[result] = "Result"
    for prefix, definitions in (("", sent), ("Result", received)):
        for each in definitions:
            if each not in classes:
                classes[each] = naming.class_name(each.hint, taken, prefix)
    parts: list[str] = []
    defined: set[Definition] = set()
    uses = {"ToolParams", "wire"}
    for is_sent, definitions in ((True, sent), (False, received)):
        annotator = Annotator(classes, is_sent, defined, uses)
        for each in definitions:
            if isinstance(each, EnumType):
                parts.append(_enum(each, classes[each]))
                uses.add("Choice")
            else:
                parts.append(_model(each, annotator, fields[each]))
                uses.add("ToolParams" if is_sent else "ToolModel")
            defined.add(each)
    parts += _functions(tool_name, description, params, result)
    return "\n\n\n".join([_imports(uses), *parts]) + "\n"


def _definitions(root: Model) -> list[Definition]:
    """All that gets a class, before what refers to it; only recursion makes references forward."""
    found: dict[Definition, None] = {}
    visited: set[Definition] = set()

    def visit(kind: Type) -> None:
        match kind:
            case ListType(item=inner) | DictType(value=inner):
                visit(inner)
            case UnionType(options):
                for option in options:
                    visit(option)
            case EnumType():
                found[kind] = None
            case Model() if kind not in visited:
                visited.add(kind)
                for item in kind.fields:
                    visit(item.type)
                found[kind] = None
            case _:
                pass

    visit(root)
    return list(found)


def _enum(enum: EnumType, name: str) -> str:
    members = naming.member_names(enum.values)
    return "\n".join([f"class {name}(Choice):", *(f"    {members[value]} = {quote(value)}" for value in enum.values)])


def _model(model: Model, annotator: Annotator, names: dict[str, str]) -> str:
    base = "ToolParams" if annotator.sent else "ToolModel"
    # Results may grow.
    extra = ', extra="forbid"' if annotator.sent and model.forbid_extra else ""
    body = docstring(model.description, 4)
    if body and model.fields:
        body.append("")
    for item in sorted(model.fields, key=lambda item: not item.required):
        body += annotator.field_lines(item, names[item.wire_name])
    return "\n".join([f"class {annotator.classes[model]}({base}{extra}):", *(body or ["    pass"])])


def _functions(tool_name: str, description: str, params: Model, result: Model | None) -> list[str]:
    argument = "params: Params" if any(item.required for item in params.fields) else "params: Params = Params()"
    returned = "Result" if result else "str"
    method = "run_structured" if result else "run_text"

    def function(head: str, prefix: str, body: list[str]) -> str:
        call = f"CLIENT.{prefix}{method}({quote(tool_name)}, wire(params))"
        return "\n".join([f"{head}({argument}) -> {returned}:", *body, *_return(call, bool(prefix), bool(result))])

    return [function("def run", "", docstring(description, 4)), function("async def run_async", "a", [])]


def _return(call: str, awaited: bool, parsed: bool) -> list[str]:
    call = f"await {call}" if awaited else call
    line = f"    return Result.model_validate({call})" if parsed else f"    return {call}"
    if len(line) <= LINE_LENGTH:
        return [line]
    if parsed:
        return ["    return Result.model_validate(", f"        {call}", "    )"]
    head, _, arguments = call.partition("(")
    return [f"    return {head}(", f"        {arguments[:-1]}", "    )"]


def _imports(uses: set[str]) -> str:
    lines: dict[str, str] = {}
    for source, names in _SOURCES.items():
        if needed := [name for name in names if name in uses]:
            lines[source] = f"from {source} import {', '.join(needed)}"
    standard = lines.pop("typing", None)
    blocks = [standard, "\n".join(lines.values()), "from . import CLIENT"]
    return "\n\n".join(block for block in blocks if block)
