"""The `.env` file of a workspace."""

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ipybox import CodeExecutor, generate_mcp_sources
from ipybox.workspace.env_file import MAX_BYTES, read_env_file
from tests import servers


def test_values_are_read_and_the_environment_is_left_alone(tmp_path: Path):
    before = dict(os.environ)
    (tmp_path / ".env").write_text("A=1\nexport B='b b' # said\nC\nXDG_STATE_HOME=./st\n")

    assert read_env_file(tmp_path) == {"A": "1", "B": "b b", "XDG_STATE_HOME": "./st"}
    assert dict(os.environ) == before


def test_a_value_can_use_another_but_none_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOST_SECRET", "s3cret")
    (tmp_path / ".env").write_text("A=1\nB=${A}2\nC=<${HOST_SECRET}>\nD=${HOST_SECRET:-none}\n")

    assert read_env_file(tmp_path) == {"A": "1", "B": "12", "C": "<>", "D": "none"}


def test_a_workspace_needs_no_file(tmp_path: Path):
    assert read_env_file(tmp_path) == {}
    assert read_env_file(tmp_path / "missing") == {}
    assert list(tmp_path.iterdir()) == []


def test_a_value_that_no_variable_can_have_is_left_out(tmp_path: Path):
    (tmp_path / ".env").write_text("A=a\0b\nB=2\n")

    assert read_env_file(tmp_path) == {"B": "2"}


def _link(file: Path) -> None:
    file.symlink_to("other")


def _large(file: Path) -> None:
    file.write_bytes(b"A=1\n" + b"#" * MAX_BYTES)


def test_a_warning_gives_the_reason_of_the_system(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "file").touch()

    with caplog.at_level(logging.WARNING):
        assert read_env_file(tmp_path / "file") == {}

    assert caplog.messages == [f"{tmp_path / 'file' / '.env'} is not read: Not a directory"]


@pytest.mark.parametrize("make", [_link, os.mkfifo, Path.mkdir, _large], ids=["link", "pipe", "directory", "large"])
def test_what_is_no_ordinary_file_is_ignored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, make: Callable[[Path], object]
):
    (tmp_path / "other").write_text("A=1\n")
    make(tmp_path / ".env")

    with caplog.at_level(logging.WARNING):
        assert read_env_file(tmp_path) == {}

    assert len(caplog.messages) == 1
    warning, _, reason = caplog.messages[0].partition(" is not read: ")
    assert warning == str(tmp_path / ".env")
    assert reason not in ("", "None")


def test_bytes_that_are_no_text_harm_nobody(tmp_path: Path):
    (tmp_path / ".env").write_bytes(b"A=\xff\xfe\nB=2\n")

    assert read_env_file(tmp_path)["B"] == "2"


async def test_the_sdk_fills_placeholders_from_the_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OF_HOST", "host")
    for name in ("OF_FILE", "GIVEN"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".env").write_text("OF_HOST=file\nOF_FILE=file\nGIVEN=file\n")
    names = ("OF_HOST", "OF_FILE", "GIVEN")
    params = {**servers.scripted(), "env": {name: f"${{{name}}}" for name in names}}

    await generate_mcp_sources("scripted", params, tmp_path / "mcptools")
    async with CodeExecutor(working_dir=tmp_path, variables={"GIVEN": "given"}) as executor:
        shown = await executor.execute("from mcptools.scripted import CLIENT\nprint(CLIENT.run_sync('env', {}))")

    env = json.loads(shown.text or "")
    assert [env[name] for name in names] == ["host", "file", "given"]
