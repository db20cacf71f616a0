"""Sandbox settings: files in srt's format and built-in profiles; nothing wrong is passed over."""

import json
from pathlib import Path
from typing import Any

import pytest

from ipybox import CodeExecutor
from ipybox.errors import SandboxError
from ipybox.kernel_mgr.server import KernelGateway
from ipybox.sandbox.settings import PROFILES, load_settings

#: As the documentation has shown it since there is a sandbox.
DOCUMENTED = {
    "enableWeakerNestedSandbox": False,
    "filesystem": {"denyRead": [".env"], "allowWrite": [".", "~/Library/Jupyter", "~/.ipython"], "denyWrite": []},
    "network": {"allowedDomains": ["example.org"], "deniedDomains": [], "allowLocalBinding": True},
}


def settings_file(directory: Path, content: Any) -> Path:
    path = directory / "sandbox.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_the_default_lets_nothing_out_and_reads_no_credentials():
    settings = load_settings()

    assert settings is PROFILES["default"] is load_settings("default")
    assert settings.allowed_domains == ()
    assert not settings.has_network
    assert settings.allow_write == (".",)
    assert {"**/.env*", "~/.ssh", "~/.aws", "~/.netrc", "~/.claude*", "~/.npmrc"} <= set(settings.deny_read)


def test_the_workspace_profile_hides_the_home_but_the_workspace():
    settings = load_settings("workspace")

    assert settings.deny_read[0] == "~"
    assert set(PROFILES["default"].deny_read) <= set(settings.deny_read)
    assert settings.allow_read == (".",)
    assert settings.allowed_domains == ()


def test_the_documented_file_is_taken_as_it_is(tmp_path: Path):
    path = settings_file(tmp_path, DOCUMENTED)

    settings = load_settings(path)

    assert settings.source == str(path)
    assert settings.deny_read == (".env",)
    assert settings.allow_write == (".", "~/Library/Jupyter", "~/.ipython")
    assert settings.allowed_domains == ("example.org",)
    assert settings.has_network
    assert load_settings(str(path)) == settings


def test_what_a_file_leaves_out_is_as_in_the_default(tmp_path: Path):
    settings = load_settings(settings_file(tmp_path, {"network": {"allowedDomains": ["*.example.org"]}}))

    assert settings.allowed_domains == ("*.example.org",)
    assert settings.deny_read == PROFILES["default"].deny_read
    assert settings.allow_write == (".",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "are not valid JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("", "are not valid JSON: Expecting value: line 1 column 1 (char 0)"),
        ("[" * 100_000, "are not valid JSON: maximum recursion depth exceeded"),
        ("[]", "must be a JSON object"),
        ('{"network": {}, "network": {}}', "are not valid JSON: the key 'network' is there twice"),
        ({"fileSystem": {}}, "have an unknown key 'fileSystem'; known here: 'enableWeakerNestedSandbox', 'filesystem'"),
        ({"filesystem": {"denyreads": []}}, "have an unknown key 'filesystem.denyreads'; known here: 'denyRead'"),
        ({"filesystem": {"disabled": True}}, "have an unknown key 'filesystem.disabled'"),
        ({"network": {"allowAllUnixSockets": True}}, "have an unknown key 'network.allowAllUnixSockets'"),
        ({"bwrapPath": "/bin/true"}, "have an unknown key 'bwrapPath'"),
        ({"filesystem": []}, ": 'filesystem' must be an object"),
        ({"filesystem": {"denyRead": ".env"}}, ": 'filesystem.denyRead' must be a list of non-empty strings"),
        ({"filesystem": {"allowWrite": [1]}}, ": 'filesystem.allowWrite' must be a list of non-empty strings"),
        ({"filesystem": {"allowWrite": [""]}}, ": 'filesystem.allowWrite' must be a list of non-empty strings"),
        ({"filesystem": {"denyWrite": None}}, ": 'filesystem.denyWrite' must be a list of non-empty strings"),
        ({"network": {"allowLocalBinding": "yes"}}, ": 'network.allowLocalBinding' must be true or false"),
        ({"enableWeakerNestedSandbox": 0}, ": 'enableWeakerNestedSandbox' must be true or false"),
    ],
)
def test_a_wrong_file_is_refused_by_name_and_key(tmp_path: Path, content: Any, message: str):
    path = settings_file(tmp_path, content)

    with pytest.raises(SandboxError) as refused:
        load_settings(path)

    assert str(refused.value).startswith(f"the sandbox settings {path}")
    assert message in str(refused.value)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path):
    path = tmp_path / "sandbox.json"
    path.write_bytes(b"\xff\xfe\x00")

    with pytest.raises(SandboxError, match="are not valid JSON"):
        load_settings(path)


def test_a_missing_file_is_an_error_that_names_the_profiles(tmp_path: Path):
    with pytest.raises(SandboxError, match=r"none\.json don't exist: give a file, or one of the profiles 'default' or"):
        load_settings(tmp_path / "none.json")
    with pytest.raises(SandboxError, match="sandbox settings strict don't exist"):
        load_settings("strict")


def test_a_directory_is_no_settings_file(tmp_path: Path):
    with pytest.raises(SandboxError, match="can't be read: Is a directory"):
        load_settings(tmp_path)


def test_wrong_settings_are_refused_before_anything_starts(tmp_path: Path):
    path = settings_file(tmp_path, {"typo": 1})

    with pytest.raises(SandboxError, match="unknown key 'typo'"):
        CodeExecutor(sandbox=True, sandbox_config=path)
    with pytest.raises(SandboxError, match="unknown key 'typo'"):
        KernelGateway(port=None, sandbox=True, sandbox_config=path)


def test_settings_without_a_sandbox_are_a_mistake():
    with pytest.raises(ValueError, match="no sandbox is asked for: pass sandbox=True, too"):
        CodeExecutor(sandbox_config="workspace")
