"""The user's settings of uv and pip count; what code can write does not."""

import os
from pathlib import Path

import pytest
import uv

from ipybox.kernel_mgr.packages import InstallError
from ipybox.kernel_mgr.packages.uv import UvSettings, install_command, user_settings
from ipybox.workspace.writable import WritablePlaces


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "home"
    (directory / ".config/pip").mkdir(parents=True)
    (directory / ".config/uv").mkdir()
    monkeypatch.setenv("HOME", str(directory))
    for name in list(os.environ):
        if name.startswith(("PIP_", "UV_", "XDG_", "SSL_", "REQUESTS_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    # Files of the machine would come first, and this one comes last.
    monkeypatch.setenv("PIP_CONFIG_FILE", str(directory / "pip.conf"))
    return directory


def settings(workspace: Path) -> UvSettings:
    return user_settings(WritablePlaces(workspace))


def test_settings_of_pip_become_those_of_uv(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (home / "pip.conf").write_text(
        "[global]\nindex-url = https://a:b%40c@host.example/simple\nextra-index-url =\n  https://one.example/\n"
        "  https://two.example/\nproxy = http://proxy.example:1\ncert = /ca.pem\n[install]\nfind_links = /x /y\n"
        "no-index = true\ntrusted-host = host.example\n"
    )
    monkeypatch.setenv("PIP_CERT", "/other.pem")
    found = settings(tmp_path / "work")
    expected = {
        "UV_DEFAULT_INDEX": "https://a:b%40c@host.example/simple",
        "UV_INDEX": "https://one.example/ https://two.example/",
        "UV_FIND_LINKS": "/x,/y",
        "UV_INSECURE_HOST": "host.example",
        "ALL_PROXY": "http://proxy.example:1",
        "SSL_CERT_FILE": "/other.pem",
    }
    assert {name: found.environment.get(name) for name in expected} == expected
    assert found.options == ["--no-index"]
    assert found.hosts[2:] == ["host.example", "one.example", "two.example"]


@pytest.mark.parametrize(
    ("given", "expected"), [({}, "1"), ({"UV_SYSTEM_CERTS": "0"}, "0"), ({"UV_NATIVE_TLS": "0"}, None)]
)
def test_certificates_of_the_system_count_unless_the_user_decides(
    given: dict[str, str], expected: str | None, home: Path, monkeypatch: pytest.MonkeyPatch
):
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert settings(home.parent / "work").environment.get("UV_SYSTEM_CERTS") == expected


@pytest.mark.parametrize("way", ["pip.conf", "variable", "file"])
def test_a_sandbox_learns_no_password(way: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    url = "https://me:passw0rd@host.example:8443/simple"
    (home / "pip.conf").write_text(f"[global]\nindex-url = {url}\n" if way == "pip.conf" else "")
    if way == "variable":
        monkeypatch.setenv("UV_DEFAULT_INDEX", url)
    elif way == "file":
        (home / ".config/uv/uv.toml").write_text(f'[[index]]\nurl = "{url}"\ndefault = true\n')
    for name in ("UV_INDEX_OWN_PASSWORD", "SSH_AUTH_SOCK", "NETRC"):
        monkeypatch.setenv(name, "/passw0rd")
    found = settings(tmp_path / "work").without_passwords(tmp_path)
    assert found.hosts[2:] == ["host.example:8443"]
    assert "passw0rd" not in str(found.environment)
    assert found.file is None or "passw0rd" not in found.file.read_text()


@pytest.mark.parametrize("way", ["variable", "file"])
def test_indexes_of_uv_come_before_those_of_pip(way: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (home / "pip.conf").write_text("[global]\nindex-url = https://pip.example/\ncert = /ca.pem\nno-index = 1\n")
    if way == "variable":
        monkeypatch.setenv("UV_DEFAULT_INDEX", "https://uv.example/")
    else:
        (home / ".config/uv/uv.toml").write_text('[[index]]\nurl = "https://x:y@uv.example/"\n')
    found = settings(tmp_path / "work")
    assert found.environment.get("UV_DEFAULT_INDEX") == ("https://uv.example/" if way == "variable" else None)
    assert found.environment["SSL_CERT_FILE"] == "/ca.pem"
    assert found.options == []
    assert "uv.example" in found.hosts


def test_settings_that_the_user_switches_off_do_not_count(home: Path, monkeypatch: pytest.MonkeyPatch):
    (home / ".config/uv/uv.toml").write_text('index-url = "https://uv.example/"\n')
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    assert "uv.example" not in settings(home.parent / "work").hosts


def test_directories_of_indexes_are_those_that_exist(home: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("named", "listed"):
        (home / name).mkdir()
    monkeypatch.setenv("UV_FIND_LINKS", f"{home}/named,{home}/missing,relative")
    (home / ".config/uv/uv.toml").write_text(f'find-links = ["file://{home}/listed", "https://uv.example/"]\n')
    assert settings(home.parent / "work").paths[-2:] == [home / "named", home / "listed"]


def test_uv_that_code_could_overwrite_is_not_run(home: Path, monkeypatch: pytest.MonkeyPatch):
    (home / "uv").touch(0o755)
    monkeypatch.setattr(uv, "find_uv_bin", lambda: str(home / "uv"))
    places = WritablePlaces(home)
    with pytest.raises(InstallError, match="code could overwrite uv: install ipybox elsewhere"):
        install_command(places, UvSettings({}), "package", home / "target", home / "constraints")


@pytest.mark.parametrize("file", [".config/uv/uv.toml", "pip.conf"])
def test_settings_that_code_can_write_do_not_count(file: str, home: Path):
    content = 'index-url = "https://evil.example/"\n'
    (home / file).write_text(content if file.endswith("toml") else f"[global]\n{content}")
    assert "evil.example" in settings(home.parent / "work").hosts
    assert "evil.example" not in settings(home).hosts
