import base64
import json
import logging
import re
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import IPython
import pytest
import pytest_asyncio

from ipybox import CodeExecutionError, CodeExecutionResult, CodeExecutor, generate_mcp_sources
from ipybox.guest.tools.content import render, show_beside_structured
from tests import servers
from tests.conftest import Fifo, Mode

DATA = base64.b64encode(b"data").decode()
GIVING = {"command": sys.executable, "args": ["-S", str(Path(__file__).parents[2] / "giving_server.py")]}


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def image(data: bytes, mime_type: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "data": base64.b64encode(data).decode(), "mimeType": mime_type}


def resource(**properties: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": "x:y", **properties}}


AUDIO = {"type": "audio", "data": DATA, "mimeType": "audio/wav"}
LINK = {"type": "resource_link", "name": "n", "uri": "x:y"}
DETAILS = {"mimeType": "text/csv", "size": 12, "title": "Table", "description": "Prices\nof today"}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param([], None, id="nothing"),
        pytest.param([text("a")], "a", id="text"),
        pytest.param([text("")], "", id="empty_text"),
        pytest.param([text("a"), text("b\n"), text("c")], "a\nb\n\nc", id="texts"),
        pytest.param([resource(text="t")], "t", id="text_of_a_resource"),
        pytest.param([LINK], "[resource n: x:y]", id="a_link"),
        pytest.param(
            [LINK | DETAILS], "[resource n: x:y (text/csv, Table, Prices of today, 12 bytes)]", id="a_link_with_details"
        ),
    ],
)
def test_text_is_returned(content: list[dict[str, Any]], expected: str | None):
    assert render(content, "tool") == expected
    assert not Path("toolfiles").exists()


@pytest.mark.parametrize(
    ("block", "label", "suffix"),
    [
        pytest.param(image(b"data"), "image/png", ".png", id="a_picture_without_a_cell"),
        pytest.param(image(b"data", "image/webp"), "image/webp", ".webp", id="another_picture"),
        pytest.param(image(b"data", "IMAGE/GIF; a=b"), "image/gif", ".gif", id="a_type_with_a_parameter"),
        pytest.param(AUDIO, "audio/wav", ".wav", id="audio"),
        pytest.param(resource(blob=DATA), "x:y", ".bin", id="a_blob"),
        pytest.param(resource(blob=DATA, mimeType="text/html"), "text/html x:y", ".html", id="a_blob_of_text"),
        pytest.param(resource(blob=DATA, mimeType="../../etc"), "x:y", ".bin", id="a_type_with_a_path"),
        pytest.param(resource(blob=DATA, mimeType="a/../../b"), "x:y", ".bin", id="a_type_with_a_longer_path"),
        pytest.param(resource(blob=DATA, mimeType="a/b\n[saved]"), "x:y", ".bin", id="a_type_with_a_newline"),
        pytest.param(resource(blob=DATA, uri="file:///a.csv\n.."), "file:///a.csv ..", ".bin", id="a_newline_in_a_uri"),
        pytest.param({**AUDIO, "data": "ZGF0\r\nYQ==\n"}, "audio/wav", ".wav", id="base64_in_lines"),
    ],
)
def test_what_is_not_text_is_saved_to_a_file_that_the_text_names(block: dict[str, Any], label: str, suffix: str):
    shown = render([text("before"), block, text("after")], "tool")
    (path,) = Path("toolfiles").glob("[!.]*")

    assert path.suffix == suffix
    assert path.read_bytes() == b"data"
    assert shown == f"before\n[{label} saved to {path}]\nafter"


@pytest.mark.parametrize(
    "block",
    [
        pytest.param({"type": "hologram", "data": DATA}, id="of_a_later_version"),
        pytest.param({"type": "image", "mimeType": "image/png"}, id="without_data"),
        pytest.param({"type": "audio", "data": None}, id="without_base64"),
        pytest.param({"type": "text", "text": 1}, id="without_text"),
        pytest.param({"type": "resource", "resource": "x:y"}, id="without_a_resource"),
        pytest.param({"type": "resource_link"}, id="without_a_uri"),
        pytest.param({"type": ["text"]}, id="without_a_proper_type"),
        pytest.param({}, id="empty"),
    ],
)
def test_blocks_that_are_not_understood_are_saved_as_json(block: dict[str, Any]):
    shown = render([text("before"), block, text("after")], "tool")
    (path,) = Path("toolfiles").glob("[!.]*")

    assert path.suffix == ".json"
    assert json.loads(path.read_bytes()) == block
    assert shown == f"before\n[application/json saved to {path}]\nafter"


