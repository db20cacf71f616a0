"""Which paths code can write."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ipybox.sandbox.settings import load_settings
from ipybox.workspace.writable import PACKAGE_DIR, WritablePlaces, host_path, interpreter, is_below
from tests.servers import WAIT


@pytest.fixture
def places(tmp_path: Path) -> WritablePlaces:
    """A workspace, with a directory that can be written besides and one in it that can't."""
    for name in ("workspace/read-only", "besides", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    allowed = (".", str(tmp_path / "besides"), "../pattern/**")
    settings = replace(load_settings(), allow_write=allowed, deny_write=("read-only",))
    return WritablePlaces(tmp_path / "workspace", settings)


@pytest.mark.parametrize(
    ("path", "covered"),
    [
        ("workspace", True),
        ("workspace/missing/x", True),
        ("workspace/read-only/x", False),
        ("workspace/read-only/../x", True),
        ("workspace-of-another", False),
        ("besides/x", True),
        ("pattern", True),
        ("pattern/x", True),
        ("pattern-of-another", False),
        ("elsewhere/x", False),
        ("elsewhere/../workspace/x", True),
    ],
)
def test_what_the_settings_open_is_covered(places: WritablePlaces, tmp_path: Path, path: str, covered: bool):
    assert places.covers(tmp_path / path) is covered


def test_a_path_through_a_link_is_covered_on_either_side(places: WritablePlaces, tmp_path: Path):
    (tmp_path / "workspace" / "out").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "in").symlink_to(tmp_path / "workspace")

    assert places.covers(tmp_path / "workspace" / "out" / "x")
    assert places.covers(tmp_path / "elsewhere" / "in" / "x")
    assert places.trusted(tmp_path / "workspace" / "out" / "x") is None
    assert places.trusted(tmp_path / "elsewhere" / "x") == str(tmp_path / "elsewhere" / "x")


def test_a_link_out_of_the_workspace_is_spelled_in_it_and_one_into_it_is_not(places: WritablePlaces, tmp_path: Path):
    (tmp_path / "workspace" / "out").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "in").symlink_to(tmp_path / "workspace")

    assert places.spells(tmp_path / "workspace" / "out" / "x")
    assert not places.spells(tmp_path / "elsewhere" / "in" / "x")


def test_entries_count_as_they_are_spelled_and_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    home = tmp_path / "home"
    (home / "real").mkdir(parents=True)
    (home / "link").symlink_to("real")
    monkeypatch.setenv("HOME", str(home))

    places = WritablePlaces(tmp_path / "workspace", replace(load_settings(), allow_write=("~/link",)))

    assert places.spells(home / "link" / "x")
    assert places.spells(home / "real" / "x")
    assert not places.spells(home / "x")


def test_code_is_confined_by_a_sandbox_only(tmp_path: Path):
    assert WritablePlaces(tmp_path, load_settings()).confined
    assert not WritablePlaces(tmp_path).confined


def test_places_are_the_same_if_code_can_write_the_same(tmp_path: Path):
    settings = replace(load_settings(), allow_write=("a",), deny_write=("a/b",))
    places = WritablePlaces(tmp_path, settings)
    others = [
        WritablePlaces(tmp_path),
        WritablePlaces(tmp_path / "x", settings),
        WritablePlaces(tmp_path, replace(settings, allow_write=("b",))),
        WritablePlaces(tmp_path, replace(settings, deny_write=("a/c",))),
    ]

    assert len({places, WritablePlaces(tmp_path, settings), *others}) == 5
    assert places not in others
    assert places != (places.workspace, settings)


@pytest.mark.parametrize(
    ("path", "directory", "below"),
    [
        ("/a/b", "/a", True),
        ("/a", "/a", True),
        ("/a/b", "/a/", True),
        ("/a", "/", True),
        ("/", "/", True),
        ("/ab", "/a", False),
        ("/a", "/a/b", False),
        ("/aX/b", "/aX", True),
    ],
)
def test_a_path_is_below_a_directory_as_both_are_spelled(path: str, directory: str, below: bool):
    assert is_below(path, directory) is below


def test_without_a_sandbox_the_workspace_is_covered(tmp_path: Path):
    assert WritablePlaces(tmp_path).covers(tmp_path / "x")
    assert not WritablePlaces(tmp_path / "workspace").covers(tmp_path / "x")


def test_the_python_that_runs_ipybox_is_believed_wherever_it_is():
    places = WritablePlaces(Path("/"))

    assert not places.covers(PACKAGE_DIR / "errors.py")
    assert not places.covers(Path(sys.prefix).resolve() / "bin" / "python")
    assert places.covers("/elsewhere/bin/env")


def test_path_keeps_what_code_can_not_write(places: WritablePlaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    workspace, elsewhere = tmp_path / "workspace", tmp_path / "elsewhere"
    (workspace / "bin").mkdir()
    (workspace / "link").symlink_to(elsewhere)
    (elsewhere / "link").symlink_to("../elsewhere")
    monkeypatch.chdir(workspace)
    entries = [
        *(workspace / "bin", workspace / "missing" / "bin", workspace / "link", elsewhere / "missing"),
        *("", ".", "bin", elsewhere, elsewhere / "link"),
    ]
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, entries)))

    assert host_path(places) == str(elsewhere)


def test_path_keeps_this_python_through_a_link_of_the_workspace(
    places: WritablePlaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    environment = tmp_path / "workspace" / ".venv"
    environment.symlink_to(Path(sys.prefix).resolve())

    monkeypatch.setenv("PATH", str(environment / "bin"))

    assert host_path(places) == str(interpreter().parent)


def test_code_can_not_write_the_environments_of_the_plugins(tmp_path: Path):
    """The next start of a plugin believes the Python there."""
    environments = tmp_path / "data" / "ipybox" / "environments"
    environments.mkdir(parents=True)
    code = f"""
from pathlib import Path
from ipybox.sandbox.launch import python_directories
from ipybox.workspace.writable import WritablePlaces
places = WritablePlaces(Path({str(tmp_path)!r}))
print(places.covers({str(environments.parent)!r}), places.covers({str(environments / "x")!r}))
print({str(environments)!r} in python_directories())
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "XDG_DATA_HOME": str(tmp_path / "data")},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=WAIT,
    )
    assert done.stdout.split() == ["True", "False", "True"]
