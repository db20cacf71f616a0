"""The user's state directory."""

import os
import stat
from pathlib import Path

import pytest

from ipybox.state import empty_directory, state_dir


def test_the_state_directory_is_where_an_absolute_path_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_dir() == tmp_path / "ipybox"

    for ignored in ("", "relative"):
        monkeypatch.setenv("XDG_STATE_HOME", ignored)
        assert state_dir() == tmp_path / "home" / ".local" / "state" / "ipybox"


def test_the_empty_directory_is_emptied_before_each_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    directory = empty_directory()
    directory.chmod(0o700)
    (directory / "pyproject.toml").touch()
    (directory / "package").mkdir()
    (directory / "package" / "module.py").touch()

    assert empty_directory() == directory

    assert os.listdir(directory) == []
    assert stat.S_IMODE(directory.stat().st_mode) == 0o500
