"""A real server that lists what MCP doesn't allow: what is usable is generated, and the rest is named."""

import json
from pathlib import Path
from typing import Any

import pytest

from ipybox import generate_mcp_sources
from ipybox.code_exec import registration
from ipybox.mcp_apigen import ToolModules
from tests.servers import WAIT, python

OBJECT = {"type": "object"}
GOOD = {"name": "good", "inputSchema": OBJECT}

SERVER = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "initialize":
        info = {"name": "x", "version": "1"}
        answer = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    else:
        answer = {"tools": json.load(open(PATH))}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer}), flush=True)
"""


async def generated(directory: Path, *tools: Any) -> ToolModules:
    file = directory / "tools.json"
    file.write_text(json.dumps(tools))
    params = python(SERVER.replace("PATH", repr(str(file))))
    return await generate_mcp_sources("srv", params, directory / "mcptools", connect_timeout=WAIT)


async def test_usable_tools_are_generated_and_the_others_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    misplaced = {"type": "object", "properties": {"c": {"type": "string"}, "required": ["c"]}}
    modules = await generated(
        tmp_path,
        {"name": "misplaced", "inputSchema": misplaced},
        {"name": "list", "inputSchema": OBJECT, "outputSchema": {"type": "array"}},
        {"name": "null", "inputSchema": None, "annotations": {"readOnlyHint": "maybe"}},
        {"description": "Has no name."},
        GOOD,
        GOOD | {"description": "Again."},
    )
    assert modules == ["misplaced", "list", "null", "good"]
    assert modules.warnings() == [
        "tool 'misplaced': ignored malformed inputSchema.properties.'required'",
        "tool 'list': ignored malformed outputSchema",
        "tool 'null': ignored malformed inputSchema",
        "tool number 4 is omitted: it has no name",
        "tool 'good' is listed twice: the second definition is ignored",
    ]
    assert [f"MCP server srv: {line}" for line in modules.warnings()] == caplog.messages
    package = tmp_path / "mcptools" / "srv"
    assert "c: str = UNSET" in (package / "misplaced.py").read_text()
    assert "-> str:" in (package / "list.py").read_text()
    assert "Again" not in (package / "good.py").read_text()


async def test_a_tool_that_runs_only_as_a_task_is_marked(tmp_path: Path) -> None:
    modules = await generated(
        tmp_path,
        GOOD | {"name": "task", "description": "Trains a model.", "execution": {"taskSupport": "required"}},
        GOOD | {"name": "silent", "execution": {"taskSupport": "required"}},
        GOOD | {"name": "optional", "description": "Does it.", "execution": {"taskSupport": "optional"}},
        GOOD | {"name": "odd", "description": "Does it.", "execution": {"taskSupport": "maybe"}},
    )
    mark = "Can't be called: it runs only as an MCP task, and ipybox doesn't support tasks."
    assert modules.warnings() == [f"tool {name!r}: {mark}" for name in ("task", "silent")]
    package = tmp_path / "mcptools" / "srv"
    assert (package / "task.py").read_text().startswith(f'"""{mark}\n\nTrains a model."""\n')
    assert (package / "silent.py").read_text().startswith(f'"""{mark}"""\n')
    assert "task: Can't be called" in (package / "__init__.py").read_text()
    assert all("task" not in (package / f"{name}.py").read_text() for name in ("optional", "odd"))


async def test_remarks_on_a_hostile_server_are_short(tmp_path: Path) -> None:
    names = [f"{'long' * 500}{number}" for number in range(3)]
    malformed = {"type": "object", "properties": dict.fromkeys((f"p{number}" for number in range(1000)), 5)}
    modules = await generated(
        tmp_path, *({"name": name, "inputSchema": malformed} for name in names), *[None] * 100, GOOD
    )
    assert (len(modules), modules[-1]) == (4, "good")
    lines = modules.warnings()
    assert len(lines) == registration._MAX_REMARKS + 1  # pyright: ignore[reportPrivateUsage]
    assert lines[-1] == "and 83 more remarks"
    assert max(map(len, lines)) <= 501
