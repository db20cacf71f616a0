"""The rules for the files of a saved code action."""

import ast
from collections.abc import Iterator

from ipybox.codeact.annotation import as_written, kinds, names_of, parameters
from ipybox.codeact.api_rules import api_problems
from ipybox.codeact.imports import imports
from ipybox.codeact.library import GENTOOLS, Library, Name, is_name
from ipybox.codeact.problem import Problem, at, no_name
from ipybox.codeact.source import Function, SourceModule

FILES = ("__init__.py", "api.py", "impl.py")


def gentool_problems(library: Library, name: Name) -> Iterator[Problem]:
    """Yields the problems of a saved code action; the library notes unreadable files."""
    directory = name.path(GENTOOLS)
    present = {entry.name for entry in library.entries(directory)}
    for file in FILES:
        if file not in present:
            remedy = (
                f"a saved code action needs {', '.join(FILES[:-1])} and {FILES[-1]}: write it, or remove {directory}"
            )
            yield Problem(f"{directory}/{file}", 1, "the file is missing", remedy)
    init, api, impl = (library.module(f"{directory}/{file}") if file in present else None for file in FILES)
    if api:
        yield from api_problems(api, name)
        run = api.function("run")
        if impl and run:
            yield from _impl_problems(impl, api, run, name)
        if init and run:
            yield from _init_problems(init, api, run, name)


def stray_problems(library: Library) -> Iterator[Problem]:
    """Yields entries of `gentools` that are not saved code actions."""
    remedy = "move it into its own directory <category>/<tool>, split into __init__.py, api.py and impl.py"
    for category in library.entries(GENTOOLS):
        path = f"{GENTOOLS}/{category.name}"
        if not category.is_dir:
            if _poses(category.name):
                yield Problem(path, 1, "modules directly in `gentools` are ignored", remedy)
        elif not is_name(category.name):
            yield no_name(path, category.name)
        else:
            for entry in library.entries(path):
                if entry.is_dir and not is_name(entry.name):
                    yield no_name(f"{path}/{entry.name}", entry.name)
                elif not entry.is_dir and _poses(entry.name):
                    message = "a saved code action must be a package, not a module"
                    yield Problem(f"{path}/{entry.name}", 1, message, remedy)


def _poses(file: str) -> bool:
    return file.endswith(".py") and file != "__init__.py"


def _impl_problems(impl: SourceModule, api: SourceModule, api_run: Function, name: Name) -> Iterator[Problem]:
    for shared, node in impl.classes().items():
        if shared in api.classes():
            remedy = f"remove it and write `from .api import {shared}`"
            yield at(impl, node, f"class `{shared}` from api.py is defined again", remedy)
    run = impl.function("run")
    if run is None:
        yield at(impl, None, "function `run` not found", "define it with the same parameters as in api.py")
        return
    yield from _differences(impl, run, api_run)
    defaults = [*run.args.defaults, *filter(None, run.args.kw_defaults)]
    if defaults:
        yield at(impl, defaults[0], "`run` repeats defaults here", "remove them; the defaults in api.py apply")
    known = {each.bound for each in imports(impl.tree.body, name.module(GENTOOLS))} | impl.classes().keys()
    for missing in sorted(names_of(run) & _defined(api) - known):
        yield at(impl, run, f"`{missing}` is not imported", f"write `from .api import {missing}` at the top")


def _differences(impl: SourceModule, run: Function, api_run: Function) -> Iterator[Problem]:
    if type(run) is not type(api_run):
        here, there = (f"{'a' if isinstance(each, ast.AsyncFunctionDef) else ''}sync" for each in (run, api_run))
        yield at(
            impl,
            run,
            f"`run` is {here} here and {there} in api.py",
            f"make it {there}, or make the one in api.py {here}",
        )
    if kinds(run) != kinds(api_run):
        here, there = ast.unparse(run.args), ast.unparse(api_run.args)
        yield at(
            impl, run, f"`run` takes ({here}) here and ({there}) in api.py", "use the same parameters as in api.py"
        )
        return
    for mine, theirs in zip(parameters(run), parameters(api_run), strict=True):
        if as_written(mine.annotation) != as_written(theirs.annotation):
            expected = as_written(theirs.annotation)
            message = f"`{mine.arg}` is typed {as_written(mine.annotation)} here and {expected} in api.py"
            yield at(impl, mine, message, f"write `{mine.arg}: {expected}`")
    if as_written(run.returns) != as_written(api_run.returns):
        expected = as_written(api_run.returns)
        message = f"`run` returns {as_written(run.returns)} here and {expected} in api.py"
        yield at(impl, run, message, f"write `-> {expected}`")


def _init_problems(init: SourceModule, api: SourceModule, run: Function, name: Name) -> Iterator[Problem]:
    """The package exports `run` and what its signature is made of, and nothing else happens in it."""
    wanted = ["run", *sorted(names_of(run) & _defined(api))]
    package = name.module(GENTOOLS)
    bound: set[str] = set()
    for each in imports(init.tree.body, package):
        bound.add(each.bound)
        if not each.source.startswith(f"{package}.api."):
            message = f"importing the package imports `{each.source}`"
            yield at(init, each.node, message, "import only from .api here")
    if missing := [each for each in wanted if each not in bound]:
        yield at(init, None, f"it does not export {_listed(missing)}", f"write `from .api import {', '.join(wanted)}`")
    exported = _exported(init)
    quoted = ", ".join(f'"{each}"' for each in sorted(wanted))
    line = f"__all__ = [{quoted}]"
    if exported is None:
        yield at(init, None, "`__all__` is missing or not a list of names", f"write `{line}`")
    else:
        node, names = exported
        if missing := [each for each in wanted if each not in names]:
            yield at(init, node, f"`__all__` lacks {_listed(missing)}", f"write `{line}`")
        if unknown := [each for each in names if each not in bound and each not in wanted]:
            yield at(init, node, f"`__all__` names {_listed(unknown)}, which is not imported", "remove or import it")
    for statement in init.tree.body:
        match statement:
            case ast.Import() | ast.ImportFrom() | ast.Assign() | ast.AnnAssign() | ast.Expr(value=ast.Constant()):
                pass
            case _:
                remedy = "keep only imports and `__all__` here, and move the rest to api.py or impl.py"
                yield at(init, statement, "the package contains more than exports", remedy)


def _defined(module: SourceModule) -> set[str]:
    """The classes and aliases that a module defines."""
    targets = (each.targets for each in module.tree.body if isinstance(each, ast.Assign))
    names = {target.id for group in targets for target in group if isinstance(target, ast.Name)}
    return names | module.classes().keys()


def _exported(module: SourceModule) -> tuple[ast.stmt, list[str]] | None:
    for statement in module.tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=items) | ast.Tuple(elts=items)):
                values = [item.value for item in items if isinstance(item, ast.Constant)]
                return statement, [value for value in values if isinstance(value, str)]
            case _:
                pass
    return None


def _listed(names: list[str]) -> str:
    return " and ".join(f"`{name}`" for name in names)
