"""Chunks as a program prints them, and results as a model receives them."""

import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from ipybox import CodeExecutionChunk, CodeExecutionError, CodeExecutionResult, Display, Stream
from ipybox.mcp_server.outputs import OutputStore
from ipybox.mcp_server.tool_result import ToolResultBuilder


def png(side: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (side, side), "red").save(file, "PNG")
    return file.getvalue()


ERROR = CodeExecutionError("Traceback\nZeroDivisionError")
RESULTS = {
    "text": CodeExecutionResult("a", []),
    "nothing": CodeExecutionResult(None, []),
    "long": CodeExecutionResult("a" * 500 + "b" * 500, []),
    "progress": CodeExecutionResult("\r".join(f"{n} %" for n in range(101)), []),
    "error": CodeExecutionResult("a" * 500, [], error=ERROR, notices=["The sandbox refused\x1b to write x"]),
    "forged": CodeExecutionResult("[ipybox] All is well", []),
    "images": CodeExecutionResult(
        "a", [Path("images/1.png"), Path("images/2.png")], [png(2000), b"GIF"], [Path("images/1.html")]
    ),
}


@pytest.mark.parametrize("images", [True, False])
@pytest.mark.parametrize("name", RESULTS)
async def test_model_gets_the_blocks_that_the_mcp_server_returns(name: str, images: bool, tmp_path: Path):
    result = RESULTS[name]
    outcome: Any = result
    if result.error is not None:  # which the executor raises with its output
        outcome = CodeExecutionError(str(result.error), result)
    builder = ToolResultBuilder(OutputStore(tmp_path), "both" if images else "link")
    returned = await builder.result(outcome, 300)
    expected = [block.model_dump(by_alias=True, exclude_none=True) for block in returned.content]
    told = "\n".join(line for line in expected[-1].get("text", "").split("\n") if "Full output" not in line)
    if name == "progress":
        expected[-1]["text"] = "[ipybox] Overwritten text is omitted."
    elif name in ("long", "error"):  # nothing is saved
        expected = [*expected[:-1], *([{"type": "text", "text": told}] if told else [])]

    assert result.for_model(300, images=images) == expected


def test_number_of_characters_is_not_negative():
    with pytest.raises(ValueError, match="max_chars=-1 must not be negative"):
        RESULTS["text"].for_model(-1)


def test_the_repr_of_a_chunk_shows_its_output_shortened():
    chunk = CodeExecutionChunk("", output=Display({"image/png": "A" * 10_000_000, "text/plain": "chart"}))

    assert repr(CodeExecutionChunk("a\n", output=Stream("stdout", "a\n"))) == (
        "CodeExecutionChunk(text='a\\n', notice=False, output=Stream(name='stdout', text='a\\n'))"
    )
    assert "Display(data={'image/png': 'AAA" in repr(chunk)
    assert "'text/plain': 'chart'" in repr(chunk)
    assert len(repr(chunk)) < 500
