"""Tests which files of a workspace a person trusts, and for how long."""

import hashlib
import json
import os
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from ipybox.errors import SandboxError
from ipybox.sandbox.settings import PROFILES, sandbox_settings
from ipybox.support.state import state_dir
from ipybox.support.untrusted_paths import MAX_SETTINGS
from ipybox.workspace.trust import TrustStore, read_untrusted
from tests.workspace.trust.files import HOSTILE, found, trust


def test_settings_hold_from_the_moment_they_are_trusted_until_they_change(workspace: Path, file: Path):
    before = found(workspace)
    assert (before.allow_read, before.allow_write, before.allowed_domains) == ((), (".",), ())
    assert set(before.deny_read) == set(PROFILES["default"].deny_read)
    assert before.untrusted
    assert before.file == file

    assert trust(workspace) == 0
    after = found(workspace, allowed_domains=["example.org"])
    assert (after.deny_read, after.allow_read) == ((), ("~/.ssh",))
    assert after.allowed_domains == ("evil.test", "example.org")
    assert (after.untrusted, after.notices) == (False, ())
    assert after.trust == before.trust, "a changed file needs it again"

    file.write_text(file.read_text() + " ")
    assert found(workspace).allow_read == ()
    file.write_text(json.dumps(HOSTILE))
    assert found(workspace) == sandbox_settings(TrustStore(workspace), file=file)
    assert [each.file for each in TrustStore(workspace).revoke()] == ["sandbox-config.json"]
    assert found(workspace) == before


def test_trust_is_for_the_profile_that_it_was_compared_with(workspace: Path, file: Path):
    trust(workspace)

    assert found(workspace, profile="workspace").deny_read[0] == "~"
    trust(workspace, profile="workspace")
    assert found(workspace, profile="workspace").deny_read == ()


def test_keys_of_a_trusted_file_replace_those_of_the_profile_and_no_others(workspace: Path, file: Path):
    file.write_text('{"network": {"allowedDomains": ["example.org"]}}')
    trust(workspace, profile="workspace")

    settings = found(workspace, profile="workspace")
    assert settings.allowed_domains == ("example.org",)
    assert settings.deny_read == PROFILES["workspace"].deny_read


def test_trust_is_for_one_workspace_and_one_file(workspace: Path, file: Path, tmp_path: Path):
    other = workspace / "other.json"
    other.write_text(file.read_text())
    trust(workspace)

    assert sandbox_settings(TrustStore(workspace), file=other).untrusted
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / file.name).write_text(file.read_text())
    assert found(elsewhere).untrusted


@pytest.mark.parametrize("profile", list(PROFILES))
@pytest.mark.parametrize(
    "content",
    [
        *(
            json.dumps({section: {key: value}})
            for section, key, value in (
                *(("filesystem", "denyRead", entries) for entries in ([], ["data"])),
                ("filesystem", "allowRead", ["~/.ssh"]),
                *(("filesystem", "allowWrite", entries) for entries in ([], ["out"], [".", "/"])),
                ("filesystem", "denyWrite", ["data"]),
                ("network", "allowedDomains", ["evil.test"]),
                ("network", "deniedDomains", ["*"]),
                ("network", "allowLocalBinding", False),
            )
        ),
        '{"enableWeakerNestedSandbox": true}',
        *("{}", '{"unknown": {}}', '{"network": {"allowedDomains": "evil.test"}}', "[]", "{", "", "\xff"),
    ],
)
def test_nothing_of_a_file_counts_before_it_is_trusted(workspace: Path, file: Path, content: str, profile: str):
    file.write_bytes(content.encode("latin-1"))

    settings = found(workspace, profile=profile, allowed_domains=["example.org"])

    own = replace(PROFILES[profile], allowed_domains=("example.org",))
    assert settings.untrusted
    assert replace(settings, untrusted=False, trust=None, file=None) == own
    assert settings.file == file


def test_a_file_that_only_restricts_needs_trust_too(workspace: Path, file: Path, capsys: pytest.CaptureFixture[str]):
    file.write_text('{"filesystem": {"denyWrite": ["data"], "allowWrite": ["out"]}}')

    assert trust(workspace) == 0
    assert f"{file} allows more than your own settings:\n  code may also write: out\n" in capsys.readouterr().out
    settings = found(workspace)
    assert (settings.deny_write, settings.allow_write, settings.notices) == (("data",), ("out",), ())

    file.write_text('{"filesystem": {"denyWrite": ["data"]}}')
    assert trust(workspace) == 0
    assert f"{file} allows nothing beyond your own settings\n" in capsys.readouterr().out
    assert found(workspace).deny_write == ("data",)


def test_a_file_that_is_missing_changes_nothing(workspace: Path, file: Path):
    file.unlink()
    assert replace(found(workspace), trust=None) == PROFILES["default"]
    assert replace(found(workspace, profile="workspace"), trust=None) == PROFILES["workspace"]


