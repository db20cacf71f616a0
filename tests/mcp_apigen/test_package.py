"""Packages as a whole: what is in them, and how it looks."""

import json
import sys
from pathlib import Path
from typing import Any

from ipybox.mcp_apigen.package.files import MANIFEST, ToolSpec, render_package
from tests.mcp_apigen import golden
from tests.mcp_apigen.conftest import Loader
from tests.mcp_apigen.test_schemas import CASES

ROOT = Path(__file__).parents[2]
GITHUB = ROOT.parent / "shared" / "schemas" / "github_tools.json"
LINE_LENGTH = 120


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
