"""The user's state directory."""

import os
import pwd
import re
import stat
from pathlib import Path

import pytest

from ipybox.support.scratch import ScratchDirectory
from ipybox.support.state import data_dir, empty_directory, make_directory, state_dir, workspace_state_dir


def test_the_state_directory_is_where_an_absolute_path_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_dir() == tmp_path / "ipybox"

    for ignored in ("", "relative"):
        monkeypatch.setenv("XDG_STATE_HOME", ignored)
        assert state_dir() == tmp_path / "home" / ".local" / "state" / "ipybox"


@pytest.mark.parametrize("home", ["", "relative", None])
def test_a_home_that_is_no_absolute_path_is_ignored(home: str | None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("XDG_STATE_HOME")
    if home is None:
        monkeypatch.delenv("HOME")
    else:
        monkeypatch.setenv("HOME", home)

    assert state_dir() == Path(pwd.getpwuid(os.getuid()).pw_dir) / ".local" / "state" / "ipybox"


def test_a_state_directory_that_can_not_be_made_says_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "home").touch()
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    for make in (empty_directory, lambda: workspace_state_dir(tmp_path), ScratchDirectory):
        with pytest.raises(OSError, match=r"can't keep its state in .*home/\.local.* \(.*\): set XDG_STATE_HOME to"):
            make()


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


def test_a_directory_that_can_not_be_made_names_its_variable(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null/state")
    monkeypatch.setenv("XDG_DATA_HOME", "/dev/null/data")
    for directory, what, variable in (
        (state_dir(), "state", "XDG_STATE_HOME"),
        (data_dir() / "environments", "environment", "XDG_DATA_HOME"),
    ):
        said = (
            f"can't keep its {what} in {directory} (Not a directory): set {variable} to a directory that you can write"
        )
        with pytest.raises(OSError, match=re.escape(said)):
            make_directory(directory)


def test_the_data_directory_is_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert data_dir() == tmp_path / ".local" / "share" / "ipybox"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert data_dir() == tmp_path / "data" / "ipybox"


def test_the_directory_of_what_runs_names_its_variable_too():
    with pytest.raises(OSError, match=r"can't keep its state in /dev/null/jupyter .*: set JUPYTER_RUNTIME_DIR to"):
        make_directory(Path("/dev/null/jupyter"))