def test_a_file_of_the_user_is_believed_and_one_that_the_workspace_may_redirect_is_not(
    workspace: Path, file: Path, tmp_path: Path
):
    mine = tmp_path / "mine.json"
    mine.write_text(json.dumps(HOSTILE))
    store = TrustStore(workspace)
    assert sandbox_settings(store, file=mine).allow_read == ("~/.ssh",)

    (tmp_path / "link.json").symlink_to(file)
    assert sandbox_settings(store, file=tmp_path / "link.json").allow_read == ()
    (tmp_path / "link").symlink_to(workspace)
    assert sandbox_settings(store, file=tmp_path / "link" / file.name).allow_read == ()

    (workspace / "out.json").symlink_to(mine)
    (workspace / "out").symlink_to(tmp_path)
    for path in (workspace / "out.json", workspace / "out" / "mine.json"):
        with pytest.raises(SandboxError, match="can't be read: "):
            sandbox_settings(store, file=path)


@pytest.mark.parametrize("kind", ["pipe", "directory", "device", "link", "large"])
def test_what_is_no_plain_file_is_refused_at_once(workspace: Path, file: Path, kind: str):
    file.unlink()
    match kind:
        case "pipe":
            os.mkfifo(file)
        case "directory":
            file.mkdir()
        case "device":
            file.symlink_to("/dev/zero")
        case "link":
            file.symlink_to("/nowhere")
        case _:
            file.write_bytes(b" " * (MAX_SETTINGS + 1))

    with pytest.raises(OSError, match=str(file)):
        read_untrusted(file, workspace)
    with pytest.raises(SandboxError, match="can't be read: "):
        sandbox_settings(TrustStore(workspace), file=file)
    assert trust(workspace, file) == 1
    with pytest.raises(SandboxError, match="can't be read: "):
        found(workspace)


def test_a_trust_store_that_the_workspace_brings_is_not_believed(
    workspace: Path, file: Path, monkeypatch: pytest.MonkeyPatch
):
    trust(workspace)
    brought = workspace / ".ipybox" / "state"
    # Sockets of sessions that other tests have killed can't be copied.
    shutil.copytree(state_dir(), brought / "ipybox", ignore=shutil.ignore_patterns("*.sock"))
    monkeypatch.setenv("XDG_STATE_HOME", str(brought))

    assert found(workspace).untrusted
    assert TrustStore(workspace).agreements() == []
    assert TrustStore(workspace).revoke() == []
    with pytest.raises(
        PermissionError, match=f"the state directory {state_dir()} is inside the workspace, where code may"
    ):
        TrustStore(workspace).trust(file, b"")
    assert trust(workspace) == 1
    # As `ipybox docker` tells the container.
    vouched = TrustStore(workspace, [hashlib.sha256(file.read_bytes()).hexdigest()])
    assert sandbox_settings(vouched, file=file).allow_read == ("~/.ssh",)
    assert "run `ipybox trust` in" in found(workspace).notices[0]


def test_agreements_are_private_files_that_people_can_read(workspace: Path, file: Path, state: Path):
    before = os.umask(0)
    try:
        trust(workspace)
        trust(workspace, profile="workspace")
    finally:
        os.umask(before)

    agreements = TrustStore(workspace).agreements()
    assert [(each.file, each.profile) for each in agreements] == [
        ("sandbox-config.json", "default"),
        ("sandbox-config.json", "workspace"),
    ]
    assert {stat.S_IMODE(path.stat().st_mode) for path in state.iterdir()} == {0o600}
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert {len(path.read_text().splitlines()) for path in state.iterdir()} == {6}


def test_damaged_agreements_hide_no_others(workspace: Path, file: Path, state: Path):
    trust(workspace)
    for name, content in (
        *(("a.json", b"{"), ("b.json", b"[]"), ("c.json", b'{"file": "x"}'), ("d.json", b"\xff"), ("e.json", b"1")),
        ("f.json", json.dumps({"workspace": "/elsewhere", "file": "x", "profile": "", "sha256": ""}).encode()),
    ):
        (state / name).write_bytes(content)
    (state / "g.json").symlink_to("missing")
    (state / "h.json").mkdir()

    assert [each.file for each in TrustStore(workspace).agreements()] == ["sandbox-config.json"]
    assert [each.file for each in TrustStore(workspace).revoke()] == ["sandbox-config.json"]
    assert len(list(state.iterdir())) == 8


def test_an_agreement_is_revoked_for_the_files_that_are_named(workspace: Path, tmp_path: Path, state: Path):
    store = TrustStore(workspace)
    (tmp_path / "link").symlink_to(workspace)
    for path, profile in (("b/x", "p"), ("b/x", ""), ("a", ""), ("../outside", "")):
        store.trust(workspace / path, b"content", profile)

    assert [each.file for each in store.agreements()] == [str(tmp_path / "outside"), "a", "b/x", "b/x"]
    assert store.revoke([workspace / "c", workspace / "x"]) == []
    assert [(each.file, each.profile) for each in store.revoke([tmp_path / "link" / "b" / "x"])] == [
        ("b/x", ""),
        ("b/x", "p"),
    ]
    assert [each.file for each in store.revoke([tmp_path / "outside"])] == [str(tmp_path / "outside")]
    assert [each.file for each in store.revoke()] == ["a"]
    assert store.agreements() == []


def test_reading_makes_no_directory(workspace: Path):
    with pytest.raises(FileNotFoundError):
        read_untrusted(workspace / "missing" / "sandbox-config.json", workspace)

    assert list(workspace.iterdir()) == []


def test_a_file_as_large_as_may_be_is_read(workspace: Path):
    (workspace / "file").write_bytes(b" " * MAX_SETTINGS)

    assert read_untrusted(workspace / "file", workspace) == b" " * MAX_SETTINGS
