"""What was appended to a generated module is told apart from it exactly, or else by syntax, and never executed."""

import pytest

from ipybox.codeact.source import MAX_FILE
from ipybox.mcp_apigen.package.files import render_package
from ipybox.mcp_apigen.package.manifest import ModuleRecord, sha256_hex
from ipybox.mcp_apigen.package.merge import split_additions
from ipybox.workspace.registrations import ToolSpec

GENERATED = render_package("s", {"command": "x"}, [ToolSpec("a", "Does it.", {})], "")["a.py"].encode()
APPENDED = b"\n\nimport json\n\n\ndef run_parsed(params: Params) -> int:\n    return json.loads(run(params))\n"
RECORD = ModuleRecord(tool="a", meaning=None, source=sha256_hex(GENERATED), length=len(GENERATED))
EDITED = GENERATED.replace(b"Does it.", b"Does more.")


@pytest.mark.parametrize(
    "appended",
    [
        b"",
        b"\n",
        APPENDED,
        APPENDED.replace(b"\n", b"\r\n"),
        b"\nasync def run_async(params):\n    pass\n\n\nx = 1\n",
        b"no python (",
        b"\xff\0",
        b"x" * MAX_FILE,
    ],
    ids=["nothing", "line end", "parser", "other line ends", "run_async", "no Python", "no text", "large"],
)
def test_what_follows_the_recorded_text_is_appended_whatever_it_is(appended: bytes) -> None:
    assert split_additions(GENERATED + appended, [RECORD]) == (appended, True)


@pytest.mark.parametrize(
    "module",
    [
        (GENERATED + APPENDED).replace(b"\n", b"\r\n"),
        (GENERATED + APPENDED).replace(b"\n", b"\r"),
        b"\xef\xbb\xbf" + GENERATED + APPENDED,
    ],
    ids=["CR LF", "CR", "byte order mark"],
)
def test_line_ends_that_an_editor_has_changed_are_no_edit(module: bytes) -> None:
    assert split_additions(module, [RECORD]) == (APPENDED, True)


def test_each_record_is_tried() -> None:
    other = RECORD.model_copy(update={"source": sha256_hex(b"other")})
    assert split_additions(GENERATED + APPENDED, [other, RECORD]) == (APPENDED, True)


@pytest.mark.parametrize("records", [[RECORD], []], ids=["edited", "no record"])
def test_what_follows_run_async_is_appended_where_the_rest_is_not_as_recorded(records: list[ModuleRecord]) -> None:
    assert split_additions(EDITED + APPENDED, records) == (APPENDED, False)


def test_run_async_that_was_appended_belongs_to_what_was_appended() -> None:
    appended = APPENDED + b"\n\nasync def run_async(params):\n    pass\n\n\nx = 1\n"
    assert split_additions(EDITED + appended, [RECORD]) == (appended, False)


@pytest.mark.parametrize(
    "module",
    [
        b"",
        b"x = 1\n",
        EDITED + b"no python (",
        EDITED + b"\0",
        b"\xff" + EDITED,
        b"(" * 100_000 + b")" * 100_000,
        b"-" * 100_000 + b"1",
        EDITED + b"x" * MAX_FILE,
        EDITED.replace(b"run_async", b"run_later") + APPENDED,
    ],
    ids=["empty", "no run_async", "no Python", "NUL", "no text", "deep", "deeper", "large", "other name"],
)
def test_nothing_counts_as_appended_where_syntax_does_not_tell(module: bytes) -> None:
    assert split_additions(module, [RECORD]) == (b"", False)


@pytest.mark.filterwarnings("error")
def test_nothing_is_executed_and_nothing_warned_about() -> None:
    appended = b"\nraise SystemExit('\\d')\n"
    assert split_additions(EDITED + appended, [RECORD]) == (appended, False)
