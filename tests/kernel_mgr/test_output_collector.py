import base64
import json
from pathlib import Path
from typing import Any

import pytest

from ipybox.guest.protocol import VARIABLE_ERROR
from ipybox.kernel_mgr import display_files, display_forms
from ipybox.kernel_mgr import output_collector as outputs_module
from ipybox.kernel_mgr.display_files import DisplayDirectory
from ipybox.kernel_mgr.display_forms import MAX_ERROR, plain, text_of, text_of_all
from ipybox.kernel_mgr.execution import Execution
from ipybox.kernel_mgr.messages import MAX_STREAM_BYTES, Message
from ipybox.kernel_mgr.output_collector import OutputCollector
from ipybox.support.errors import ExecutionError, VariableError
from ipybox.support.outputs import Clear, Display, ExecutionResult, Stream

PNG = b"\x89PNG\r\n\x1a\n..."
JPEG = b"\xff\xd8\xff..."


class Collector(OutputCollector):
    """A collector that also keeps what it reports as it arrives."""

    def __init__(self) -> None:
        self.arrived: list[Stream | Display | Clear] = []
        super().__init__(lambda output, _: self.arrived.append(output))

    def shown(self, message: Message) -> str:
        """Adds a message and returns the text of what it adds to a stream."""
        self.arrived.clear()
        self.add(message)
        return "".join(map(text_of, self.arrived))

    def text(self) -> str | None:
        """Returns the text of all outputs."""
        return text_of_all(self.outputs())

    def save(self, directory: Path, *, untrusted_root: Path | None = None) -> ExecutionResult:
        """Saves the files of the displays."""
        return DisplayDirectory(directory, untrusted_root, None).save_displays(self.outputs())


def message(type_: str, **content: Any) -> Message:
    return Message("iopub", {"msg_type": type_}, {}, json.dumps(content).encode())


def stream(text: str) -> Message:
    return message("stream", name="stdout", text=text)


def display(data: dict[str, Any] | str, display_id: str | None = None, type_: str = "display_data") -> Message:
    data = {"text/plain": data} if isinstance(data, str) else data
    return message(type_, data=data, transient={"display_id": display_id} if display_id else {})


def png(data: bytes = PNG) -> dict[str, Any]:
    return {"image/png": base64.b64encode(data).decode(), "text/plain": "<Figure size 640x480 with 1 Axes>"}