@pytest.mark.parametrize("data", ["ZGF0Y", "ZG-0_A==", "Zä==", "\ud800===", "data:image/png;base64,ZGF0YQ=="])
def test_broken_base64_is_saved_as_it_came(data: str):
    shown = render([{"type": "image", "data": data, "mimeType": "image/png"}, text("after")], "tool")
    (path,) = Path("toolfiles").glob("[!.]*")

    assert path.read_bytes().decode(errors="surrogatepass") == data
    assert shown is not None
    assert shown.startswith(f"[text/plain saved to {path} unchanged, because it is not valid base64: ")
    assert shown.endswith("]\nafter")


def test_what_can_not_be_saved_leaves_the_rest_and_says_why(monkeypatch: pytest.MonkeyPatch):
    Path("toolfiles").write_text("a file")
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")

    shown = render([text("before"), AUDIO, text("after")], "tool")

    assert shown is not None
    assert re.fullmatch(r"before\n\[audio/wav could not be saved and is lost: .*nonexistent.*\]\nafter", shown)


@pytest.mark.parametrize("loaded", [True, False])
def test_beside_structured_content_an_application_gets_no_output_but_a_log(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, loaded: bool
):
    monkeypatch.setitem(sys.modules, "IPython", IPython)
    if not loaded:
        monkeypatch.delitem(sys.modules, "IPython")
    with caplog.at_level(logging.WARNING):
        show_beside_structured([text("a"), AUDIO, LINK, resource(text="t")], "tool")

    saved = {path.suffix: path for path in Path("toolfiles").glob("[!.]*")}
    assert caplog.messages == [
        f"[audio/wav saved to {saved['.wav']}]",
        "[resource n: x:y]",
        f"[text/plain x:y saved to {saved['.txt']}]",
    ]
    assert saved[".txt"].read_text() == "t"
    assert capsys.readouterr() == ("", "")
    assert ("IPython" in sys.modules) == loaded


# In a kernel


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def caller(tmp_path_factory: pytest.TempPathFactory, mode: Mode, shared: None) -> AsyncIterator[CodeExecutor]:
    """An executor in whose workspace `everything` and `giving` are generated; `giving` is also a `ToolRunner`."""
    directory = tmp_path_factory.mktemp("caller")
    servers.register(directory, giving=GIVING)
    await generate_mcp_sources("everything", servers.everything(), directory / "mcptools")
    await generate_mcp_sources("giving", GIVING, directory / "mcptools")
    async with CodeExecutor(working_dir=directory, sandbox=mode.sandbox) as executor:
        await executor.execute("import asyncio, json, os, sys\nfrom registered import giving")
        yield executor


def images(result: CodeExecutionResult) -> list[bytes]:
    return [path.read_bytes() for path in result.images]


def saved(workspace: Path, line: str) -> bytes:
    """Returns what is in the file that a line names."""
    named = re.fullmatch(r"\[.* saved to (toolfiles/.*)\]", line)
    assert named is not None, line
    return (workspace / named[1]).read_bytes()


async def workspace_of(executor: CodeExecutor) -> Path:
    return Path((await executor.execute("print(os.getcwd())")).text or "")


@pytest.mark.parametrize(
    ("mime_type", "suffix"), [("image/png", ".png"), ("image/jpeg", ".jpg"), ("image/jpg", ".jpg")]
)
@pytest.mark.asyncio(loop_scope="module")
async def test_pictures_are_shown_in_the_cell(caller: CodeExecutor, mime_type: str, suffix: str):
    block = image(b"data", mime_type)
    result = await caller.execute(f"from ipybox.guest.tools.content import render\nprint(render([{block!r}], 'tool'))")

    assert result.text == "None"
    assert images(result) == [b"data"]
    assert [path.suffix for path in result.images] == [suffix]


