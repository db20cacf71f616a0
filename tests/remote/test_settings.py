"""Engines by name are in the user's configuration, and nowhere else."""

import subprocess
import sys
from pathlib import Path

import pytest

from ipybox import CodeExecutor
from ipybox.remote.application.settings import Engine, find_engine
from ipybox.workspace.writable import WritablePlaces


@pytest.fixture
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "ipybox").mkdir(parents=True)
    return tmp_path / "config" / "ipybox" / "engines.yaml"


@pytest.fixture
def places(tmp_path: Path) -> WritablePlaces:
    (tmp_path / "workspace").mkdir()
    return WritablePlaces(tmp_path / "workspace")


def test_engine_is_found_by_its_name(configuration: Path, places: WritablePlaces):
    configuration.write_text("slurm: {command: [srun, -n1], env: [SLURM_X]}\nssh: {command: [ssh, node1]}\n")
    assert find_engine("slurm", places) == Engine(name="the engine 'slurm'", command=["srun", "-n1"], env=["SLURM_X"])
    with pytest.raises(ValueError, match=r"engine 'gpu' is not defined in .*engines.yaml: it defines slurm, ssh"):
        find_engine("gpu", places)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x: {command: []}", r"engines.yaml: x.command: List should have at least 1 item"),
        ("x: {command: srun -n1}", r"x.command: Input should be a valid list"),
        ("x: {command: [srun], enw: []}", r"x.enw: Extra inputs are not permitted"),
        ("x: [", "is not valid YAML"),
        (None, "engines.yaml can't be read: Is a directory"),
    ],
    ids=["empty", "text", "unknown", "yaml", "directory"],
)
def test_wrong_file_is_an_error_that_says_where(
    configuration: Path, places: WritablePlaces, content: str | None, message: str
):
    if content is None:
        configuration.mkdir()
    else:
        configuration.write_text(content)
    with pytest.raises(ValueError, match=message):
        find_engine("x", places)


def test_missing_file_is_an_error(configuration: Path, places: WritablePlaces):
    with pytest.raises(ValueError, match=r"no engines are defined because .*engines.yaml does not exist"):
        find_engine("slurm", places)


def test_file_that_code_can_write_is_refused(configuration: Path, tmp_path: Path):
    configuration.write_text("slurm: {command: [srun]}")
    with pytest.raises(ValueError, match="code can write it: set XDG_CONFIG_HOME"):
        CodeExecutor(working_dir=tmp_path, engine="slurm")


@pytest.mark.parametrize("wrong", [[], [1], ["srun", None]], ids=str)
def test_command_must_be_a_list_of_texts(places: WritablePlaces, wrong: list[str]):
    with pytest.raises(TypeError, match="engine must be a name, or a list of a program and its arguments"):
        find_engine(wrong, places)


def test_command_line_with_an_unknown_engine_says_so_and_serves_nothing(configuration: Path, places: WritablePlaces):
    configuration.write_text("slurm: {command: [srun]}")
    command = [sys.executable, "-m", "ipybox", f"--workspace={places.workspace}", "--engine=gpu"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith(f"ipybox: engine 'gpu' is not defined in {configuration}: it defines slurm")
