"""Packages of real servers and of whole corpora: all of them are imported, and no tool finds anything in them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ipybox.mcp_apigen.package.files import ToolSpec, render_package
from tests.mcp_apigen import golden
from tests.mcp_apigen.conftest import Loader
from tests.mcp_apigen.corpus import own_tools, real_servers
from tests.mcp_apigen.test_package import LINE_LENGTH, case_tools, github_tools
from tests.servers import NODE_MODULES, ROOT

USE = """\
from mcptools.tracker import ping, search_tickets
from mcptools.tracker.search_tickets import (
    FieldsItem,
    FilterItem,
    Params,
    Result,
    Sort,
    StatesItem,
    run,
    run_async,
)

params = Params(
    query="x",
    from_="2026-01-01",
    sort=Sort.created_at,
    fields=[FieldsItem.title, FieldsItem.format],
    page=2,
    states=[StatesItem.open],
    filter=[FilterItem(field="a", value=1.5)],
)
result: Result = run(params)
text: str = ping.run()
title: str = result.tickets[0].title
total: int | None = search_tickets.run(params).total


async def later() -> Result:
    return await run_async(params)
"""


@pytest.fixture(scope="module")
def packages() -> dict[str, list[ToolSpec]]:
    """The tools of each server and corpus."""
    made = {"cases": case_tools(), "tracker": golden.TOOLS, "github": github_tools(), "corpus": own_tools()}
    return made | real_servers()


@pytest.fixture(scope="module")
def written(packages: dict[str, list[ToolSpec]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a generated package for each of them, and code that uses one."""
    root = tmp_path_factory.mktemp("project")
    for name, tools in packages.items():
        package = root / "mcptools" / name
        package.mkdir(parents=True)
        for file, text in render_package(name, {"command": "x"}, tools, "seal").items():
            (package / file).write_text(text, encoding="utf-8")
    (root / "use.py").write_text(USE)
    return root


def test_every_real_server_is_asked() -> None:
    servers = real_servers()
    assert servers.keys() >= {"everything", "filesystem", "memory", "time", "git", "ipybox"}
    assert sum(map(len, servers.values())) >= 50


def test_every_tool_is_imported_with_all_its_properties(packages: dict[str, list[ToolSpec]], load: Loader) -> None:
    for tools in (packages["github"], *real_servers().values()):
        for tool, module in zip(tools, load(tools), strict=True):
            fields = module.Params.model_fields
            assert {field.alias or name for name, field in fields.items()} == tool.input_schema["properties"].keys()
            required = {field.alias or name for name, field in fields.items() if field.is_required()}
            assert required == set(tool.input_schema.get("required", []))


def test_pyright_strict_finds_nothing(written: Path, packages: dict[str, list[ToolSpec]]) -> None:
    config = {
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "venvPath": str(Path(sys.prefix).parent),
        "venv": Path(sys.prefix).name,
        "extraPaths": [str(ROOT)],
    }
    (written / "pyrightconfig.json").write_text(json.dumps(config))
    pyright = ["node", str(NODE_MODULES / "pyright" / "index.js"), "--outputjson", "-p", str(written)]
    checked = subprocess.run(pyright, capture_output=True, text=True, timeout=300, check=False)
    report = json.loads(checked.stdout)
    assert report["generalDiagnostics"] == []
    # Each has an `__init__.py`, and there is the code that uses one.
    assert report["summary"]["filesAnalyzed"] == sum(len(tools) + 1 for tools in packages.values()) + 1


def test_ruff_would_not_format_it_otherwise(written: Path) -> None:
    ruff = Path(sys.executable).parent / ("ruff.exe" if os.name == "nt" else "ruff")
    command = [str(ruff), "format", "--isolated", "--no-cache", "--diff", "--line-length", str(LINE_LENGTH)]
    formatted = subprocess.run([*command, str(written / "mcptools")], capture_output=True, text=True, timeout=60)
    assert formatted.stdout == ""
    assert formatted.returncode == 0
