"""`suggest_parser()`: writes a first output parser for a tool, inferred from the tool's results.

Libraries infer the models. The results may be hostile, so nothing but models is written.
"""

import ast
import json
import symtable
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ipybox.codeact.library import MCPPARSE, MCPTOOLS, Library, McpTool
from ipybox.codeact.tool_info import cut

#: Maximum characters of models, and of those returned for the agent to read.
MAX_MODELS = 128 << 10
SHOWN = 6000

#: Modules that models may import, functions that fields may call, and names that models import.
_MODULES = ("pydantic", "typing")
_CALLS = ("Field",)
_IMPORTED = ("BaseModel", "Field", "RootModel")

#: The other syntax nodes that models may contain.
_PLAIN = (
    *(ast.alias, ast.Pass, ast.Name, ast.Load, ast.Store, ast.Constant, ast.keyword, ast.Tuple, ast.List),
    *(ast.Subscript, ast.BinOp, ast.BitOr),
)

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
    afterwards, as after any change. Works only in a kernel, and needs ipybox with the extra `parsers`.

    Args:
        tool: Server and tool, such as `github.search_repositories`.
        samples: One or more results of the tool's `run`. A field that is missing in a sample becomes optional.
        workspace: The directory that contains `mcptools`.

    Returns:
        Which files were written, and the models, to rename and trim.

    Raises:
        LookupError: If there is no such tool.
        ValueError: If the tool has a parser, a sample can't be decoded, or no models can be inferred.
        ImportError: If the extra `parsers` is not installed.
    """
    library = Library(workspace)
    found = _tool(library, tool)
    if not samples:
        raise ValueError("no samples: pass what the tool's run() returned")
    decoded = samples_of(samples)
    taken = symtable.symtable(found.module.text, found.module.path, "exec").get_identifiers()
    models = _models(infer_models(decoded.values), taken)
    root = library.workspace.root
    parser = root / f"{found.name.path(MCPPARSE)}.py"
    parser.parent.mkdir(parents=True, exist_ok=True)
    # The parser is written first: it has no effect until the tool's module is extended.
    parser.write_text(_parser(found, decoded), encoding="utf-8")
    names = {"server": found.name.category, "tool": found.name.tool, "parse": MCPPARSE}
    with (root / found.module.path).open("a", encoding="utf-8") as module:
        module.write(_APPENDED.format(models=models, **names))
    written = f"wrote {parser.relative_to(root).as_posix()}, and to the end of {found.module.path}:"
    return f"{written}\n{cut(models, SHOWN)}"


def infer_models(samples: Any) -> str:
    """Returns the source of pydantic models for a list of JSON objects, of which `ParseResult` models each."""
    try:
        from datamodel_code_generator import InputFileType, PythonVersion, generate
        from datamodel_code_generator.enums import DataModelType
        from genson import SchemaBuilder  # pyright: ignore[reportMissingTypeStubs] it has no stubs
    except ImportError as exc:
        reason = "the packages for inferring models are not installed: install ipybox with the extra `parsers`"
        raise ImportError(reason) from exc
    builder: Any = SchemaBuilder()
    try:
        for sample in json.loads(json.dumps(samples, allow_nan=False)):
            builder.add_object(sample)
    except RecursionError:
        raise ValueError("the samples are nested too deeply") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = generate(
            json.dumps(builder.to_schema()),
            input_file_type=InputFileType.JsonSchema,
            output_model_type=DataModelType.PydanticV2BaseModel,
            target_python_version=PythonVersion.PY_311,
            class_name="ParseResult",
            use_standard_collections=True,
            use_union_operator=True,
            disable_timestamp=True,
            disable_future_imports=True,
            custom_file_header=" ",
            formatters=[],
        )
    if len(source := str(models)) > MAX_MODELS:
        raise ValueError(f"the models have {len(source):,} characters; the limit is {MAX_MODELS:,}: trim the samples")
    return source


def _tool(library: Library, name: str) -> McpTool:
    tools = list(library.mcp_tools())
    wanted = name.removeprefix(f"{MCPTOOLS}.")
    found = next((each for each in tools if str(each.name) == wanted), None)
    if found is None:
        raise LookupError(f"no tool {wanted} in {MCPTOOLS}: tools({wanted!r}) lists similar names")
    path = f"{found.name.path(MCPPARSE)}.py"
    if found.run_parsed or library.module(path):
        raise ValueError(
            f"{wanted} already has a parser: fix {path}, or remove it and the code appended to {found.module.path}"
        )
    return found


def _parser(tool: McpTool, samples: "Samples") -> str:
    run = tool.module.function("run")
    returned = ast.unparse(run.returns) if run and run.returns else "str"
    return _PARSER.format(
        imported=f"import {samples.module}\n\n" if samples.module else "",
        tools=MCPTOOLS,
        server=tool.name.category,
        tool=tool.name.tool,
        names="ParseResult" if returned == "str" else f"ParseResult, {returned}",
        returned=returned,
        expression=samples.expression,
    )


def _models(source: str, taken: Collection[str]) -> str:
    """Returns the models under unused names; raises a ValueError if they contain anything but fields."""
    tree = ast.parse(source)
    for node in tree.body:
        if not all(map(_is_harmless, ast.walk(node))):
            raise ValueError(f"the inferred code is not a model: line {node.lineno}: {ast.unparse(node)[:100]}")
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    renamed: dict[str, str] = {}
    for name in classes:
        new = name
        while new in taken or new in _IMPORTED or (new != name and new in classes):
            new += "Model"
        renamed[name] = new
    for name, model in classes.items():
        model.name = renamed[name]
        # Only in annotations: `Field` in values is pydantic's.
        annotations = (field.annotation for field in model.body if isinstance(field, ast.AnnAssign))
        for each in (each for annotation in annotations for each in ast.walk(annotation)):
            if isinstance(each, ast.Name):
                each.id = renamed.get(each.id, each.id)
    # These imports may repeat the tool module's own, but don't change their meaning.
    imports = [ast.unparse(node) for node in tree.body if node not in classes.values()]
    return "\n\n\n".join(["\n".join(imports), *map(ast.unparse, classes.values())])


def _is_harmless(node: ast.AST) -> bool:
    match node:
        case ast.ImportFrom(module=module):
            return module in _MODULES
        case ast.ClassDef(keywords=[], decorator_list=[]):
            return True
        case ast.AnnAssign(target=target):
            return isinstance(target, ast.Name)
        case ast.Call(func=function):
            return isinstance(function, ast.Name) and function.id in _CALLS
        case _:
            return isinstance(node, _PLAIN)


#: Field names that wrap a result that isn't an object, because a model needs an object.
ITEMS, VALUE = "items", "value"


@dataclass(frozen=True)
class Samples:
    """JSON objects from results, and the Python expression that converts `result` to such an object."""

    values: list[dict[str, Any]]
    expression: str
    #: The standard library module that the expression needs, or None.
    module: str | None


def samples_of(results: Sequence[Any]) -> Samples:
    """Returns samples from one tool's results; raises a ValueError if one can't be decoded, or their kinds differ."""
    decoded = [_decoded(result) for result in results]
    ways = {(expression, module, _name(value)) for value, expression, module in decoded}
    if len(ways) > 1:
        raise ValueError("the samples differ in kind: pass results of successful calls to one tool")
    ((expression, module, name),) = ways
    values = [value if name is None else {name: value} for value, _, _ in decoded]
    return Samples(values, expression if name is None else f"{{{name!r}: {expression}}}", module)


def _decoded(result: Any) -> tuple[Any, str, str | None]:
    if isinstance(result, str):
        return _decoded_text(result, "result")
    if not isinstance(result, BaseModel):
        return result, "json.loads(result)", "json"  # the caller has decoded it
    match list(type(result).model_fields):
        case [only] if isinstance(text := getattr(result, only), str):
            return _decoded_text(text, f"result.{only}")
        case _:
            return result.model_dump(mode="json", by_alias=True), 'result.model_dump(mode="json", by_alias=True)', None


def _decoded_text(text: str, expression: str) -> tuple[Any, str, str]:
    try:
        return json.loads(text), f"json.loads({expression})", "json"
    except (ValueError, RecursionError):
        pass
    try:
        value = ast.literal_eval(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        reason = "neither JSON nor a Python literal that JSON can represent: write the parser by hand"
        raise ValueError(f"the sample is {reason}: {text[:100]!r}") from None
    return value, f"ast.literal_eval({expression})", "ast"


def _name(value: Any) -> str | None:
    """Returns the field name that wraps a value, or None for an object."""
    return None if isinstance(value, dict) else ITEMS if isinstance(value, list | tuple) else VALUE