def collected(*messages: Message) -> Collector:
    outputs = Collector()
    for each in messages:
        outputs.add(each)
    return outputs


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        pytest.param([], None, id="nothing"),
        pytest.param([stream("")], None, id="empty_text"),
        pytest.param([stream("\n")], "", id="a_newline"),
        pytest.param([stream("a\n\n")], "a\n", id="only_one_final_newline_goes"),
        pytest.param([stream("a"), stream("b")], "ab", id="writes_are_joined"),
        pytest.param([display("1"), display("2")], "1\n2", id="displays_have_lines_of_their_own"),
        pytest.param([stream("a"), display("1"), stream("b")], "a\n1\nb", id="a_display_between_writes"),
        pytest.param([stream("a\n"), display("1\n"), stream("b\n")], "a\n1\nb", id="no_empty_lines_are_added"),
        pytest.param([stream("a"), display(""), stream("b")], "ab", id="an_empty_display_is_none"),
        pytest.param([stream("a"), display(png()), stream("b")], "ab", id="a_picture_has_no_text"),
        pytest.param([display("1", type_="execute_result")], "1", id="a_result"),
        pytest.param([message("status", execution_state="busy"), message("unknown")], None, id="other_messages"),
        pytest.param([display({"text/plain": ["a\n", "b"]})], "a\nb", id="a_list_of_lines"),
        pytest.param([stream("\x1b[31mr"), stream("ed\x1b[0"), stream("m!")], "red!", id="split_control_sequences"),
        pytest.param([stream("a\r"), stream("\nb")], "a\nb", id="split_line_end"),
    ],
)
def test_text_is_all_in_order_without_its_final_newline(messages: list[Message], expected: str | None):
    assert collected(*messages).text() == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param({"text/plain": "plain", "text/html": "<b>"}, "plain", id="informative_text_wins"),
        pytest.param(
            {"text/plain": "<a.b.C object at 0x7f>", "text/latex": "$x$"}, "$x$", id="an_address_says_nothing"
        ),
        pytest.param({"text/plain": "", "text/html": "<pre></pre>"}, None, id="an_empty_line_of_rich"),
        pytest.param({"text/plain": "<a.b.C object at 0x7f>"}, "<a.b.C object at 0x7f>", id="but_more_than_nothing"),
        pytest.param(
            {"text/plain": "<IPython.core.display.Markdown object>", "text/markdown": "# x", "text/html": "<h1>"},
            "# x",
            id="markdown_before_html",
        ),
        pytest.param({"text/latex": "$x$"}, "$x$", id="latex"),
        pytest.param({"application/json": {"ä": 1}}, '{"ä": 1}', id="json"),
        pytest.param({"text/latex": "\x1b[31mx\x1b[0m"}, "x", id="control_sequences"),
        pytest.param({"text/html": "<b>x</b>"}, "[HTML]", id="html"),
        pytest.param({"text/plain": "<a.b.C object at 0x7f>", "text/html": "<b>"}, "[HTML]", id="html_and_an_address"),
        pytest.param({"text/plain": "<IPython.lib.display.Audio object>", "text/html": "<b>"}, "[HTML]", id="audio"),
        pytest.param({"image/svg+xml": "<svg/>"}, "[SVG image]", id="svg"),
        pytest.param({"image/gif": "AAAA"}, "[GIF image]", id="gif"),
        pytest.param({"application/pdf": "AAAA"}, "[PDF document]", id="pdf"),
        pytest.param({"application/javascript": "alert(1)"}, "[JavaScript]", id="javascript"),
        pytest.param({"text/html": " <script>x<b></script>\n<STYLE a='b'> p</style>"}, None, id="html_without_content"),
        pytest.param({"text/html": "<script>x</script><div/>"}, "[HTML]", id="html_with_a_script"),
        pytest.param({"text/html": "<script>x"}, None, id="html_that_ends_in_a_script"),
        pytest.param(
            {"application/vnd.plotly.v1+json": {}, "text/html": "<div>"},
            "[plotly figure; with kaleido and Chrome installed, it is an image]",
            id="plotly",
        ),
        pytest.param(
            {"text/plain": "alt.Chart(...)", "text/html": "<script>vegaEmbed()</script><div>"},
            "[Vega chart; with vl-convert-python installed, it is an image]",
            id="altair",
        ),
        pytest.param({**png(), "application/vnd.plotly.v1+json": {}, "text/html": "<div>"}, None, id="plotly_picture"),
        pytest.param({"application/vnd.bokehjs_exec.v0+json": ""}, "[bokeh figure]", id="bokeh"),
        pytest.param({"application/x-unknown": "?"}, None, id="no_text_form"),
        pytest.param({"image/png": "x", "text/plain": "<Figure>"}, "<Figure>", id="a_broken_picture"),
        pytest.param({"image/png": "ä", "text/plain": "<Figure>"}, "<Figure>", id="a_picture_that_is_not_ascii"),
        pytest.param({**png(), "text/plain": "a caption"}, "a caption", id="a_picture_with_a_caption"),
    ],
)
def test_a_display_gives_its_most_readable_text(data: dict[str, Any], expected: str | None):
    assert collected(display(data)).text() == expected


def test_the_line_for_what_is_no_text_names_its_file(tmp_path: Path):
    outputs = collected(display("a"), display({"text/html": "<b>"}), display(png()), display({"image/gif": "AAAA"}))
    saved = outputs.save(tmp_path)
    html, gif = saved.files

    assert (html.suffix, gif.suffix) == (".html", ".gif")
    assert [getattr(output, "files", None) for output in saved.outputs] == [(), (html,), (*saved.images,), (gif,)]
    assert text_of_all(saved.outputs) == f"a\n[HTML saved as {html.name}]\n[GIF image saved as {gif.name}]"


