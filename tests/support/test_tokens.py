"""Tokens that components publish for clients of the same user."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ipybox.support.tokens import find_token, publish_token, token_file


def test_a_token_replaces_those_of_the_same_kind_whose_process_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead = publish_token("tool-server", 1, "of a dead process")
    dead.write_text(json.dumps({"token": "of a dead process", "pid": ended.pid}))
    paths = [dead, publish_token("mcp-server", 1, "of another kind"), token_file("tool-server", 2)]
    paths[2].write_text("no JSON")

    paths.append(publish_token("tool-server", 3, "new"))

    assert [path.exists() for path in paths] == [False, True, True, True]
    assert find_token("tool-server", 3) == "new"


def test_a_directory_that_can_not_be_written_is_named_with_the_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "file").touch()
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "file" / "runtime"))

    with pytest.raises(OSError, match=r"file/runtime \(Not a directory\): set JUPYTER_RUNTIME_DIR"):
        publish_token("mcp-server", 1, "token")
