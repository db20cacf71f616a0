"""Notebooks from an audit log, which code without a sandbox may have written."""

import json
import os
import re
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import nbformat
import pytest

from ipybox.audit.audit import AuditLog, Detail
from ipybox.audit.notebook import logged
from ipybox.cli.notebook import notebook
from ipybox.cli.parsing import Failure


def record(
    workspace: Path, *codes: str, session: str = "0" * 16, name: str = "default", detail: Detail = "full"
) -> None:
    """Writes the lines of a session as an executor does, into files that hold few of them."""
    log = AuditLog(workspace, detail)
    ids = {"session_id": session, "session_name": name}
    cell = {"outcome": "ok", "output_chars": 0, "duration": 0.1}
    with patch("ipybox.audit.log.MAX_BYTES", 1000):
        log.record("session", **ids, action="start", sandbox=False)
        for number, code in enumerate(codes):
            log.record("cell", **ids, cell_id=f"{number:016}", **log.code(code), **cell)
        log.close()


def add(workspace: Path, *lines: bytes | dict[str, Any]) -> None:
    """Adds lines that ipybox does not write."""
    with (workspace / ".ipybox" / "audit.jsonl").open("ab") as file:
        for line in lines:
            file.write((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")


def cells(workspace: Path, session: str, capsysbinary: pytest.CaptureFixture[bytes]) -> list[dict[str, Any]]:
    """Returns the cells of the notebook, which has to be valid."""
    assert notebook(workspace, session, "-") == 0
    document = json.loads(capsysbinary.readouterr().out)
    nbformat.validate(document)
    return document["cells"]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def test_the_last_session_of_a_name_is_exported_from_all_files(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
):
    record(tmp_path, "old = 1", session="a" * 16)
    record(tmp_path, *(f"x = {number}" for number in range(9)), session="b" * 16)
    record(tmp_path, "other = 1", session="c" * 16, name="other")
    assert len([*(tmp_path / ".ipybox").glob("audit.*.jsonl")]) > 2

    first, *rest = cells(tmp_path, "default", capsysbinary)
    assert source(first).startswith("# ipybox session `default`\n")
    assert [source(cell) for cell in rest] == [f"x = {number}" for number in range(9)]
    assert [source(cell) for cell in cells(tmp_path, "a" * 16, capsysbinary)[1:]] == ["old = 1"]


def test_an_unknown_session_is_an_error_that_names_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    record(tmp_path, "1", name="b\x1b[31mad")
    with pytest.raises(Failure) as failed:
        notebook(tmp_path, "missing", None)
    said = str(failed.value)
    assert said.startswith(
        "the audit log contains no session 'missing'; use a name or id from this list:\n  b\\u001b[31mad 0"
    )
    assert notebook(tmp_path, None, None) == 0
    assert capsys.readouterr().out.startswith("b\\u001b[31mad  0")


@pytest.mark.parametrize("session", [None, "default"])
def test_a_log_without_sessions_is_an_error(tmp_path: Path, session: str | None):
    (tmp_path / ".ipybox").mkdir()
    add(tmp_path)
    with pytest.raises(Failure, match="the audit log contains no sessions"):
        notebook(tmp_path, session, None)


@pytest.fixture
def in_another_zone(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "XYZ-5:30")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("logged", "shown"),
    [
        ("2026-11-26T04:59:59.123Z", "2026-11-26 10:29:59 XYZ"),
        ("2026-11-26T23:00:00Z", "2026-11-27 04:30:00 XYZ"),
        ("2026-11-26T12:00:00+02:00", "2026-11-26 15:30:00 XYZ"),
        ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
        ("now", "now"),
        ("\x1b[31m", "\\u001b[31m"),
    ],
)
@pytest.mark.usefixtures("in_another_zone")
def test_people_see_the_time_of_their_time_zone(
    logged: str, shown: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    record(tmp_path)
    (tmp_path / ".ipybox" / "audit.jsonl").write_text("")
    add(tmp_path, {"event": "session", "session_id": "d" * 16, "session_name": "x", "time": logged, "action": "start"})

    assert notebook(tmp_path, None, None) == 0

    listed = capsys.readouterr().out
    assert listed.startswith(f"x  {'d' * 16}  ")
    assert shown in listed


def test_a_log_without_code_is_an_error(tmp_path: Path):
    record(tmp_path, "1", detail="hash")
    with pytest.raises(Failure, match="it was written with audit=hash"):
        notebook(tmp_path, "default", None)
    (tmp_path / "empty").mkdir()
    with pytest.raises(Failure, match=r"no audit log in .*empty: "):
        notebook(tmp_path / "empty", "default", None)


def test_no_file_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    record(tmp_path, "1", name="../../evil")
    (tmp_path / "taken").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("taken", "link"):
        with pytest.raises(Failure, match=f"{name} already exists: "):
            notebook(tmp_path, "../../evil", name)
    with pytest.raises(Failure, match="missing"):
        notebook(tmp_path, "../../evil", "missing/x.ipynb")
    assert notebook(tmp_path, "../../evil", None) == 0
    assert {path.name for path in tmp_path.iterdir()} == {".ipybox", "_evil.ipynb", "link", "taken"}
    assert (tmp_path / "taken").read_text() == "mine"


def test_hostile_lines_are_counted_and_cost_nothing(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]):
    record(tmp_path, "x = 1")
    of_session: dict[str, Any] = {"session_id": "0" * 16, "time": "now", "cell_id": [], "tool_call_id": {}}
    add(
        tmp_path,
        *(b"\xff", b"", b"[]", b'{"event": []}', b"[" * 100_000, b'{"event":"cell","x":[' + b"[]," * 5000 + b"[]]}"),
        b'{"event":"cell"' + b" " * 2 * logged.MAX_LINE + b"}",
        *({"event": event, **of_session} for event in ("cell", "decision", "tool_call", "denial", "session", "x")),
        {"event": "cell", **of_session, "code": ["not", "text"], "outcome": {}, "duration": float("nan")},
        {"event": "tool_call", **of_session, "arguments": {"a": "\ud800"}, "outcome": "ok"},
        {"event": "decision", **of_session, "cell_id": "unknown", "accepted": True},
        *({"event": "gap", "missing": number} for number in (3, 10**4299, 10**4300 - 10**4299, -1)),
    )
    first, cell, *rest = cells(tmp_path, "default", capsysbinary)
    assert source(cell) == "x = 1"
    assert [source(cell) for cell in rest[:2]] == ["", ""]
    assert "3 lines could not be written to the log" in source(first)
    assert "9 lines of the log were skipped" in source(first)


def test_what_a_notebook_can_have_of_a_session_is_bounded(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(logged, "MAX_VALUES", 500)
    record(tmp_path, *(str(number) for number in range(9)))
    first, *rest = cells(tmp_path, "default", capsysbinary)
    assert 0 < len(rest) < 9
    assert f"This notebook omits the session's last {9 - len(rest)} log lines" in source(first)


def test_the_lines_that_are_read_of_a_log_are_bounded(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
):
    record(tmp_path, "1")
    add(tmp_path, *([b""] * 1000))
    monkeypatch.setattr(logged, "MAX_READ", 100 * logged.MIN_LINE)
    first, *_ = cells(tmp_path, "default", capsysbinary)
    (skipped,) = re.findall(r"([0-9,]+) lines of the log were skipped", source(first))
    assert 0 < int(skipped) < 100


@pytest.mark.parametrize("planted", ["link", "pipe"])
def test_a_planted_file_is_an_error(tmp_path: Path, planted: str, capsys: pytest.CaptureFixture[str]):
    record(tmp_path, "1")
    path = tmp_path / ".ipybox" / "audit.1.jsonl"
    if planted == "link":
        path.symlink_to("/etc/passwd")
    else:
        os.mkfifo(path)
    with pytest.raises(Failure, match=re.escape(str(path))):
        notebook(tmp_path, "default", "-")
