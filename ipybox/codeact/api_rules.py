"""The rules for the `api.py` of a saved code action: only its interface, nothing of its implementation."""

import ast
from collections.abc import Iterator

from ipybox.codeact.annotation import as_written, kinds, parameters, vague_type
from ipybox.codeact.imports import imports, is_under
from ipybox.codeact.library import GENTOOLS, MCPPARSE, MCPTOOLS, Name
from ipybox.codeact.problem import Problem, at
from ipybox.codeact.source import Function, SourceModule

#: Decorators of the methods that a model's interface may have.
_OF_MODELS = {
    "field_validator", "model_validator", "field_serializer", "model_serializer", "computed_field", "property",
}  # fmt: skip

_TO_IMPL = "move it to impl.py"


def api_problems(module: SourceModule, name: Name) -> Iterator[Problem]:
    """What is wrong with an `api.py`."""
    run = module.function("run")
    if run is None:
        yield at(module, None, "function `run` not found", "define `def run(…) -> …:` at its top level")
    else:
        yield from signature_problems(module, run)
        if run.returns and (vague := vague_type(run.returns)):
            message = f"the return type `{as_written(run.returns)}` doesn't say what `{vague}` contains"
            yield at(module, run, message, "return a pydantic model or a container of models or plain types")
        yield from _body_problems(module, run, name)
    yield from _leaks(module, run, name)
    for statement in module.tree.body:
        if statement is not run:
            yield from _foreign(module, statement)


def signature_problems(module: SourceModule, function: Function) -> Iterator[Problem]:
    """What callers are not told about a function."""
    name = function.name
    for parameter in parameters(function):
        if parameter.annotation is None:
            message = f"parameter `{parameter.arg}` of `{name}` has no type"
            yield at(module, parameter, message, f"annotate it, as in `{parameter.arg}: str`")
    if function.returns is None:
        yield at(module, function, f"`{name}` does not say what it returns", "annotate its result with `-> …`")
    if not (ast.get_docstring(function) or "").strip():
        remedy = "add a docstring that starts with what the caller gets"
        yield at(module, function, f"`{name}` has no docstring", remedy)
    elif not (ast.get_docstring(function, clean=False) or "").split("\n")[0].strip():
        remedy = "start the docstring with what the caller gets"
        yield at(module, function, f"the docstring of `{name}` starts with an empty line", remedy)


def _body_problems(module: SourceModule, run: Function, name: Name) -> Iterator[Problem]:
    """`run` imports impl and returns what its `run` returns for the same arguments."""
    call = _delegated(run, name)
    if call is None:
        awaited = "await " if isinstance(run, ast.AsyncFunctionDef) else ""
        passed = ", ".join(f"{arg}={arg}" if kind == "keyword-only" else arg for arg, kind in kinds(run))
        remedy = (
            f"write only `from . import impl` and `return {awaited}impl.run({passed})`, and move the rest to impl.py"
        )
        yield at(module, run, "the body of `run` must only call impl.py", remedy)
        return
    for arg in _forgotten(run, call):
        remedy = f"pass `{arg}` to impl.run in the same position"
        yield at(module, call, f"`run` does not pass its parameter `{arg}` on unchanged", remedy)


def _delegated(run: Function, name: Name) -> ast.Call | None:
    """The call of impl's `run`, if that is all that is there."""
    body = run.body[1:] if ast.get_docstring(run) is not None else run.body
    match body:
        case [ast.Import() | ast.ImportFrom(), ast.Return(value=value)]:
            pass
        case _:
            return None
    if isinstance(run, ast.AsyncFunctionDef):
        value = value.value if isinstance(value, ast.Await) else None
    if not isinstance(value, ast.Call):
        return None
    implementation = f"{name.module(GENTOOLS)}.impl"
    called = ast.unparse(value.func)
    for each in imports(body[:1], name.module(GENTOOLS)):
        if (each.source, called) in ((implementation, f"{each.bound}.run"), (f"{implementation}.run", each.bound)):
            return value
    return None


def _forgotten(run: Function, call: ast.Call) -> Iterator[str]:
    keywords = {each.arg: ast.unparse(each.value) for each in call.keywords}
    positional = [ast.unparse(each) for each in call.args]
    for index, (arg, kind) in enumerate(kinds(run)):
        match kind:
            case "*":
                passed = f"*{arg}" in positional
            case "**":
                passed = keywords.get(None) == arg
            case "keyword-only":
                passed = keywords.get(arg) == arg
            case _:
                passed = positional[index : index + 1] == [arg] or keywords.get(arg) == arg
        if not passed:
            yield arg


def _leaks(module: SourceModule, run: Function | None, name: Name) -> Iterator[Problem]:
    """Importing the interface must be cheap, and independent of how the tool works."""
    package = name.module(GENTOOLS)
    outside = [statement for statement in module.tree.body if statement is not run]
    for each in imports(outside, package):
        if is_under(each.source, f"{package}.impl"):
            yield at(module, each.node, "importing the interface imports impl", "import it in the body of `run`")
        elif is_under(each.source, MCPTOOLS, MCPPARSE) or (is_under(each.source, GENTOOLS) and _is_impl(each.source)):
            yield at(module, each.node, f"`{each.source}` is an implementation detail", _TO_IMPL)


def _is_impl(source: str) -> bool:
    return source.split(".")[3:4] == ["impl"]


def _foreign(module: SourceModule, statement: ast.stmt) -> Iterator[Problem]:
    """What is not part of an interface."""
    match statement:
        case ast.Import() | ast.ImportFrom() | ast.Assign() | ast.AnnAssign() | ast.Expr(value=ast.Constant()):
            pass
        case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
            pass
        case ast.ClassDef(name=name):
            if not statement.bases and not statement.decorator_list:
                remedy = "derive it from pydantic's BaseModel, or move it to impl.py"
                yield at(module, statement, f"class `{name}` is not a model", remedy)
            for method in statement.body:
                if isinstance(method, Function) and not _belongs_to_model(method):
                    message = f"`{name}.{method.name}` is neither a validator nor a property of a model"
                    yield at(module, method, message, _TO_IMPL)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield at(module, statement, f"function `{name}` is not part of the interface", _TO_IMPL)
        case _ if type(statement).__name__ == "TypeAlias":  # Python 3.12
            pass
        case _:
            yield at(module, statement, "this statement runs when the interface is imported", _TO_IMPL)


def _belongs_to_model(method: Function) -> bool:
    decorators = (each.func if isinstance(each, ast.Call) else each for each in method.decorator_list)
    names = {ast.unparse(each).rpartition(".")[2] for each in decorators}
    return bool(names & _OF_MODELS) or (method.name.startswith("__") and method.name.endswith("__"))