@pytest.mark.asyncio(loop_scope="module")
async def test_pictures_that_are_empty_or_too_large_to_be_shown_are_saved(caller: CodeExecutor):
    code = """
import base64
from ipybox.guest.tools.content import MAX_SHOWN_BYTES, render
for size in (0, MAX_SHOWN_BYTES + 1):
    data = base64.b64encode(bytes(size)).decode()
    print(render([{"type": "image", "data": data, "mimeType": "image/png"}], "large"))
"""
    result = await caller.execute(code)
    workspace = await workspace_of(caller)

    assert result.images == []
    assert [len(saved(workspace, line)) for line in (result.text or "").splitlines()] == [0, (16 << 20) + 1]


@pytest.mark.asyncio(loop_scope="module")
async def test_pictures_of_a_forked_child_are_saved_as_it_can_not_show_them(caller: CodeExecutor):
    code = f"""
import warnings
warnings.simplefilter("ignore")
pid = os.fork()
if pid == 0:
    try:
        print(giving.run_sync("give", {{"result": {{"content": [{image(b"of a child")!r}]}}}}))
    finally:
        os._exit(0)
_ = os.waitpid(pid, 0)
"""
    result = await caller.execute(code)

    assert result.images == []
    assert saved(await workspace_of(caller), result.text or "") == b"of a child"


@pytest.mark.asyncio(loop_scope="module")
async def test_all_content_of_a_real_server_is_there(caller: CodeExecutor):
    code = """
from mcptools.everything import (
    get_annotated_message as message, get_resource_links as links, get_resource_reference as reference,
    get_structured_content as structured, get_tiny_image as picture, gzip_file_as_resource as gzip,
)
shown = [
    message.run(message.Params(messageType="error", includeImage=True)),
    picture.run(picture.Params()),
    links.run(links.Params(count=2)),
    reference.run(reference.Params(resourceType="Text", resourceId=1)),
    reference.run(reference.Params(resourceType="Blob", resourceId=2)),
    gzip.run(gzip.Params(name="a.txt.gz", data="data:text/plain,hello", outputType="resource")),
    structured.run(structured.Params(location="Chicago")).model_dump(),
]
print(json.dumps(shown))
"""
    result = await caller.execute(code)
    annotated, picture, links, text_resource, blob, gzip, structured = json.loads(result.text or "")
    workspace = await workspace_of(caller)

    assert [data[:4] for data in images(result)] == [b"\x89PNG"] * 2
    assert annotated == "Error: Operation failed"
    assert picture.count("\n") == 1
    assert "[resource Text Resource 2: demo://resource/dynamic/text/2 (text/plain, Resource 2: plaintext" in links
    assert "Resource 1: This is a plaintext resource" in text_resource
    (line,) = (line for line in blob.splitlines() if line.startswith("["))
    assert b"Resource 2: This is a base64 blob" in saved(workspace, line)
    assert gzip.endswith(".gz]")
    assert saved(workspace, gzip)[:2] == b"\x1f\x8b"
    assert structured == {"temperature": 36, "conditions": "Light rain / drizzle", "humidity": 82}


