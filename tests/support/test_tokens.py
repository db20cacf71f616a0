"""Tokens that components publish for clients of the same user."""

from pathlib import Path

import pytest

from ipybox.support.tokens import find_token, publish_token, token_file


def test_a_token_is_found_by_kind_and_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    publish_token("tool-server", 1, "of a killed process")
    publish_token("mcp-server", 1, "of another kind")
    token_file("tool-server", 2).write_text("no JSON")

    publish_token("tool-server", 1, "new")

    assert [find_token("tool-server", port) for port in (1, 2, 3)] == ["new", None, None]


def test_a_directory_that_can_not_be_written_is_named_with_the_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "file").touch()
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "file" / "runtime"))

    with pytest.raises(OSError, match=r"file/runtime \(Not a directory\): set JUPYTER_RUNTIME_DIR"):
        publish_token("mcp-server", 1, "token")
