"""`suggest_parser()`: writes a first output parser for a tool, inferred from the tool's results.

The results may be hostile: of their text, models contain only letters, digits and underscores, and string literals.
"""

import ast
import json
import keyword
import re
import symtable
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel

from ipybox.codeact.library import MCPPARSE, MCPTOOLS, Library
from ipybox.codeact.tool_info import ToolInfo, cut, mcp_cards

#: Maximum characters of the models that are returned for the agent to read.
SHOWN = 6000

#: Types of JSON's values, and other names that fields refer to.
_KINDS = {str: "str", bool: "bool", int: "int", float: "float", type(None): "None"}
_USED = {*_KINDS.values(), "list", "Any", "Field", *keyword.kwlist}

_IMPORTS = """from typing import Any

from pydantic import BaseModel, Field"""

_APPENDED = '''

{models}


def run_parsed(params: Params) -> ParseResult:
    """Returns the parsed result of {tool}."""
    from {parse}.{server} import {tool} as parser

    return parser.parse(run(params))
'''

_PARSER = """{imported}from {tools}.{server}.{tool} import {names}


def parse(result: {returned}) -> ParseResult:
    try:
        return ParseResult.model_validate({expression})
    except (SyntaxError, TypeError, ValueError) as exc:
        raise ValueError(f"{tool} returned an unknown format ({{exc!r}}): {{str(result)[:200]}}") from exc
"""


def suggest_parser(tool: str, *samples: Any, workspace: Path | str = ".") -> str:
    """Writes a first output parser for a tool, for you to rename and trim, and returns what it wrote.

    Appends `ParseResult` and `run_parsed` to the tool's module, and writes the parser to `mcpparse`. Run `check()`
    afterwards, as after any change. Works only in a kernel.

    Args:
        tool: Server and tool, such as `github.search_repositories`.
        samples: One or more results of the tool's `run`. A field that is missing in a sample becomes optional.
        workspace: The directory that contains `mcptools`.

    Returns:
        Which files were written, and the models, to rename and trim.

    Raises:
        LookupError: If there is no such tool.
        ValueError: If the tool has a parser, a sample can't be decoded, or no models can be inferred.
    """
    library = Library(workspace)
    found = _tool(library, tool)
    if not samples:
        raise ValueError("no samples: pass what the tool's run() returned")
    values, expression = samples_of(samples)
    taken = symtable.symtable(found.module.text, found.module.path, "exec").get_identifiers()
    models = infer_models(values, taken)
    root = library.workspace.root
    parser = root / f"{found.name.path(MCPPARSE)}.py"
    parser.parent.mkdir(parents=True, exist_ok=True)
    # The parser is written first: it has no effect until the tool's module is extended.
    parser.write_text(_parser(found, expression), encoding="utf-8")
    names = {"server": found.name.category, "tool": found.name.tool, "parse": MCPPARSE}
    with (root / found.module.path).open("a", encoding="utf-8") as module:
        module.write(_APPENDED.format(models=models, **names))
    written = f"wrote {parser.relative_to(root).as_posix()}, and to the end of {found.module.path}:"
    return f"{written}\n{cut(models, SHOWN)}"


def infer_models(samples: Any, taken: Collection[str]) -> str:
    """Returns the source of pydantic models for JSON objects, of which `ParseResult` models each, under free names."""
    models = _Models(taken)
    try:
        models.add("ParseResult", json.loads(json.dumps(samples, allow_nan=False)))
    except RecursionError:
        raise ValueError("the samples are nested too deeply") from None
    return "\n\n\n".join([_IMPORTS, *models.sources.values()])