@pytest.mark.parametrize(
    "call",
    [
        pytest.param("giving.run_sync('give', {'result': result})", id="run_sync"),
        pytest.param("await giving.run('give', {'result': result})", id="run"),
        pytest.param("giving.run_structured('give_structured', {'result': result})", id="run_structured"),
        pytest.param("tool.run(tool.Params(result=result)).model_dump()", id="generated"),
        pytest.param("(await tool.run_async(tool.Params(result=result))).model_dump()", id="generated_async"),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_beside_structured_content_pictures_are_shown_and_files_named_but_texts_left_out(
    caller: CodeExecutor, call: str
):
    content = [text('{"a": 1}'), image(b"one"), AUDIO, image(b"<svg/>", "image/svg+xml"), LINK, text("a is 1")]
    code = f"""
from mcptools.giving import give_structured as tool
result = {{"content": {content!r}, "structuredContent": {{"a": 1}}}}
print("before")
value = {call}
print(json.dumps(value))
"""
    result = await caller.execute(code)
    before, audio, svg, link, value = (result.text or "").splitlines()
    workspace = await workspace_of(caller)

    assert (before, value) == ("before", '{"a": 1}')
    assert images(result) == [b"one"]
    assert (saved(workspace, audio), saved(workspace, svg)) == (b"data", b"<svg/>")
    assert (audio[-5:], svg[-5:], link) == (".wav]", ".svg]", "[resource n: x:y]")


@pytest.mark.asyncio(loop_scope="module")
async def test_structured_content_without_text_is_the_text_of_a_tool_without_output_schema(caller: CodeExecutor):
    result = {"content": [image(b"one")], "structuredContent": {"a": "ä"}}
    call = f"giving.reply_sync('give', {{'result': {result!r}}})"
    shown = await caller.execute(f"from ipybox.guest.tools.results import text_in\nprint(text_in({call}, 'give'))")

    assert shown.text == '{"a": "ä"}'
    assert images(shown) == [b"one"]


@pytest.mark.asyncio(loop_scope="module")
async def test_pictures_of_tasks_and_threads_at_once_are_all_in_their_cell(caller: CodeExecutor):
    code = f"""
import base64
from concurrent.futures import ThreadPoolExecutor
from mcptools.giving import give_structured as structured
def result(n):
    data = base64.b64encode(b"%d" % n).decode()
    block = {{"type": "image", "data": data, "mimeType": "image/png"}}
    return {{"content": [block, {AUDIO!r}], "structuredContent": {{"a": n}}}}
loop, pool = asyncio.get_running_loop(), ThreadPoolExecutor(4)
values = await asyncio.gather(
    *(structured.run_async(structured.Params(result=result(n))) for n in range(5)),
    *(loop.run_in_executor(pool, structured.run, structured.Params(result=result(n))) for n in range(5, 10)),
    *(asyncio.to_thread(structured.run, structured.Params(result=result(n))) for n in range(10, 15)),
)
print([value.a for value in values])
"""
    result = await caller.execute(code)
    lines = (result.text or "").splitlines()

    assert sorted(map(int, images(result))) == list(range(15))
    assert lines[-1] == str(list(range(15)))
    assert len({*lines[:-1]}) == 15
    assert all(re.fullmatch(r"\[audio/wav saved to toolfiles/give_structured-\d+\.wav\]", line) for line in lines[:-1])
    assert (await caller.execute("print('next')")).images == []


@pytest.mark.asyncio(loop_scope="module")
async def test_what_a_task_of_an_earlier_cell_gets_is_shown_in_the_cell_that_runs(caller: CodeExecutor):
    content = [image(b"late"), LINK]
    code = f"""
from ipybox.guest.tools.content import show_beside_structured
event = asyncio.Event()
async def wait():
    await event.wait()
    show_beside_structured({content!r}, "late")
task = asyncio.create_task(wait())
"""
    earlier = await caller.execute(code)
    result = await caller.execute("event.set()\nawait task")

    assert (earlier.text, earlier.images) == (None, [])
    assert result.text == "[resource n: x:y]"
    assert images(result) == [b"late"]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_picture_that_a_task_gets_between_two_cells_is_saved(caller: CodeExecutor):
    workspace = await workspace_of(caller)
    with closing(Fifo(workspace / "go")) as go, closing(Fifo(workspace / "done")) as done:
        code = f"""
from ipybox.guest.tools.content import render
async def wait():
    with open("go") as go, open("done", "w") as done:
        await asyncio.to_thread(go.readline)
        print(render([{image(b"between")!r}], "between"), file=done)
task = asyncio.create_task(wait())
"""
        await caller.execute(code)
        go.send("go")
        line = await done.line()

    assert saved(workspace, line) == b"between"
    assert (await caller.execute("await task")).images == []


@pytest.mark.asyncio(loop_scope="module")
async def test_an_error_has_the_servers_text_and_names_what_came_beside_it(caller: CodeExecutor):
    content = [text("it broke"), image(b"screenshot"), resource(text="trace")]
    code = f"giving.run_sync('give', {{'result': {{'content': {content!r}, 'isError': True}}}})"
    with pytest.raises(CodeExecutionError) as error:
        await caller.execute(code)
    *_, summary, screenshot, trace = str(error.value).splitlines()

    assert summary == "ToolRunnerError: it broke"
    # A failed cell has no images.
    assert saved(await workspace_of(caller), screenshot) == b"screenshot"
    assert trace == "trace"


@pytest.mark.parametrize(
    ("result", "message"),
    [
        pytest.param({"structuredContent": {"code": 7}}, '{"code": 7}', id="structured"),
        pytest.param({"content": [text("x")], "structuredContent": {"code": 7}}, "x", id="text_and_structured"),
        pytest.param({}, "call to giving.give failed; the server gave no reason", id="nothing"),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_an_error_without_text_has_its_structured_content(
    caller: CodeExecutor, result: dict[str, Any], message: str
):
    with pytest.raises(CodeExecutionError) as error:
        await caller.execute(f"giving.run_sync('give', {{'result': { ({'content': [], 'isError': True} | result)!r}}})")
    assert str(error.value).splitlines()[-1] == f"ToolRunnerError: {message}"


@pytest.mark.asyncio(loop_scope="module")
async def test_content_that_came_instead_of_structured_content_is_named_by_the_error(caller: CodeExecutor):
    result = {"content": [text("sorry"), image(b"instead")]}
    with pytest.raises(CodeExecutionError) as error:
        await caller.execute(f"giving.run_structured('give', {{'result': {result!r}}})")
    summary, line = str(error.value).splitlines()[-2:]

    assert summary.endswith("returned no structured content; its text: sorry")
    assert saved(await workspace_of(caller), line) == b"instead"


MISFITS: dict[str, tuple[str, Any, str]] = {
    "one row of many": (
        "give_table",
        {"rows": [{"state": "on"}] * 999 + [{"state": "archived"}], "mean": 1.5},
        "rows.999.state: Input should be 'on' or 'off'",
    ),
    "many rows": (
        "give_table",
        {"rows": [{"state": "x" * 500}] * 3},
        "rows.0.state: Input should be 'on' or 'off', and 2 more",
    ),
    "text": ("give_structured", {"a": "x"}, "a: Input should be a valid integer"),
    "no field": ("give_structured", {"b": None}, "a: Field required"),
    "null": ("give_structured", {"a": None}, "a: Input should be a valid integer"),
    "infinite integer": ("give_structured", {"a": "Infinity"}, "a: Input should be a valid integer"),
    "other lines": ("give_table", {"counts": {"by\nname": "x"}}, "counts.by name: Input should be a valid integer"),
    "list": ("give_structured", [1, {"a": 1}], "Input should be a valid dictionary"),
    "number": ("give_structured", 0, "Input should be a valid dictionary"),
}


@pytest.mark.parametrize(("tool", "structured", "problem"), MISFITS.values(), ids=MISFITS.keys())
@pytest.mark.asyncio(loop_scope="module")
async def test_a_result_of_other_types_than_the_output_schema_has_is_the_data_of_the_error(
    caller: CodeExecutor, tool: str, structured: Any, problem: str
):
    result: dict[str, Any] = {"content": [], "structuredContent": structured}
    for call in ("tool.run", "await tool.run_async"):
        with pytest.raises(CodeExecutionError) as error:
            await caller.execute(f"from mcptools.giving import {tool} as tool\n{call}(tool.Params(result={result!r}))")
        first, second = str(error.value).splitlines()[-2:]
        assert first.startswith(f"ToolRunnerError: {tool} was called, but its result doesn't fit its output schema: ")
        assert problem in first
        assert len(first) < 500
        assert f"CLIENT.run_structured('{tool}', {{...}})" in second
        data = await caller.execute("print(json.dumps(sys.last_value.data))")
        assert data.text == json.dumps(structured).replace('"Infinity"', "Infinity")


@pytest.mark.parametrize(
    ("structured", "expression", "expected"),
    [
        pytest.param({"mean": "NaN", "rows": []}, "mean", "nan", id="nan"),
        pytest.param({"mean": "-Infinity"}, "mean", "-inf", id="infinity"),
        pytest.param({"mean": None}, "mean", "None", id="null"),
        pytest.param({"more": 1}, "more", "1", id="unknown_field"),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_what_output_schemas_often_leave_out_is_a_result(
    caller: CodeExecutor, structured: dict[str, Any], expression: str, expected: str
):
    result: dict[str, Any] = {"content": [], "structuredContent": structured}
    code = (
        f"from mcptools.giving import give_table as tool\nprint(tool.run(tool.Params(result={result!r})).{expression})"
    )
    assert (await caller.execute(code)).text == expected


@pytest.mark.parametrize(
    ("tool", "result", "expected"),
    [
        pytest.param("give_structured", {"content": [text('{"a": 7}')]}, "Result(a=7)", id="structure_as_text"),
        pytest.param("give_structured", {"content": [LINK, text('{"a": 7}')]}, "Result(a=7)", id="with_a_link"),
        pytest.param("give_list", {"content": [], "structuredContent": [1, "b"]}, "'[1, \"b\"]'", id="list"),
        pytest.param("give_list", {"content": [text("two")], "structuredContent": [1, 2]}, "'two'", id="list_and_text"),
        pytest.param("give", {}, "''", id="nothing"),
        pytest.param("give", {"content": None, "isError": None}, "''", id="null"),
        pytest.param("give", {"content": "done"}, "'done'", id="text_alone"),
        pytest.param("give", {"answer": 42}, "'{\"answer\": 42}'", id="data_alone"),
        pytest.param("give", {"content": [text("a"), {"type": "text", "text": 5}]}, "'a\\n5'", id="number_as_text"),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_result_in_another_form_is_a_result(
    caller: CodeExecutor, tool: str, result: dict[str, Any], expected: str
):
    code = f"from mcptools.giving import {tool} as tool\nprint(repr(tool.run(tool.Params(result={result!r}))))"
    assert ((await caller.execute(code)).text or "").splitlines()[-1] == expected


@pytest.mark.asyncio(loop_scope="module")
async def test_content_in_another_form_is_shown_or_saved(caller: CodeExecutor):
    picture = {name: value for name, value in image(b"\x89PNG\r\n\x1a\nrest").items() if name != "mimeType"}
    content = [text("before"), picture, {"type": "widget", "size": 5}, text("after") | {"annotations": "x"}]
    result = await caller.execute(f"print(giving.run_sync('give', {{'result': {{'content': {content!r}}}}}))")
    *_, before, line, after = (result.text or "").splitlines()

    assert (before, after) == ("before", "after")
    assert images(result) == [b"\x89PNG\r\n\x1a\nrest"]
    assert json.loads(saved(await workspace_of(caller), line)) == {"type": "widget", "size": 5}


@pytest.mark.asyncio(loop_scope="module")
async def test_the_data_of_an_error_are_what_the_tool_returned(caller: CodeExecutor):
    result = {"content": [text("half done")], "structuredContent": {"done": [1]}, "isError": "true"}
    with pytest.raises(CodeExecutionError, match=r"ToolRunnerError: half done$"):
        await caller.execute(f"giving.run_sync('give', {{'result': {result!r}}})")
    assert (await caller.execute("sys.last_value.data")).text == "{'done': [1]}"
    with pytest.raises(CodeExecutionError, match="returned no structured content; its text: sorry"):
        await caller.execute("giving.run_structured('give', {'result': {'content': 'sorry'}})")
    assert (await caller.execute("sys.last_value.data")).text == "'sorry'"


@pytest.mark.asyncio(loop_scope="module")
async def test_no_output_schema_of_a_server_holds_up_a_cell(caller: CodeExecutor):
    arguments = "tool.Params(result={'content': [], 'structuredContent': {'text': 'a' * 60 + '!'}})"
    code = f"from mcptools.giving import give_hostile as tool\ntool.run({arguments}).text[-1]"
    assert (await caller.execute(code, timeout=servers.WAIT)).text == "'!'"