@pytest.mark.parametrize("html", ["<script>" * 300_000, "<script></script>" * 150_000, "<style" * 400_000])
def test_html_is_read_in_linear_time(html: str, tmp_path: Path):
    """Quadratic time would exceed the limit of each test."""
    outputs = collected(display({"text/html": html}))
    assert outputs.text() is None
    assert outputs.save(tmp_path).files == []


def test_html_with_too_many_elements_without_content_counts_as_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(display_forms, "MAX_HIDDEN", 2)
    for number, files in ((1, 0), (2, 0), (3, 1)):
        outputs = collected(display({"text/html": "<script></script>" * number}))
        assert len(outputs.save(tmp_path).files) == files


def test_printed_text_that_no_kernel_sends_at_once_is_discarded():
    text = "\x1b[m" * (MAX_STREAM_BYTES // 8)  # JSON needs eight bytes for each
    outputs = collected(stream("a"), stream(text), stream("b"))

    assert outputs.text() == "ab"
    (notice,) = outputs.notices()
    assert notice.startswith("32 MiB of output was discarded: ")


def test_a_traceback_is_its_end():
    content = {"ename": "E", "evalue": "x" * (2 * MAX_ERROR), "traceback": ["y" * MAX_ERROR, "\x1b[mE: x"]}
    execution = Execution("")
    execution.on_message(message("execute_reply", status="error", **content))
    execution.on_message(message("status", execution_state="idle"))
    with pytest.raises(ExecutionError) as error:
        execution.check(None)

    assert error.value.raised is not None
    assert len(error.value.raised.value) == MAX_ERROR
    assert str(error.value).endswith("y\nE: x")
    assert len(str(error.value)) < MAX_ERROR


def test_an_update_replaces_all_displays_of_its_id_in_place():
    outputs = collected(display("a", "1"), stream("b\n"), display("c", "1"), display("d", "2"))
    shown = outputs.shown(display("new", "1", "update_display_data"))

    assert shown == "new\n"
    assert outputs.text() == "new\nb\nnew\nd"


def test_an_update_of_a_display_that_is_not_there_is_a_display():
    assert collected(stream("a\n"), display("b", "1", "update_display_data")).text() == "a\nb"


def test_an_update_without_an_id_replaces_nothing():
    assert collected(stream("a\n"), display("b"), display("c", type_="update_display_data")).text() == "a\nb\nc"


def test_an_update_can_take_a_picture_away(tmp_path: Path):
    outputs = collected(display(png(), "1"), display("gone", "1", "update_display_data"))

    assert outputs.text() == "gone"
    assert outputs.save(tmp_path / "images").images == []
    assert not (tmp_path / "images").exists()


def test_an_update_without_content_removes_the_display_and_reports_nothing():
    outputs = collected(display("shown", "id"))
    assert outputs.shown(display({}, "id", "update_display_data")) == ""
    assert outputs.arrived == []
    assert outputs.text() is None


def test_clearing_removes_text_and_pictures_at_once():
    outputs = collected(stream("a"), display(png()), message("clear_output", wait=False), stream("b"))

    assert outputs.text() == "b"


def test_clearing_can_wait_for_the_next_output():
    outputs = collected(stream("a"), message("clear_output", wait=True))
    assert outputs.text() == "a"
    outputs.add(stream("b"))
    outputs.add(stream("c"))
    assert outputs.text() == "bc"
    outputs = collected(display("old", "id"), message("clear_output", wait=True))
    outputs.add(display("new", "id", "update_display_data"))
    assert outputs.text() == "new"


def test_clearing_forgets_the_beginning_of_a_control_sequence():
    outputs = collected(stream("a\x1b["), message("clear_output"))

    assert outputs.shown(stream("31 b")) == "31 b"


@pytest.mark.parametrize(
    "pieces",
    [
        ["\x1b[31mred\x1b[0m"],
        ["\x1b", "[31mred\x1b", "[0m"],
        ["\x1b[", "3", "1", "mr", "ed\x1b[0", "m"],
        ["\x1b]0;title", " goes on\x07red"],
        ["\x1b]8;;http://x\x1b", "\\red\x1b]8;;\x1b\\"],
        ["\x1b(", "Bred"],
        list("\x1b[1;31mred\x1b[0m"),
    ],
)
def test_control_sequences_are_removed_from_chunks_however_they_are_split(pieces: list[str]):
    outputs = Collector()
    chunks = [outputs.shown(stream(piece)) for piece in pieces]

    assert "".join(chunks) == "red"
    assert outputs.text() == "red"


def test_the_beginning_of_a_control_sequence_is_not_held_back_for_ever():
    outputs = Collector()
    for _ in range(10):
        outputs.add(stream("\x1b]" + "x" * 1000))

    assert "x" * 1000 in "".join(outputs.shown(stream("y" * 5000)) for _ in range(2))


def test_a_csi_sequence_that_does_not_end_is_not_held_back_for_ever():
    outputs = Collector()
    assert outputs.shown(stream("\x1b[" + "0" * 200)) == ""

    assert outputs.shown(stream("0" * 200)) == r"\u001b[" + "0" * 400


@pytest.mark.parametrize("left_out", [stream("y" * 600), display("y" * 600), display("y" * 600, "1")])
def test_text_beyond_the_bound_is_left_out_and_a_notice_says_so(left_out: Message, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(outputs_module, "MAX_OUTPUT_BYTES", 1000)
    outputs = collected(stream("x" * 500))

    assert outputs.shown(left_out) == ""
    size = len(left_out.raw_content)
    assert outputs.text() == "x" * 500
    (notice,) = outputs.notices()
    assert notice.startswith(f"{size} bytes of output was discarded: the limit is 1000 bytes per cell")
    outputs.add(message("clear_output"))
    assert outputs.shown(stream("z" * 900)) == "z" * 900
    assert (outputs.text(), outputs.notices()) == ("z" * 900, [])


def test_an_update_counts_once_for_each_place_and_no_more_when_it_is_replaced(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(outputs_module, "MAX_OUTPUT_BYTES", 5000)
    outputs = collected(display("a", "1"), display("b", "1"))
    for _ in range(100):
        assert outputs.shown(display("y" * 600, "1", "update_display_data")) == "y" * 600 + "\n"

    assert outputs.shown(display("z" * 2000, "1", "update_display_data")) == ""
    assert outputs.text() == "y" * 600 + "\n" + "y" * 600
    assert len(outputs.notices()) == 1


def test_values_without_end_are_left_out_and_commas_in_text_are_no_values():
    outputs = collected(stream("a,[{" * 1_000_000), display({"application/json": [[]] * 3_000_001}))

    assert outputs.text() == "a,[{" * 1_000_000
    (notice,) = outputs.notices()
    assert notice.endswith("3,000,000 values per display.")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]8;;http://x\x07link\x1b]8;;\x07", "link"),
        ("\x1b(B\x1b=x", "x"),
        ("a\ud800b\udfff", "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"),
        ("ä€\U0001f600", "ä€\U0001f600"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("progress\rdone", "progress\rdone"),
        ("[31m", "[31m"),
        ("\x1b[31", r"\u001b[31"),
        ("\x1b[\x1b[31m31m", r"\u001b[31m"),
        ("a\b\x07\x7f\x9b31m\t\r", "a\\u0008\\u0007\\u007f\\u009b31m\t\r"),
    ],
)
def test_plain_text_has_no_control_sequences_and_can_be_encoded(text: str, expected: str):
    assert plain(text) == expected
    expected.encode()


def test_a_backspace_in_a_stream_stays():
    assert plain("50 %\b\b\b\b60 %\x07", stream=True) == "50 %\b\b\b\b60 %\\u0007"
    assert collected(stream("50 %\b\b\b\b60 %")).text() == "50 %\b\b\b\b60 %"


def test_plain_text_of_many_unfinished_sequences_takes_linear_time():
    text = "\x1b]" * 500_000 + "\x1b[" + "0" * 1_000_000

    assert plain(text) == text.replace("\x1b", r"\u001b")


def test_pictures_have_lines_and_what_is_no_picture_is_not_saved(tmp_path: Path):
    lines = base64.encodebytes(PNG).decode()
    outputs = collected(display({"image/png": "A==="}), display({"image/png": f"{lines[:8]}\n{lines[8:]}"}))

    (picture,) = outputs.save(tmp_path).images

    assert picture.read_bytes() == PNG


def test_pictures_that_are_no_base64_are_reported(tmp_path: Path):
    broken = [display({"image/png": text}) for text in ("A===", "no base64", "\xe9")]
    saved = collected(*broken, display(png()), display({"image/png": "A", **png()})).save(tmp_path)

    assert len(saved.images) == 2
    assert saved.notices == ["Images from 3 displays were not saved because they are not valid base64."]


def test_pictures_are_saved_in_order_as_new_files(tmp_path: Path):
    outputs = collected(
        display(png(b"first")),
        display({"image/jpeg": base64.b64encode(JPEG).decode()}),
        display({**png(b"both"), "image/jpeg": base64.b64encode(JPEG).decode()}),
        display({"image/png": [base64.b64encode(b"split").decode()[:4], base64.b64encode(b"split").decode()[4:]]}),
    )
    directory = tmp_path / "a" / "b"
    paths = outputs.save(directory).images

    assert [path.read_bytes() for path in paths] == [b"first", JPEG, b"both", b"split"]
    assert [path.suffix for path in paths] == [".png", ".jpg", ".png", ".png"]
    assert {path.parent for path in paths} == {directory}
    assert len({*paths, *outputs.save(directory).images}) == 8


def test_pages_of_the_reply_are_output():
    page = {"source": "page", "data": {"text/plain": "\x1b[31mhelp\x1b[0m"}, "start": 0}
    reply = message("execute_reply", status="ok", payload=[page, {"source": "set_next_input", "text": "x"}])
    outputs = collected(stream("a\n"))

    outputs.end(reply)
    assert outputs.text() == "a\nhelp"
    assert "".join(map(text_of, outputs.arrived)) == "a\nhelp\n"


@pytest.mark.parametrize(
    "malformed",
    [
        message("stream"),
        message("stream", text=1),
        message("display_data"),
        message("display_data", data=[]),
        message("display_data", data={"text/plain": {}, "image/png": {}}, transient=[]),
        message("update_display_data", data={}, transient={"display_id": []}),
        Message("iopub", {"msg_type": "stream"}, {}, b"no JSON"),
        Message("iopub", {"msg_type": []}, {}, b"{}"),
    ],
)
def test_malformed_messages_add_nothing(malformed: Message):
    outputs = collected(stream("a\n"))

    assert outputs.shown(malformed) == ""
    assert outputs.text() == "a"


@pytest.mark.parametrize(
    "payload",
    [{}, {"source": "page", "data": {"text/plain": "x"}}, [1, None, {"source": "page"}, {"source": "page", "data": 1}]],
)
def test_a_malformed_reply_adds_nothing(payload: object):
    outputs = collected(stream("a\n"))

    outputs.end(message("execute_reply", payload=payload))
    assert outputs.text() == "a"


@pytest.mark.parametrize(
    ("data", "saved"),
    [
        pytest.param({"text/html": "<b>ä</b>", "text/plain": "b"}, {".html": "<b>ä</b>"}, id="html"),
        pytest.param({"image/svg+xml": ["<svg>\n", "</svg>"]}, {".svg": "<svg>\n</svg>"}, id="svg"),
        pytest.param({"text/latex": "$x$", "text/html": "x"}, {".html": "x", ".tex": "$x$"}, id="several"),
        pytest.param({"application/json": {"ä": [1]}}, {".json": '{"ä": [1]}'}, id="json"),
        pytest.param({"text/html": "\ud800"}, {".html": "?"}, id="a_lone_surrogate"),
        pytest.param({"image/gif": "R0lG\nODlh"}, {".gif": "GIF89a"}, id="gif"),
        pytest.param({"image/webp": "UklG"}, {".webp": "RIF"}, id="webp"),
        pytest.param({"application/pdf": "JVBE"}, {".pdf": "%PD"}, id="pdf"),
        pytest.param({"image/gif": "no base64", "image/webp": 5, "application/pdf": "A==="}, {}, id="no_base64"),
        pytest.param({"text/html": "\n<pre style='x'>1</pre>", "text/plain": "1"}, {}, id="coloured_text"),
        pytest.param({"text/html": "<pre>1</pre>"}, {".html": "<pre>1</pre>"}, id="coloured_text_only"),
        pytest.param({"text/html": "<script>plotly</script>"}, {}, id="html_without_content"),
        pytest.param({"text/plain": "x", "text/markdown": "# x"}, {}, id="nothing_but_text"),
        pytest.param({"text/html": "", "image/svg+xml": {}}, {}, id="nothing_in_it"),
    ],
)
def test_richer_forms_become_files(data: dict[str, Any], saved: dict[str, str], tmp_path: Path):
    files = collected(display(data)).save(tmp_path).files

    assert {path.suffix: path.read_text() for path in files} == saved
    assert {*files} == {*tmp_path.iterdir()}


def test_too_many_or_too_large_files_are_left_out_and_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(display_files, "MAX_FILE_CHARS", 100)
    htmls = ["x" * 90, "y" * 90, *["z"] * 30]
    outputs = collected(*[display({"text/html": html, "text/plain": "text"}) for html in htmls])

    saved = outputs.save(tmp_path)
    assert [path.read_text() for path in saved.files] == ["x" * 90, *["z"] * 10]
    assert (outputs.text() or "").splitlines() == ["text"] * 32
    (notice,) = saved.notices
    assert notice.startswith("21 displays of HTML, SVG, LaTeX, JSON, GIF, WebP or PDF were not saved: ")


def test_an_update_replaces_files_too(tmp_path: Path):
    outputs = collected(display({"text/html": "a"}, "1"), display({"text/html": "b"}, "1", "update_display_data"))

    assert [path.read_text() for path in outputs.save(tmp_path).files] == ["b"]


def test_images_are_held_as_they_were_sent_within_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(display_files, "MAX_IMAGE_DATA", 10)
    saved = collected(*[display(png(data)) for data in (b"first", b"too large", b"third")]).save(tmp_path)

    assert saved.image_data == [b"first", None, b"third"]
    assert [path.read_bytes() for path in saved.images] == [b"first", b"too large", b"third"]


def test_many_different_characters_are_shown_as_each_of_them_is():
    controls = "".join(map(chr, [*range(1, 9), *range(14, 27), 0x7F, *range(0x80, 0x9B), 0xD800]))

    shown = plain(f"ä{controls}")

    assert shown == "".join(map(plain, f"ä{controls}"))
    assert set(shown).isdisjoint(controls)


async def test_an_image_that_turns_out_to_be_damaged_is_reported(tmp_path: Path):
    saved = await DisplayDirectory(tmp_path, None, None).save(collected(display({"image/png": "A==="})))

    assert saved.notices == ["Images from 1 displays were not saved because they are not valid base64."]
    assert saved.images == []


def test_only_the_first_forms_of_a_display_are_kept():
    outputs = collected(display({f"a/{number}": "x" for number in range(1000)}))

    (kept,) = outputs.outputs()
    assert isinstance(kept, Display)
    assert [*kept.data] == [f"a/{number}" for number in range(100)]


def test_the_reason_of_a_variable_s_error_is_bounded():
    execution = Execution("")
    content = {"evalue": "x" * (2 * MAX_ERROR), VARIABLE_ERROR: True}
    execution.on_message(message("execute_reply", status="error", **content))
    execution.on_message(message("status", execution_state="idle"))
    with pytest.raises(VariableError) as error:
        execution.check(None)

    assert len(str(error.value)) == MAX_ERROR


def test_many_tracebacks_are_counted_and_shown_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(outputs_module, "MAX_OUTPUT_BYTES", 15_000)
    outputs = collected(*[message("error", traceback=["ab"])] * 200)
    outputs.end(message("execute_reply"))

    (shown,) = outputs.arrived
    assert text_of(shown) == "ab\n" * 100
