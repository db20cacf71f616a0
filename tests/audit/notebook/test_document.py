"""Notebooks are valid, whatever code sent to be displayed."""

import json
from typing import Any, cast

import nbformat
import pytest

from ipybox.audit.notebook.document import MAX_DEPTH, code_span, notebook
from ipybox.audit.notebook.session import ExecutedCell, Note
from ipybox.errors import RaisedException
from ipybox.support.outputs import Display, Result, Stream


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def joined(form: Any) -> Any:
    """Returns a form as one text, where the format has a list of lines."""
    return "".join(cast(list[str], form)) if isinstance(form, list) else form


def valid(*outputs: Stream | Display, **fields: Any) -> dict[str, Any]:
    """Returns the only cell of a notebook, after it was written as UTF-8, and checked."""
    written = cast(Any, nbformat).writes(notebook([ExecutedCell(1, "\ud800", outputs=outputs, **fields)])).encode()
    read = json.loads(written, parse_constant=pytest.fail)
    nbformat.validate(read)
    return read["cells"][0]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param({"application/json": {"a": float("nan")}}, {"application/json": {"a": None}}, id="nan"),
        pytest.param({"text/plain": "a\ud800b"}, {"text/plain": ["a\ufffdb"]}, id="surrogate"),
        pytest.param({"a\udfff/b": "x"}, {"a\ufffd/b": ["x"]}, id="surrogate_in_a_type"),
        pytest.param({"model/gltf+json": {"a": [1]}}, {"model/gltf+json": ['{"a": [1]}']}, id="json_as_text"),
        pytest.param({"": ""}, {"": []}, id="no_type"),
        pytest.param({"application/json": None}, {"application/json": None}, id="null"),
        pytest.param({"image/png": "iVBORw0KGgo="}, {"image/png": "iVBORw0KGgo="}, id="image"),
        pytest.param(
            {"application/vnd.x+json": nested(MAX_DEPTH + 900)},
            {"application/vnd.x+json": None},
            id="deep",
        ),
    ],
)
def test_any_form_of_a_display_becomes_a_valid_one(data: dict[str, Any], expected: dict[str, Any]):
    (output,) = valid(Display(data))["outputs"]
    if "application/vnd.x+json" in data:
        assert "more than 64 levels" in json.dumps(output["data"])
        return
    wanted = {mime: joined(form) for mime, form in expected.items()}
    assert {mime: joined(form) for mime, form in output["data"].items()} == wanted


def test_each_output_has_its_type():
    metadata = {"image/png": {"width": float("inf")}}
    outputs = [Stream("stderr", "\ud800"), Display({}, metadata), Result({"text/plain": "1"}, execution_count=-1)]
    cell = valid(
        *outputs, error=RaisedException("E\ud800", "v\ud800", "one\ntwo\ud800"), metadata={"notices": ["\ud800"]}
    )

    stream, display, result, error = cell["outputs"]
    assert stream == {"output_type": "stream", "name": "stderr", "text": ["\ufffd"]}
    assert display == {"output_type": "display_data", "data": {}, "metadata": {"image/png": {"width": None}}}
    assert (result["output_type"], result["execution_count"]) == ("execute_result", 1)
    assert error["traceback"] == ["one", "two\ufffd"]
    assert cell["metadata"] == {"ipybox": {"notices": ["\ufffd"]}}


def test_untrusted_text_in_markdown_is_shown_as_it_is():
    assert code_span("`<b>`![x](y)\n# h\u202e") == r"`'<b>'![x](y)\u000a# h\u202e`"
    (cell,) = notebook([Note("x")])["cells"]
    assert cell["source"] == "x"


def test_only_the_objects_of_the_format_are_nodes():
    cell = notebook([ExecutedCell(1, "", outputs=(Display({"application/json": [{}]}),))]).cells[0]

    assert type(cell.outputs[0].data) is nbformat.NotebookNode
    assert type(cell.outputs[0].data["application/json"][0]) is dict
