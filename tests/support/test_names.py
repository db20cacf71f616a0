"""What entries of the lists of names stand for."""

import os
import pwd
from pathlib import Path

import pytest

from ipybox.support.names import expand, is_protected, literal

VARIABLES = {
    "KUBECONFIG": "/a/config:/b/config",
    "DOCKER_CONFIG": "/docker",
    "NETRC": "/dev/null",
    "HISTFILE": "",
    "GH_CONFIG_DIR": "/x[1]*",
    "XDG_CONFIG_HOME": "/xdg",
    "XDG_CACHE_HOME": "/c1:/c2",
}


@pytest.mark.parametrize(
    ("entry", "paths"),
    [
        ("~/.ssh", ["~/.ssh"]),
        ("**/.env*", ["**/.env*"]),
        ("$KUBECONFIG", ["/a/config", "/b/config"]),
        ("$DOCKER_CONFIG/config.json", ["/docker/config.json"]),
        ("$DOCKER_CONFIG/a/b", ["/docker/a/b"]),
        ("$NETRC", []),
        ("$HISTFILE", []),
        ("$UNSET_VARIABLE/x", []),
        ("$GH_CONFIG_DIR", ["/x?1??"]),
        ("~/.config/gh", ["~/.config/gh", "/xdg/gh"]),
        ("~/.config/git/credentials", ["~/.config/git/credentials", "/xdg/git/credentials"]),
        ("~/.cache/x", ["~/.cache/x", "/c1/x", "/c2/x"]),
        ("~/.local/share/keyrings", ["~/.local/share/keyrings"]),
    ],
)
def test_an_entry_stands_for_what_variables_name_too(entry: str, paths: list[str], monkeypatch: pytest.MonkeyPatch):
    for variable in ("UNSET_VARIABLE", "XDG_DATA_HOME"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in VARIABLES.items():
        monkeypatch.setenv(variable, value)

    assert expand(entry) == paths


def test_a_path_with_wildcards_stands_for_itself():
    assert literal("/a*b/[id]/c?.txt") == "/a?b/?id?/c?.txt"


@pytest.mark.parametrize(
    ("name", "protected"),
    [
        *((name, True) for name in (".git", ".GIT", "claude.md", "CLAUDE.md", ".env", ".vscode", "ipybox.yaml")),
        *((name, False) for name in ("git", ".gitignore", "claude", "", "README.md")),
    ],
)
def test_names_are_protected_in_any_case(name: str, protected: bool):
    assert is_protected(name) == protected


def test_the_home_of_the_account_is_meant_where_home_is_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    account = pwd.getpwuid(os.getuid()).pw_dir
    monkeypatch.setenv("HOME", account)
    assert expand("~/.ssh") == ["~/.ssh"]

    for home in (str(tmp_path), "relative"):
        monkeypatch.setenv("HOME", home)
        assert expand("~/.ssh") == ["~/.ssh", f"{account}/.ssh"]
        assert expand("~") == ["~", account]
        assert expand("/etc/shadow") == ["/etc/shadow"]


def test_a_user_without_an_account_has_the_home_that_home_names(monkeypatch: pytest.MonkeyPatch):
    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)  # as in a container

    assert expand("~/.ssh") == ["~/.ssh"]
