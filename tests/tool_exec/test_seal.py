import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ipybox.tool_exec.seal import is_sealed, key_path, seal

ROOT = Path("/project/mcptools")
WORKSPACE = ROOT.parent
PARAMS: dict[str, Any] = {"command": "python", "args": ["-m", "server", "ä\ud800"], "env": {"A": "${A}", "B": "b"}}


@pytest.fixture(autouse=True)
def fresh_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_a_seal_fits_its_name_and_params():
    assert is_sealed("name", PARAMS, seal("name", PARAMS, ROOT), WORKSPACE)


def test_a_seal_fits_params_that_were_written_and_read():
    assert is_sealed("name", json.loads(json.dumps(PARAMS)), seal("name", PARAMS, ROOT), WORKSPACE)


def test_the_order_of_keys_does_not_matter():
    assert is_sealed("name", dict(reversed(PARAMS.items())), seal("name", PARAMS, ROOT), WORKSPACE)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        pytest.param("other", PARAMS, id="name"),
        pytest.param("name", {**PARAMS, "command": "sh"}, id="command"),
        pytest.param("name", {**PARAMS, "args": ["-m", "server"]}, id="fewer_args"),
        pytest.param("name", {**PARAMS, "args": ["server", "-m", "ä\ud800"]}, id="order_of_args"),
        pytest.param("name", {**PARAMS, "env": {"A": "resolved", "B": "b"}}, id="env"),
        pytest.param("name", {**PARAMS, "cwd": "/"}, id="another_key"),
        pytest.param("name", {}, id="nothing"),
        pytest.param("name", {"url": "http://x/mcp"}, id="other_params"),
    ],
)
def test_a_seal_fits_nothing_else(name: str, params: dict[str, Any]):
    assert not is_sealed(name, params, seal("name", PARAMS, ROOT), WORKSPACE)


def test_name_and_params_can_not_be_shifted_into_each_other():
    assert seal('a",{}', {}, ROOT) != seal("a", {}, ROOT)


@pytest.mark.parametrize("candidate", [None, "", "0" * 64, "ä", "\ud800"])
def test_what_is_no_seal_is_refused(candidate: str | None):
    assert not is_sealed("name", PARAMS, candidate, WORKSPACE)


def test_a_seal_of_another_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    foreign = seal("name", PARAMS, ROOT)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))

    assert not is_sealed("name", PARAMS, foreign, WORKSPACE)


def test_the_key_can_be_read_by_the_same_user_only():
    seal("name", PARAMS, ROOT)

    assert stat.S_IMODE(key_path().stat().st_mode) == 0o600
    assert stat.S_IMODE(key_path().parent.stat().st_mode) == 0o700
    assert len(key_path().read_bytes()) == 32
    assert os.listdir(key_path().parent) == ["seal.key"]


def test_the_key_is_kept():
    before = seal("name", PARAMS, ROOT)
    key = key_path().read_bytes()
    seal("other", PARAMS, ROOT)

    assert key_path().read_bytes() == key
    assert seal("name", PARAMS, ROOT) == before


def test_the_key_of_whoever_was_first_is_everybodys():
    with ThreadPoolExecutor(8) as pool:
        seals = set(pool.map(seal, ["name"] * 8, [PARAMS] * 8, [ROOT] * 8))

    assert len(seals) == 1
    assert os.listdir(key_path().parent) == ["seal.key"]


def test_a_broken_key_is_an_error_that_says_what_to_do():
    key_path().parent.mkdir()
    key_path().write_bytes(b"short")
    with pytest.raises(ValueError, match=r"seal\.key does not hold a key of 32 bytes: remove it"):
        seal("name", PARAMS, ROOT)


@pytest.mark.parametrize("workspace", ["/project/other", "/other", "/project/mcptools/x", "/"])
def test_a_seal_of_another_workspace_is_refused(workspace: str):
    assert not is_sealed("name", PARAMS, seal("name", PARAMS, ROOT), Path(workspace))


@pytest.mark.parametrize(
    "place", ["../project/mcptools", "/project/mcptools", "x/../../project/mcptools", "/".join("a" * 99)]
)
def test_a_seal_can_not_be_moved_into_a_workspace(place: str):
    mac = seal("name", PARAMS, ROOT).rpartition(":")[2]

    assert not is_sealed("name", PARAMS, f"{place}:{mac}", Path("/other"))


def test_a_seal_fits_a_directory_deeper_in_the_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    made_above = seal("name", PARAMS, tmp_path / "workspace" / "tools" / "mcp")

    assert made_above.startswith("workspace/tools/mcp:")
    assert is_sealed("name", PARAMS, made_above, tmp_path)
    assert is_sealed("name", PARAMS, made_above, tmp_path / "workspace")
    assert not is_sealed("name", PARAMS, made_above, tmp_path / "tools")
