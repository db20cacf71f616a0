import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from ipybox.cli.option_table import OPTIONS
from ipybox.cli.serve import kernel_env
from tests.cli.parsed import parsed
from tests.servers import ROOT


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ipybox", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=env or None)


def test_prefixed_variables_are_for_the_kernel():
    environment = {"KERNEL_ENV_A": "1", "A": "2", "KERNEL_ENV_": "3", "XKERNEL_ENV_B": "4"}
    assert kernel_env(environment) == {"A": "1"}


def test_version_is_that_of_the_package():
    assert run("--version").stdout == run("-V").stdout == version("ipybox") + "\n"


def test_workspace_that_is_no_directory_is_an_error(tmp_path: Path):
    done = run("--workspace", str(tmp_path / "missing"))
    assert done.returncode == 2
    assert "missing is not a directory" in done.stderr
    assert done.stdout == ""


def test_allowed_directory_that_is_none_is_an_error(tmp_path: Path):
    done = run("--workspace", str(tmp_path), "--allowed-dir", "data", "--allowed-dir", "../missing")
    assert done.returncode == 2
    assert done.stderr.startswith(f"ipybox: the allowed directory {tmp_path.parent}/missing is not a directory")
    assert done.stdout == ""


def test_require_shell_escape_without_approval_of_commands_is_an_error(tmp_path: Path):
    done = run("--workspace", str(tmp_path), "--require-shell-escape")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "ipybox: --require-shell-escape requires --approve-shell-cmds\nAdd --approve-shell-cmds\n"


def test_options_of_the_contract_exist():
    options = {option.flag for option in OPTIONS}
    assert options >= {
        "--workspace",
        "--tool-server-host",
        "--tool-server-port",
        "--kernel-gateway-host",
        "--kernel-gateway-port",
        "--sandbox",
        "--sandbox-config",
        "--allow-domain",
        "--allowed-dir",
        "--log-level",
    }


def test_domains_are_a_list_however_they_are_given():
    given = ["--allow-domain", "a.org, b.org,", "--allow-domain=", "--allow-domain=c.org"]

    assert parsed(given)["allow_domain"] == ["a.org", "b.org", "c.org"]


def test_a_settings_file_is_relative_to_the_directory_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for given, file in (("a.json", "a.json"), ("~/b.json", "home/b.json"), (str(tmp_path / "c.json"), "c.json")):
        assert parsed(["--sandbox-config", given])["sandbox_config"] == tmp_path / file


def test_readme_names_the_commands_that_exist():
    readme = (ROOT / "README.md").read_text()
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^make ([a-z]+)", readme, re.MULTILINE)) <= targets