class _Models:
    """Models of objects. `sources` contains them by name, each after those that it refers to."""

    def __init__(self, taken: Collection[str]):
        self._names = {*taken, *_USED, "BaseModel", "ParseResult"}
        self.sources: dict[str, str] = {}

    def add(self, name: str, objects: Sequence[dict[str, Any]]) -> str:
        """Adds a model of these objects, and returns its name."""
        values: dict[str, list[Any]] = {}
        for each in objects:
            for key, value in each.items():
                values.setdefault(key, []).append(value)
        kinds = {key: self._kind(key, found) for key, found in values.items()}
        lines, used = [f"class {name}(BaseModel):"], {*dir(BaseModel), *_USED, *self.sources}
        for key, kind in kinds.items():
            field, alias = _free("_".join(_words(key)), used), f"alias={key!r}"
            if len(values[key]) < len(objects):
                kind = kind if kind.endswith("None") else f"{kind} | None"
                default = " = None" if field == key else f" = Field(default=None, {alias})"
            else:
                default = "" if field == key else f" = Field({alias})"
            lines.append(f"    {field}: {kind}{default}")
        self.sources[name] = "\n".join(lines if values else [*lines, "    pass"])
        return name

    def _kind(self, key: str, values: Sequence[Any]) -> str:
        """Returns the type of a field's values, or of the items of its list."""
        kinds = {_KINDS[type(value)] for value in values if type(value) in _KINDS}
        kinds -= {"int"} if "float" in kinds else set()
        if objects := [cast("dict[str, Any]", value) for value in values if isinstance(value, dict)]:
            words = (word[:1].upper() + word[1:] for word in _words(key))
            kinds.add(self.add(_free("".join(words), self._names), objects))
        if lists := [cast("list[Any]", value) for value in values if isinstance(value, list)]:
            kinds.add(f"list[{self._kind(f'{key} item', [item for each in lists for item in each])}]")
        return " | ".join(sorted(kinds, key=lambda kind: (kind == "None", kind))) or "Any"


def _words(key: str) -> list[str]:
    words = re.findall("[A-Za-z0-9]+", key)
    return words if words and words[0][0].isalpha() else ["field", *words]


def _free(name: str, used: set[str]) -> str:
    """Returns an unused name, with a number if needed, and adds it to those that are used."""
    free, number = name, 1
    while free in used:
        number += 1
        free = f"{name}_{number}"
    used.add(free)
    return free


def _tool(library: Library, name: str) -> ToolInfo:
    wanted = name.removeprefix(f"{MCPTOOLS}.")
    found = next((each for each in mcp_cards(library) if str(each.name) == wanted), None)
    if found is None:
        raise LookupError(f"no tool {wanted} in {MCPTOOLS}: tools({wanted!r}) lists similar names")
    path = f"{found.name.path(MCPPARSE)}.py"
    if found.parsed or library.module(path):
        raise ValueError(
            f"{wanted} already has a parser: fix {path}, or remove it and the code appended to {found.module.path}"
        )
    return found


def _parser(tool: ToolInfo, expression: str) -> str:
    returned = ast.unparse(tool.run.returns) if tool.run.returns else "str"
    module = re.search(r"\b(json|ast)\.\w+\(", expression)
    return _PARSER.format(
        imported=f"import {module[1]}\n\n" if module else "",
        tools=MCPTOOLS,
        server=tool.name.category,
        tool=tool.name.tool,
        names="ParseResult" if returned == "str" else f"ParseResult, {returned}",
        returned=returned,
        expression=expression,
    )


def samples_of(results: Sequence[Any]) -> tuple[list[dict[str, Any]], str]:
    """Returns JSON objects from one tool's results, and the Python expression that converts `result` to such an object.

    A model needs an object, so a list or another value becomes a field of one. Raises a ValueError if a result can't be
    decoded, or their kinds differ.
    """
    decoded = [_decoded(result) for result in results]
    ways = {(expression, _wrapper(value)) for value, expression in decoded}
    if len(ways) > 1:
        raise ValueError("the samples differ in kind: pass results of successful calls to one tool")
    ((expression, name),) = ways
    values = [value if name is None else {name: value} for value, _ in decoded]
    return values, expression if name is None else f"{{{name!r}: {expression}}}"


def _wrapper(value: Any) -> str | None:
    return None if isinstance(value, dict) else "items" if isinstance(value, list | tuple) else "value"


def _decoded(result: Any) -> tuple[Any, str]:
    if isinstance(result, str):
        return _decoded_text(result, "result")
    if not isinstance(result, BaseModel):
        return result, "json.loads(result)"  # the caller has decoded it
    match list(type(result).model_fields):
        case [only] if isinstance(text := getattr(result, only), str):
            return _decoded_text(text, f"result.{only}")
        case _:
            return result.model_dump(mode="json", by_alias=True), 'result.model_dump(mode="json", by_alias=True)'


def _decoded_text(text: str, expression: str) -> tuple[Any, str]:
    for module, decode in (("json.loads", json.loads), ("ast.literal_eval", ast.literal_eval)):
        try:
            value: Any = decode(text)
            json.dumps(value, allow_nan=False)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            continue
        return value, f"{module}({expression})"
    reason = "neither JSON nor a Python literal that JSON can represent: write the parser by hand"
    raise ValueError(f"the sample is {reason}: {text[:100]!r}")
