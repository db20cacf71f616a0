"""Sandbox settings: files in srt's format and built-in profiles; nothing wrong is passed over."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ipybox import CodeExecutor
from ipybox.errors import SandboxError
from ipybox.kernel_mgr.server import KernelGateway
from ipybox.sandbox.settings import PROFILES, load_settings, optional_settings
from tests.servers import NODE_MODULES, WAIT

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


@pytest.mark.parametrize("config", [None, "workspace", "file"])
def test_more_hosts_are_added_to_those_of_a_profile_or_file(tmp_path: Path, config: str | None):
    given = settings_file(tmp_path, DOCUMENTED) if config == "file" else config
    settings = load_settings(given)

    more = load_settings(given, ["a.example", "example.org", "a.example"])

    assert more.allowed_domains == tuple(dict.fromkeys([*settings.allowed_domains, "a.example", "example.org"]))
    assert replace(more, allowed_domains=settings.allowed_domains) == settings


HOSTS = (
    *("example.org", "*.example.org", "example.org:443", "*.example.org:65535", "localhost", "localhost:8000"),
    *("127.0.0.1:8000", "[::1]", "[2001:db8::1]:443"),
)
NO_HOSTS = (
    *("*", "*.org", "intranet", "example.org:0", "example.org:65536", "example.org:https", "https://example.org"),
    *("example.org/path", ".example.org", "example.org.", "::1", "[::1", ""),
)
#: What srt takes, although no host has such a name.
ODD = ("a.example, b.example", "[a.example]", "a..example")


@pytest.mark.parametrize("host", HOSTS)
def test_hosts_are_taken_as_srt_takes_them(host: str):
    assert load_settings(allowed_domains=[host]).allowed_domains == (host,)


@pytest.mark.parametrize("host", [*NO_HOSTS, *ODD])
def test_what_is_no_host_is_refused_by_the_name_of_the_option(host: str):
    with pytest.raises(SandboxError, match=r"the allowed domains \(--allow-domain\) must be a list of "):
        load_settings(allowed_domains=["example.org", host])


def test_srt_has_the_same_idea_of_hosts(tmp_path: Path):
    schema = NODE_MODULES / "@anthropic-ai" / "sandbox-runtime" / "dist" / "sandbox" / "sandbox-config.js"
    script = """
import { pathToFileURL } from "node:url";
const { SandboxRuntimeConfigSchema: schema } = await import(pathToFileURL(process.argv[1]));
const takes = key => host => schema.safeParse({
  filesystem: { denyRead: [], allowWrite: [], denyWrite: [] },
  network: { allowedDomains: [], deniedDomains: [], [key]: [host] },
}).success;
const hosts = JSON.parse(process.argv[2]);
console.log(JSON.stringify([hosts.map(takes("allowedDomains")), ["*", "*:443"].map(takes("deniedDomains"))]));
"""
    command = ["node", "--input-type=module", "-e", script, str(schema), json.dumps([*HOSTS, *ODD, *NO_HOSTS])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, check=True)

    taken = [True] * len((*HOSTS, *ODD)) + [False] * len(NO_HOSTS)
    assert json.loads(done.stdout) == [taken, [True, True]]
    denied = settings_file(tmp_path, {"network": {"deniedDomains": ["*", "*:443"]}})
    assert load_settings(denied).denied_domains == ("*", "*:443")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "are not valid JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("", "are not valid JSON: Expecting value: line 1 column 1 (char 0)"),
        ("[" * 100_000, "are not valid JSON: maximum recursion depth exceeded"),
        ("[]", "must be a JSON object"),
        ({"fileSystem": {}}, "contain an unknown key 'fileSystem' (known: 'enableWeakerNestedSandbox', 'filesystem'"),
        ({"filesystem": {"denyreads": []}}, "contain an unknown key 'filesystem.denyreads' (known: 'denyRead'"),
        ({"filesystem": {"disabled": True}}, "contain an unknown key 'filesystem.disabled'"),
        ({"network": {"allowAllUnixSockets": True}}, "contain an unknown key 'network.allowAllUnixSockets'"),
        ({"bwrapPath": "/bin/true"}, "contain an unknown key 'bwrapPath'"),
        ({"allowPty": True}, "'network'): correct or remove it, even if srt accepts it"),
        ({"filesystem": []}, ": 'filesystem' must be an object"),
        ({"filesystem": {"denyRead": ".env"}}, ": 'filesystem.denyRead' must be a list of non-empty strings"),
        ({"filesystem": {"allowWrite": [1]}}, ": 'filesystem.allowWrite' must be a list of non-empty strings"),
        ({"filesystem": {"allowWrite": [""]}}, ": 'filesystem.allowWrite' must be a list of non-empty strings"),
        ({"filesystem": {"denyWrite": None}}, ": 'filesystem.denyWrite' must be a list of non-empty strings"),
        ({"network": {"allowLocalBinding": "yes"}}, ": 'network.allowLocalBinding' must be true or false"),
        ({"network": {"allowedDomains": ["*"]}}, ": 'network.allowedDomains' must be a list of hosts, such as 'exam"),
        ({"network": {"deniedDomains": ["https://a.org"]}}, "'example.org:443', not 'https://a.org'"),
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
    with pytest.raises(SandboxError, match=r"none\.json don't exist: pass a file, or one of the profiles 'default' or"):
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
    with pytest.raises(ValueError, match="sandbox_config has no effect while the sandbox is off: pass sandbox=True"):
        CodeExecutor(sandbox_config="workspace")
    with pytest.raises(ValueError, match="allowed_domains has no effect while the sandbox is off: pass sandbox=True"):
        CodeExecutor(allowed_domains=["example.org"])


def test_more_hosts_can_be_allowed():
    settings = optional_settings(sandbox=True, config=None, allowed_domains=["example.org"])

    assert settings is not None
    assert settings.allowed_domains == ("example.org",)
