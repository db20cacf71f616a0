import base64
import os
from pathlib import Path
from typing import Any

import pytest

from ipybox import CodeExecutor
from ipybox.tool_exec.content import render

DATA = base64.b64encode(b"data").decode()


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param([], None, id="nothing"),
        pytest.param([text("a")], "a", id="text"),
        pytest.param([text("")], "", id="empty_text"),
        pytest.param([text("a"), text("b\n"), text("c")], "a\nb\n\nc", id="texts"),
        pytest.param([{"type": "resource", "resource": {"uri": "x:y", "text": "t"}}], "t", id="text_of_a_resource"),
        pytest.param([{"type": "resource_link", "name": "n", "uri": "x:y"}], "[resource n: x:y]", id="a_link"),
        pytest.param([{"type": "unknown", "a": 1}], "[{'type': 'unknown', 'a': 1}]", id="an_unknown_block"),
    ],
)
def test_text_is_returned(content: list[dict[str, Any]], expected: str | None):
    assert render(content) == expected


@pytest.mark.parametrize(
    ("block", "suffix"),
    [
        pytest.param({"type": "image", "data": DATA, "mimeType": "image/png"}, ".png", id="a_picture_without_a_cell"),
        pytest.param({"type": "image", "data": DATA, "mimeType": "image/webp"}, ".webp", id="another_picture"),
        pytest.param({"type": "audio", "data": DATA, "mimeType": "audio/x-unknown"}, ".bin", id="audio"),
        pytest.param({"type": "resource", "resource": {"uri": "x:y", "blob": DATA}}, ".bin", id="a_blob"),
        pytest.param(
            {"type": "resource", "resource": {"uri": "x:y", "blob": DATA, "mimeType": "../../etc"}},
            ".bin",
            id="a_type_with_a_path",
        ),
    ],
)
def test_what_is_not_text_is_saved_to_a_file_that_the_text_names(block: dict[str, Any], suffix: str):
    shown = render([text("before"), block])
    (name,) = os.listdir("toolfiles")

    assert Path(name).suffix == suffix
    assert Path("toolfiles", name).read_bytes() == b"data"
    assert shown is not None
    assert shown.startswith("before\n[")
    assert shown.endswith(f"saved to toolfiles/{name}]")


@pytest.mark.parametrize(("mime_type", "suffix"), [("image/png", ".png"), ("image/jpeg", ".jpg")])
@pytest.mark.asyncio(loop_scope="module")
async def test_pictures_are_shown_in_the_cell(executor: CodeExecutor, mime_type: str, suffix: str):
    block = {"type": "image", "data": DATA, "mimeType": mime_type}
    result = await executor.execute(f"from ipybox.tool_exec.content import render\nprint(render([{block!r}]))")

    assert result.text == "None"
    assert [path.read_bytes() for path in result.images] == [b"data"]
    assert [path.suffix for path in result.images] == [suffix]
