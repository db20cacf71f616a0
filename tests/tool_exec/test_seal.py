import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ipybox.tool_exec.seal import is_sealed, key_path, seal

PARAMS: dict[str, Any] = {"command": "python", "args": ["-m", "server", "ä\ud800"], "env": {"A": "${A}", "B": "b"}}


@pytest.fixture(autouse=True)
def fresh_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_a_seal_fits_its_name_and_params():
    assert is_sealed("name", PARAMS, seal("name", PARAMS))


def test_a_seal_fits_params_that_were_written_and_read():
    assert is_sealed("name", json.loads(json.dumps(PARAMS)), seal("name", PARAMS))


def test_the_order_of_keys_does_not_matter():
    assert is_sealed("name", dict(reversed(PARAMS.items())), seal("name", PARAMS))


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
    assert not is_sealed(name, params, seal("name", PARAMS))


def test_name_and_params_can_not_be_shifted_into_each_other():
    assert seal('a",{}', {}) != seal("a", {})


@pytest.mark.parametrize("candidate", [None, "", "0" * 64, "ä", "\ud800"])
def test_what_is_no_seal_is_refused(candidate: str | None):
    assert not is_sealed("name", PARAMS, candidate)


def test_a_seal_of_another_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    foreign = seal("name", PARAMS)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))

    assert not is_sealed("name", PARAMS, foreign)


def test_the_key_can_be_read_by_the_same_user_only():
    seal("name", PARAMS)

    assert stat.S_IMODE(key_path().stat().st_mode) == 0o600
    assert stat.S_IMODE(key_path().parent.stat().st_mode) == 0o700
    assert len(key_path().read_bytes()) == 32
    assert os.listdir(key_path().parent) == ["seal.key"]


def test_the_key_is_kept():
    before = seal("name", PARAMS)
    key = key_path().read_bytes()
    seal("other", PARAMS)

    assert key_path().read_bytes() == key
    assert seal("name", PARAMS) == before


def test_the_key_of_whoever_was_first_is_everybodys():
    with ThreadPoolExecutor(8) as pool:
        seals = set(pool.map(seal, ["name"] * 8, [PARAMS] * 8))

    assert len(seals) == 1
    assert os.listdir(key_path().parent) == ["seal.key"]


def test_a_broken_key_is_an_error_that_says_what_to_do():
    key_path().parent.mkdir()
    key_path().write_bytes(b"short")
    with pytest.raises(ValueError, match=r"seal\.key does not hold a key of 32 bytes: remove it"):
        seal("name", PARAMS)
