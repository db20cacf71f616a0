"""Packages as a whole: what they look like, and that type checkers and formatters find nothing in them."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ipybox.mcp_apigen.package import MANIFEST, ToolSpec, render_package
from ipybox.tool_exec.models import wire
from tests.mcp_apigen import golden
from tests.mcp_apigen.conftest import Loader
from tests.mcp_apigen.test_schemas import CASES

ROOT = Path(__file__).parents[2]
GITHUB = ROOT.parent / "shared" / "schemas" / "github_tools.json"
LINE_LENGTH = 110


def github_tools() -> list[ToolSpec]:
    """The tools of GitHub's server; none where they are not present."""
    tools: list[dict[str, Any]] = json.loads(GITHUB.read_bytes()) if GITHUB.exists() else []
    return [ToolSpec(tool["name"], tool.get("description"), tool["inputSchema"]) for tool in tools]


def case_tools() -> list[ToolSpec]:
    """The schemas of the tables, on both sides of a tool."""
    tools: list[ToolSpec] = []
    for name, case in CASES.items():
        schema = {"type": "object", "properties": {"v": case.schema, "w-w": case.schema}, "required": ["v"]}
        tools.append(ToolSpec(name, None, schema | {"$defs": case.defs}, schema | {"$defs": case.defs}))
    return tools


def test_package_looks_like_the_golden_files() -> None:
    expected = {path.name.removesuffix(".txt"): path.read_text(encoding="utf-8") for path in golden.FILES.iterdir()}
    assert golden.render() == expected


def test_rendering_is_deterministic() -> None:
    assert golden.render() == golden.render()


def test_package_lists_its_tools_with_a_line_each(load: Loader) -> None:
    long = "Does " + "very " * 40 + "much. More."
    tools = [
        ToolSpec("get-a", "Gets it, e.g. now. Twice.", {}),
        ToolSpec("b", None, {}),
        ToolSpec("c", long, {}),
        ToolSpec("d", "\n Lines\n of\n text\n\nMore", {}),
    ]
    module = load(tools)[0]
    doc = sys.modules[module.__package__ or ""].__doc__ or ""
    lines = doc.splitlines()[2:]
    assert [lines[0], lines[1], lines[3]] == ["get_a: Gets it, e.g. now.", "b", "d: Lines of text"]
    assert lines[2].startswith("c: Does very")
    assert lines[2].endswith("very…")
    assert all(len(line) <= LINE_LENGTH for line in lines)


def test_manifest_records_what_each_module_was_generated_from() -> None:
    def entry(tool: ToolSpec) -> dict[str, str]:
        manifest = json.loads(render_package("s", {"command": "x"}, [tool], "")[MANIFEST])
        assert manifest["server"] == "s"
        return manifest["modules"]["a_b"]

    tool = ToolSpec("a-b", "Does it.", {"type": "object"})
    assert entry(tool)["tool"] == "a-b"
    assert entry(tool) == entry(ToolSpec("a-b", "Does it.", {"type": "object"}))
    assert entry(tool) != entry(ToolSpec("a-b", "Does harm.", {"type": "object"}))
    assert entry(tool) != entry(ToolSpec("a-b", "Does it.", {"type": "object", "title": "T"}))


def test_both_ways_to_import_work(load: Loader) -> None:
    module = load([ToolSpec("get-a", "Gets it.", {"properties": {"a": {}}})])[0]
    namespace: dict[str, Any] = {}
    code = f"""
from {module.__package__} import get_a
from {module.__package__}.get_a import Params, run
results = [get_a.run(get_a.Params(a=1)), run(Params(a=2))]
"""
    exec(code, namespace)
    assert namespace["results"] == ["text", "text"]
    assert module.run.__doc__ == "Gets it."


def test_github_tools_are_generated_and_imported(load: Loader) -> None:
    tools = github_tools()
    modules = load(tools) if tools else []
    assert len(modules) == len(tools)
    for tool, module in zip(tools, modules, strict=True):
        properties: dict[str, Any] = tool.input_schema.get("properties", {})
        fields = module.Params.model_fields
        assert {field.alias or name for name, field in fields.items()} == properties.keys()
        required = {field.alias or name for name, field in fields.items() if field.is_required()}
        assert required == set(tool.input_schema.get("required", []))
        assert wire(module.Params.model_construct()) == {}


def test_hundred_tools_take_less_than_a_second() -> None:
    tools = (github_tools() or golden.TOOLS * 50)[:100]
    started = time.perf_counter()
    render_package("github", {"command": "x"}, tools, "")
    assert time.perf_counter() - started < 1


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with three generated packages."""
    root = tmp_path_factory.mktemp("project")
    for name, tools in (("cases", case_tools()), ("tracker", golden.TOOLS), ("github", github_tools())):
        package = root / "mcptools" / name
        package.mkdir(parents=True)
        for file, text in render_package(name, {"command": "x"}, tools, "seal").items():
            (package / file).write_text(text, encoding="utf-8")
    return root


def test_pyright_strict_finds_nothing(written: Path) -> None:
    (written / "use.py").write_text(
        """\
from mcptools.tracker import ping, search_tickets
from mcptools.tracker.search_tickets import FilterItem, Params, Result, Sort, run, run_async

params = Params(query="x", from_="2026-01-01", sort=Sort.created_at, filter=[FilterItem(field="a", value=1.5)])
result: Result = run(params)
text: str = ping.run()
title: str = result.tickets[0].title
total: int | None = search_tickets.run(params).total


async def later() -> Result:
    return await run_async(params)
"""
    )
    config = {
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "venvPath": str(Path(sys.prefix).parent),
        "venv": Path(sys.prefix).name,
        "extraPaths": [str(ROOT)],
    }
    (written / "pyrightconfig.json").write_text(json.dumps(config))
    pyright = ROOT / ".npm" / "node_modules" / "pyright" / "index.js"
    checked = subprocess.run(
        ["node", str(pyright), "--outputjson", "-p", str(written)], capture_output=True, text=True, timeout=300
    )
    report = json.loads(checked.stdout)
    assert report["generalDiagnostics"] == []
    assert report["summary"]["filesAnalyzed"] > len(CASES)


def test_ruff_would_not_format_it_otherwise(written: Path) -> None:
    ruff = Path(sys.executable).parent / ("ruff.exe" if os.name == "nt" else "ruff")
    command = [str(ruff), "format", "--isolated", "--no-cache", "--diff", "--line-length", str(LINE_LENGTH)]
    formatted = subprocess.run([*command, str(written / "mcptools")], capture_output=True, text=True, timeout=60)
    assert formatted.stdout == ""
    assert formatted.returncode == 0
