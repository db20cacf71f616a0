"""Imported secrets are found for the registration that they came with, and for no other."""

import stat
from pathlib import Path
from typing import Any

import pytest

from ipybox.audit.redaction import workspace_redactor
from ipybox.workspace.seal import ImportedSecrets

PARAMS: dict[str, Any] = {"command": "acme", "env": {"TOKEN": "${TOKEN}"}}
VALUES = {"TOKEN": "t0p-s3cret"}


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("other", PARAMS),
        ("acme", {**PARAMS, "args": ["--print-env"]}),
        ("acme", {"command": "acme", "env": {"COPY": "${TOKEN}"}}),
        ("../acme", PARAMS),
        ("acme\ud800", PARAMS),
    ],
)
def test_no_other_registration_gets_them(name: str, params: dict[str, Any], tmp_path: Path):
    imported = ImportedSecrets(tmp_path)
    imported.store("acme", PARAMS, VALUES)

    assert imported.of("acme", PARAMS) == VALUES
    assert imported.of(name, params) is None


def test_another_workspace_does_not_get_them(tmp_path: Path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    ImportedSecrets(tmp_path / "a").store("acme", PARAMS, VALUES)

    assert ImportedSecrets(tmp_path / "b").of("acme", PARAMS) is None
    # not even if it gets the files of the first
    (tmp_path / "a").rename(tmp_path / "c")
    assert ImportedSecrets(tmp_path / "c").of("acme", PARAMS) is None


def test_they_are_found_wherever_ipybox_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    workspace = tmp_path / "a:b"  # a colon separates the parts of a seal, too
    workspace.mkdir()
    monkeypatch.chdir(tmp_path)
    ImportedSecrets(workspace).store("acme", PARAMS, VALUES)

    monkeypatch.chdir(workspace)
    assert ImportedSecrets(workspace).of("acme", PARAMS) == VALUES


def test_only_their_owner_can_read_them_and_a_new_registration_removes_earlier_ones(tmp_path: Path):
    imported, later = ImportedSecrets(tmp_path), {**PARAMS, "args": ["x"]}
    for params in (PARAMS, later):
        imported.store("acme", params, VALUES)
    imported.store("acme_2", PARAMS, VALUES)
    files = [*imported.directory.iterdir()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert not any(path.is_relative_to(tmp_path) for path in files)

    imported.keep_only("acme", later)

    assert imported.of("acme", PARAMS) is None
    assert imported.of("acme", later) == imported.of("acme_2", PARAMS) == VALUES


def test_nothing_is_stored_where_code_could_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    with pytest.raises(PermissionError, match="inside the workspace"):
        ImportedSecrets(tmp_path).store("acme", PARAMS, VALUES)


def test_logs_do_not_contain_them_even_if_they_are_imported_later(tmp_path: Path):
    redactor = workspace_redactor(tmp_path, {})
    assert redactor.text("a t0p-s3cret b") == "a t0p-s3cret b"

    ImportedSecrets(tmp_path).store("acme", PARAMS, VALUES)

    assert redactor.text("a t0p-s3cret b") == "a ${acme.TOKEN} b"
