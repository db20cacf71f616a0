"""Which directories of PATH the host takes its programs from."""

import os
import sys
from pathlib import Path

import pytest

from ipybox.workspace import writable
from ipybox.workspace.writable import (
    PYTHON_DIRECTORIES,
    WritablePlaces,
    dropped_directories,
    dropped_program,
    host_path,
    interpreter,
)


@pytest.fixture
def directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A directory of programs in the workspace, with the program `tool`, and one elsewhere; nothing is dropped yet."""
    monkeypatch.setattr(writable, "_dropped", dict[str, None]())
    inside, outside = tmp_path / "workspace" / "bin", tmp_path / "bin"
    for directory in (inside, outside):
        directory.mkdir(parents=True)
    (inside / "tool").touch(0o755)
    return inside, outside


def test_directories_of_the_workspace_are_dropped_and_can_be_named(
    directories: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
):
    inside, outside = directories
    missing = outside / "missing"
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, (inside, outside, "relative", missing, outside))))
    assert dropped_program("tool") is None

    assert host_path(WritablePlaces(inside.parent)) == str(outside)

    assert dropped_directories() == [str(inside), str(missing)]
    monkeypatch.setenv("PATH", str(outside))
    assert dropped_program("tool") == str(inside / "tool")
    assert dropped_program("another") is None


def test_without_path_the_system_has_one(directories: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PATH")
    existing = [os.path.realpath(entry) for entry in os.defpath.split(os.pathsep) if os.path.isdir(entry)]

    assert host_path(WritablePlaces(directories[0].parent)) == os.pathsep.join(dict.fromkeys(existing))
    assert dropped_program("sh") is None


def test_an_interpreter_that_is_in_no_environment_is_named_as_it_is(monkeypatch: pytest.MonkeyPatch):
    executable = Path(sys.executable).relative_to(sys.prefix)
    assert interpreter() == PYTHON_DIRECTORIES[0] / executable

    monkeypatch.setattr(sys, "prefix", "/link")
    monkeypatch.setattr(sys, "executable", "/link/bin/python")

    assert interpreter() == PYTHON_DIRECTORIES[0] / "bin" / "python"

    monkeypatch.setattr(sys, "executable", "/opt/app/python")

    assert interpreter() == Path("/opt/app/python")
