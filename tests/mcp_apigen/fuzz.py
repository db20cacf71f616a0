"""Renders, checks and imports packages of hostile tools, in a process that may do nothing else.

    python -m tests.mcp_apigen.fuzz --schemas 50000 --seed 1

The end is one line of JSON with figures. For a failure it is the smallest schema that was found to make it, and the
exit code is 1.
"""

import argparse
import gc
import importlib
import json
import logging
import sys
import tempfile
import time
import warnings
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ipybox.errors import ToolRunnerError
from ipybox.guest.tools.models import wire
from ipybox.mcp_apigen.package.files import MANIFEST, ToolSpec, render_package
from ipybox.mcp_apigen.render.naming import module_names
from ipybox.mcp_apigen.schema.values import elements, is_object
from ipybox.tool_exec import client
from tests.mcp_apigen.audit import Audit
from tests.mcp_apigen.conftest import FakeRunner
from tests.mcp_apigen.harmless import Module
from tests.mcp_apigen.hostile import hostile_tool
from tests.mcp_apigen.shrink import smallest

#: Tools of one package, besides an ordinary one that must not suffer from the others.
BATCH = 50
#: Every so many packages, one is imported.
IMPORTED = 5

_ORDINARY = ToolSpec(
    "ordinary", "Does it.", {"type": "object", "properties": {"a-b": {"type": "integer"}}, "required": ["a-b"]}
)
#: One whose arguments are checked against its schema, which imports the checker.
_CHECKED = ToolSpec("checked", "", {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}})
_PERMISSIVE = "Python's types can't express"


def named_apart(tools: list[ToolSpec]) -> list[ToolSpec]:
    """Returns tools with distinct names, as clients list them."""
    first = {tool.name: number for number, tool in reversed([*enumerate(tools)])}
    return [
        tool if first[tool.name] == number else replace(tool, name=f"{tool.name}{number}")
        for number, tool in enumerate(tools)
    ]


class Failure(Exception):
    """A hostile tool did harm."""


class Fuzz:
    """One run; what it makes lies below `root`."""

    def __init__(self, root: Path):
        self.imported = self.accepted = self.permissive = self._packages = 0
        self._root = root
        self._audit = Audit(root)
        client.ToolRunner = FakeRunner  # pyright: ignore[reportAttributeAccessIssue]  stands for it in tests
        sys.path.insert(0, str(root))
        sys.dont_write_bytecode = True

    def run(self, seed: int, numbers: range) -> None:
        """Tries the hostile tools of these numbers.

        Raises:
            Failure: One of them does harm, or makes another fail.
        """
        self._try([_ORDINARY, _CHECKED, hostile_tool(0, 0)], imports=True)  # imports lazily what a package needs
        gc.freeze()
        self._audit.arm()
        try:
            for start in range(numbers.start, numbers.stop, BATCH):
                self._batch(
                    seed, range(start, min(start + BATCH, numbers.stop)), imports=start // BATCH % IMPORTED == 0
                )
        finally:
            self._audit.disarm()

    def _batch(self, seed: int, numbers: range, *, imports: bool) -> None:
        tools = [hostile_tool(seed, number) for number in numbers]
        problem = self.problem([_ORDINARY, *tools], imports)
        if problem is None:
            return
        for number, tool in zip(numbers, tools, strict=True):
            if found := self.problem([_ORDINARY, tool], True):
                raise Failure(f"seed {seed}, schema {number}: {found[:1000]}\nsmallest: {self._smallest(tool)}")
        raise Failure(f"seed {seed}, schemas {numbers.start} to {numbers.stop - 1} together: {problem}")

    def problem(self, tools: list[ToolSpec], imports: bool) -> str | None:
        """What is wrong with the package of these tools."""
        try:
            self._try(tools, imports=imports)
        except BaseException as exc:
            if isinstance(exc, KeyboardInterrupt):
                raise
            problem = f"{type(exc).__name__}: {exc}"
        else:
            problem = None
        violations = "; ".join(self._audit.violations)
        self._audit.violations.clear()
        return violations or problem

    def _smallest(self, tool: ToolSpec) -> str:
        try:
            return repr(smallest(tool, lambda other: self.problem([_ORDINARY, other], True) is not None))[:5000]
        except RecursionError:
            return "nested too deep to be shown"

    def _try(self, tools: list[ToolSpec], *, imports: bool) -> None:
        self._packages += 1
        package = f"hostile_{self._packages}"
        tools = named_apart(tools)
        files = render_package(package, {"command": "x"}, tools, "seal")
        modules = module_names([tool.name for tool in tools], {})
        _check_names(files, modules)
        checked = [
            Module(files[f"{module}.py"], tool.name, module) for tool, module in zip(tools, modules, strict=True)
        ]
        for module, each in zip(modules, checked, strict=True):
            self._audit.deferred |= each.deferred
            compile(each.tree, f"{self._root}/{package}/{module}.py", "exec")
        self.permissive += sum(_PERMISSIVE in files[f"{module}.py"] for module in modules)
        if imports:
            self._import(package, files, tools, modules)

    def _import(self, package: str, files: dict[str, str], tools: list[ToolSpec], modules: list[str]) -> None:
        directory = self._root / package
        directory.mkdir()
        for name, text in files.items():
            (directory / name).write_text(text, encoding="utf-8")
        importlib.invalidate_caches()
        try:
            for tool, name in zip(tools, modules, strict=True):
                self._call(tool, importlib.import_module(f"{package}.{name}"))
        finally:
            for name in [name for name in sys.modules if name.partition(".")[0] == package]:
                del sys.modules[name]

    def _call(self, tool: ToolSpec, module: Any) -> None:
        self.imported += 1
        if tool is _ORDINARY and wire(module.Params(a_b=1)) != {"a-b": 1}:
            raise Failure("the ordinary tool suffers")
        params, sent, accepted = module.Params.model_construct(), {}, False
        given = _arguments(tool.input_schema)
        if _has_wire_form(given):
            with suppress(ValidationError):
                params, sent, accepted = module.Params(**given), given, True
        self.accepted += accepted
        module.CLIENT.calls.clear()
        # Params that were not checked may be refused now, and `Result` has no good value from the stand-in.
        with suppress(ValidationError, ToolRunnerError):
            module.run(params)
        if not accepted:
            sent = _defaults_sent(tool.input_schema, module.CLIENT.calls)
        # Models fill in the defaults of required properties, unless the schema has only a permissive one.
        possible = [_text([("reply_sync", tool.name, each)]) for each in (sent, _completed(sent, tool.input_schema))]
        called = _text(module.CLIENT.calls)
        if called not in possible and (accepted or module.CLIENT.calls):
            raise Failure(f"the calls are {called}, not {' or '.join(possible)}")


