import hashlib
import hmac
import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ipybox.support.state import state_dir
from ipybox.workspace.seal import MAX_DEPTH, SealVerifier, seal
from tests.servers import registered

ROOT = Path("/project/mcptools")
WORKSPACE = ROOT.parent
PARAMS: dict[str, Any] = {"command": "python", "args": ["-m", "server", "ä\ud800"], "env": {"A": "${A}", "B": "b"}}


@pytest.fixture(autouse=True)
def fresh_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_a_seal_fits_its_name_and_params():
    assert SealVerifier(WORKSPACE).accepts("name", PARAMS, registered("name", PARAMS, ROOT))


def test_a_seal_fits_params_that_were_written_and_read():
    assert SealVerifier(WORKSPACE).accepts("name", json.loads(json.dumps(PARAMS)), registered("name", PARAMS, ROOT))


def test_the_order_of_keys_does_not_matter():
    assert SealVerifier(WORKSPACE).accepts("name", dict(reversed(PARAMS.items())), registered("name", PARAMS, ROOT))


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
    assert not SealVerifier(WORKSPACE).accepts(name, params, registered("name", PARAMS, ROOT))


def test_name_and_params_can_not_be_shifted_into_each_other():
    assert seal('a",{}', {}, ROOT) != seal("a", {}, ROOT)


@pytest.mark.parametrize("candidate", [None, "", "0" * 64, "ä", "\ud800"])
def test_what_is_no_seal_is_refused(candidate: str | None):
    assert not SealVerifier(WORKSPACE).accepts("name", PARAMS, candidate)


def test_a_seal_of_another_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    foreign = registered("name", PARAMS, ROOT)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))

    assert not SealVerifier(WORKSPACE).accepts("name", PARAMS, foreign)


def test_the_key_can_be_read_by_the_same_user_only():
    seal("name", PARAMS, ROOT)

    assert stat.S_IMODE((state_dir() / "seal.key").stat().st_mode) == 0o600
    assert stat.S_IMODE(state_dir().stat().st_mode) == 0o700
    assert len((state_dir() / "seal.key").read_bytes()) == 32
    assert os.listdir(state_dir()) == ["seal.key"]


def test_the_key_is_kept():
    before = seal("name", PARAMS, ROOT)
    key = (state_dir() / "seal.key").read_bytes()
    seal("other", PARAMS, ROOT)

    assert (state_dir() / "seal.key").read_bytes() == key
    assert seal("name", PARAMS, ROOT) == before


def test_the_key_of_whoever_was_first_is_everybodys():
    with ThreadPoolExecutor(8) as pool:
        seals = set(pool.map(seal, ["name"] * 8, [PARAMS] * 8, [ROOT] * 8))

    assert len(seals) == 1
    assert os.listdir(state_dir()) == ["seal.key"]


def test_a_broken_key_is_an_error_that_says_what_to_do():
    state_dir().mkdir()
    (state_dir() / "seal.key").write_bytes(b"short")
    with pytest.raises(ValueError, match=r"seal\.key does not contain a 32-byte key: remove it"):
        seal("name", PARAMS, ROOT)


@pytest.mark.parametrize("workspace", ["/project/other", "/other", "/project/mcptools/x", "/"])
def test_a_seal_of_another_workspace_is_refused(workspace: str):
    assert not SealVerifier(Path(workspace)).accepts("name", PARAMS, registered("name", PARAMS, ROOT))


@pytest.mark.parametrize(
    "place", ["../project/mcptools", "/project/mcptools", "x/../../project/mcptools", "/".join("a" * 99)]
)
def test_a_seal_can_not_be_moved_into_a_workspace(place: str):
    mac = registered("name", PARAMS, ROOT).rpartition(":")[2]

    assert not SealVerifier(Path("/other")).accepts("name", PARAMS, f"{place}:{mac}")


def test_a_seal_fits_a_directory_deeper_in_the_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    made_above = registered("name", PARAMS, tmp_path / "workspace" / "tools" / "mcp")

    assert made_above.startswith("workspace/tools/mcp:")
    assert SealVerifier(tmp_path).accepts("name", PARAMS, made_above)
    assert SealVerifier(tmp_path / "workspace").accepts("name", PARAMS, made_above)
    assert not SealVerifier(tmp_path / "tools").accepts("name", PARAMS, made_above)


def test_what_is_registered_again_revokes_the_seal_before():
    before = registered("name", PARAMS, ROOT)
    verifier = SealVerifier(WORKSPACE)
    assert verifier.accepts("name", PARAMS, before)

    after = registered("name", {"command": "other"}, ROOT)

    assert not verifier.accepts("name", PARAMS, before)
    assert not SealVerifier(WORKSPACE).accepts("name", PARAMS, before)
    assert verifier.accepts("name", {"command": "other"}, after)


def test_what_is_registered_under_another_name_or_elsewhere_revokes_nothing():
    sealed = registered("name", PARAMS, ROOT)
    registered("other", PARAMS, ROOT)
    registered("name", {"command": "other"}, Path("/elsewhere/mcptools"))

    assert SealVerifier(WORKSPACE).accepts("name", PARAMS, sealed)


def test_a_seal_of_what_was_never_registered_is_refused():
    assert not SealVerifier(WORKSPACE).accepts("name", PARAMS, seal("name", PARAMS, ROOT))


def test_a_seal_is_the_same_in_each_version_of_ipybox():
    state_dir().mkdir()
    (state_dir() / "seal.key").write_bytes(b"k" * 32)
    text = b'["/project/mcptools","name",{"args":["-m","\\u00e4"],"command":"python"}]'
    expected = hmac.new(b"k" * 32, text, hashlib.sha256).hexdigest()

    sealed = seal("name", {"command": "python", "args": ["-m", "ä"]}, ROOT)

    assert sealed == f"mcptools:{expected}"
    assert sealed.rpartition(":")[2] == expected


def test_a_seal_that_was_accepted_fits_no_other_params_afterwards():
    sealed = registered("name", PARAMS, ROOT)
    verifier = SealVerifier(WORKSPACE)
    assert verifier.accepts("name", PARAMS, sealed)

    assert not verifier.accepts("name", {"command": "sh"}, sealed)
    assert not verifier.accepts("name", PARAMS, None)
    assert verifier.accepts("name", PARAMS, sealed)


def test_a_directory_may_have_a_colon_in_its_name():
    root = Path("/project/a:b")

    assert SealVerifier(WORKSPACE).accepts("name", PARAMS, registered("name", PARAMS, root))


@pytest.mark.parametrize(("depth", "accepted"), [(MAX_DEPTH, True), (MAX_DEPTH + 1, False)])
def test_a_place_may_be_so_deep_and_no_deeper(depth: int, accepted: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir("/")
    place = "/".join(["d"] * depth)

    assert SealVerifier(Path("/")).accepts("name", PARAMS, registered("name", PARAMS, Path("/", place))) == accepted
