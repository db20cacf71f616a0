"""Tests the structured content of tool results without a kernel: its parts, their bounds, and that it is valid JSON."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from mcp_types import CallToolResult, TextContent

from ipybox.errors import CodeExecutionError, ExecutionTimeoutError, MCPServerError, RaisedException
from ipybox.mcp_server.results.cell_result import CellResult, failure_result
from ipybox.mcp_server.results.store import OutputStore
from ipybox.mcp_server.results.tool_result import NAMED, ToolResultBuilder
from ipybox.support.outputs import ExecutionOutput

NOTHING: dict[str, Any] = {
    "text": "",
    "images": [],
    "files": [],
    "error": None,
    "session": "s",
    "kernel_restarted": False,
    "notices": [],
    "full_output": None,
}


def structure(result: CallToolResult) -> dict[str, Any]:
    """Returns the structured content as a client gets it, which conforms to the schema."""
    content: dict[str, Any] = json.loads(result.model_dump_json(by_alias=True, exclude_none=True))["structuredContent"]
    jsonschema.validate(content, CellResult.model_json_schema())
    assert (content["error"] is not None) == result.is_error
    return content


@pytest.fixture
def builder(tmp_path: Path) -> ToolResultBuilder:
    return ToolResultBuilder(OutputStore(tmp_path), "link", structured=True)


async def test_by_default_there_is_no_structured_content(tmp_path: Path):
    assert (
        await ToolResultBuilder(OutputStore(tmp_path)).result(ExecutionOutput("x", []), 9)
    ).structured_content is None


async def test_a_success_has_everything_that_its_blocks_say(builder: ToolResultBuilder):
    images = [Path(f"/w/{number}.jpg") for number in range(NAMED + 1)]
    output = ExecutionOutput("10 %\r20 %", images, files=[Path("/w/a.tex")], notices=["Denied."], kernel_restarted=True)

    assert structure(await builder.result(output, 9, session="s")) == NOTHING | {
        "text": "20 %",
        "images": [{"path": f"/w/{number}.jpg", "mime_type": "image/jpeg"} for number in range(NAMED)],
        "files": [{"path": "/w/a.tex", "mime_type": "text/latex"}],
        "kernel_restarted": True,
        "notices": ["Denied.", "The same directory contains 1 more images."],
    }
    assert structure(await builder.result(ExecutionOutput(None, []), 9)) == NOTHING | {"session": None}


@pytest.mark.parametrize(
    ("failure", "kind", "name"),
    [
        (CodeExecutionError("trace", ExecutionOutput("o", []), RaisedException("E", "v", "trace")), "exception", "E"),
        (ExecutionTimeoutError("it took long", ExecutionOutput("o", [])), "timeout", None),
        (TimeoutError("it did not start"), "timeout", None),
        (CodeExecutionError("the kernel died", ExecutionOutput("o", [])), "kernel_died", None),
        (CodeExecutionError("ipybox is stopping"), "other", None),
        (ValueError("no such session"), "other", None),
        (OSError(), "other", None),
    ],
)
async def test_an_error_is_apart_from_the_output_before_it(
    failure: Exception, kind: str, name: str | None, builder: ToolResultBuilder
):
    content = structure(await builder.failure(failure, 99, session="s"))
    error = content["error"]

    assert content == NOTHING | {"text": "o" if getattr(failure, "output", None) else "", "error": error}
    assert (error["kind"], error["name"]) == (kind, name)
    assert error["value"] == ("v" if name else str(failure) or type(failure).__name__)
    assert error["traceback"] == ("trace" if name else None)


async def test_each_text_is_truncated_like_the_blocks_and_the_file_with_all_is_named(
    builder: ToolResultBuilder, tmp_path: Path
):
    raised = RaisedException("N" * 500, "v" * 500, "t" * 500)
    output = ExecutionOutput("o" * 500, [])
    content = structure(await builder.failure(CodeExecutionError("t" * 500, output, raised), 30))

    def truncated(letter: str) -> str:
        return f"{letter * 20}\n[... 470 characters omitted ...]\n{letter * 10}"

    error = content["error"]
    assert [content["text"], error["name"], error["value"], error["traceback"]] == [*map(truncated, "oNvt")]
    assert Path(content["full_output"]).read_text() == "o" * 500 + "\n" + "t" * 500
    assert Path(content["full_output"]).is_relative_to(tmp_path)
    assert content["notices"][0].startswith("Full output: ")


async def test_names_of_files_that_are_not_text_are_valid_json(builder: ToolResultBuilder):
    output = ExecutionOutput(None, [Path("/w/\udc80.png")], files=[Path("/\udc80/a.svg")], notices=["\udc80"])
    content = structure(await builder.result(output, 9))

    assert (content["images"][0]["path"], content["files"][0]["path"]) == ("/w/\\udc80.png", "/\\udc80/a.svg")
    assert content["notices"] == ["\\udc80"]
    assert structure(await builder.failure(OSError(2, "no", "/\udc80"), 99))["error"]["value"].endswith("/\\udc80: no")


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (ValueError("no such tool"), "no such tool"),
        (OSError("\x1b"), "\\u001b"),
        (ValueError(), "ValueError"),
        (MCPServerError(" \n"), "MCPServerError"),
    ],
)
def test_result_has_the_message_or_else_the_type_of_a_failure(failure: Exception, text: str):
    assert failure_result(failure) == CallToolResult(content=[TextContent(text=text)], is_error=True)
