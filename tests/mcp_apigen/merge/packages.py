"""Packages that are generated and edited."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ipybox.mcp_apigen import ToolModules
from ipybox.mcp_apigen.package.files import render_package
from ipybox.workspace.registrations import ToolSpec, locked_registration, record_file
from tests.written_packages import write_package

PARSER = """

from pydantic import BaseModel


class ParseResult(BaseModel):
    count: int


def run_parsed(params: Params) -> ParseResult:
    from mcpparse.srv import a as parser

    return parser.parse(run(params))
"""

Plant = Callable[[Path], object]


def spec(name: str, description: str = "Does it.", properties: tuple[str, ...] = ()) -> ToolSpec:
    return ToolSpec(name, description, {"properties": {each: {"type": "string"} for each in properties}})


def rendered(*tools: ToolSpec | str, known: dict[str, str] | None = None) -> dict[str, str]:
    specs = [spec(tool) if isinstance(tool, str) else tool for tool in tools]
    return render_package("srv", {"command": "x"}, specs, "seal", known)


def write(package: Path, *tools: ToolSpec | str) -> ToolModules:
    with locked_registration(record_file(package.resolve())) as record:
        known = record.modules
    return write_package(package, rendered(*tools, known=known), untrusted_root=package.parents[1])


def append(package: Path, module: str, text: str = PARSER) -> None:
    with (package / f"{module}.py").open("a") as file:
        file.write(text)


def edit(file: Path) -> str:
    """Changes something in the middle of a file; returns the text as it is then."""
    text = file.read_text()
    changed = text.replace("Does it.", "Does it well.", 1)
    assert changed != text
    file.write_text(changed)
    return changed


def texts(package: Path) -> dict[str, str]:
    files = [path for path in package.iterdir() if path.is_file() and path.stat().st_size < 2**30]
    return {path.name: path.read_text(errors="replace") for path in files}


def state(package: Path) -> dict[str, tuple[int, ...]]:
    """What changes when a file, or the directory, is written or replaced."""
    stats = {str(path): path.lstat() for path in (package.parent, package, *package.rglob("*"))}
    return {path: (each.st_ino, each.st_mtime_ns, each.st_ctime_ns) for path, each in stats.items()}


def nested(depth: int, innermost: dict[str, Any] | None = None) -> dict[str, Any]:
    schema = innermost or {}
    for _ in range(depth):
        schema = {"not": schema}
    return schema