def _defaults_sent(schema: Any, calls: list[Any]) -> dict[str, Any]:
    """The defaults of required properties in the calls: they are sent without being given."""
    properties = schema.get("properties") if is_object(schema) else None
    if not is_object(properties):
        return {}
    required = elements(schema.get("required")) or []
    names = {name for _, _, arguments in calls for name in arguments if name in required and name in properties}
    return {name: properties[name]["default"] for name in names}


def _completed(value: Any, schema: Any) -> Any:
    """A value with the defaults of the required properties in it."""
    properties = schema.get("properties") if is_object(schema) else None
    if not is_object(value) or not is_object(properties):
        return value
    required = [name for name in elements(schema.get("required")) or [] if isinstance(name, str)]
    missing = {
        name: properties[name]["default"]
        for name in required
        if name not in value and is_object(properties.get(name)) and "default" in properties[name]
    }
    return {name: _completed(each, properties.get(name)) for name, each in {**value, **missing}.items()}


def _text(value: Any) -> str:
    """The JSON text, since in Python 1, 1.0 and True are equal; fields go in the order in which they are declared."""
    return json.dumps(value, sort_keys=True)


def _has_wire_form(value: Any) -> bool:
    """Unlike infinity, lone surrogates and what is too deep."""
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return False
    return True


def _arguments(schema: Any) -> dict[str, Any]:
    """A value for each property of an object, in the order of the schema."""
    properties = schema.get("properties") if is_object(schema) else None
    return {name: _value(each) for name, each in properties.items()} if is_object(properties) else {}


def _value(schema: Any) -> Any:
    """A value that the schema may well allow."""
    if not is_object(schema):
        return None
    if "const" in schema:
        return schema["const"]
    choices = elements(schema.get("enum")) or elements(schema.get("examples"))
    kind = schema.get("type")
    simple: dict[str, Any] = {"string": "abc", "integer": 1, "number": 0.5, "boolean": True, "array": [], "object": {}}
    return choices[0] if choices else simple.get(kind) if isinstance(kind, str) else None


def _check_names(files: dict[str, str], modules: list[str]) -> None:
    expected = {"__init__.py", MANIFEST, *(f"{module}.py" for module in modules)}
    schemas = {f".{module}.schema.json" for module in modules}
    if not expected <= files.keys() <= expected | schemas:
        raise Failure(f"the files of the package are {sorted(files)}")
    if not all(module.isidentifier() and len(module.encode()) < 200 for module in modules):
        raise Failure(f"the modules are {modules}")
    if len({name.casefold() for name in files}) < len(files):
        raise Failure(f"files of a package are one on some file systems: {sorted(files)}")


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description="Renders, checks and imports packages of hostile tools.")
    parser.add_argument("--schemas", type=int, default=50_000, help="how many (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first, to make a failure again")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("error")
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        fuzz = Fuzz(Path(directory))
        try:
            fuzz.run(options.seed, range(options.first, options.first + options.schemas))
        except Failure as exc:
            print(exc)
            return 1
    figures = {"imported": fuzz.imported, "accepted": fuzz.accepted, "permissive": fuzz.permissive}
    print(json.dumps({"schemas": options.schemas, **figures, "seconds": round(time.perf_counter() - started, 1)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
