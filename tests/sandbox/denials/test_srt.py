"""Refusals of real sandboxes are explained."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ipybox.sandbox.denials import explain_denials
from ipybox.sandbox.policy import SandboxPolicy
from ipybox.sandbox.settings import SandboxSettings
from tests.sandbox.denials.texts import SOURCE, refused

PYTHON_READS = "python3 -c \"open('{0}')\""
URLOPEN = "python3 -c \"import urllib.request as r; r.urlopen('{0}', timeout=10)\""


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        pytest.param("cat HOME/.ssh/id_rsa", ["to open HOME/.ssh/id_rsa"], id="cat_in_a_hidden_directory"),
        pytest.param("cat .env", ["to open .env"], id="cat_a_hidden_file"),
        pytest.param("cat link", ["to open link"], id="cat_a_link"),
        pytest.param("cat secret/open/f nothing", [], id="cat_what_is_allowed"),
        pytest.param(PYTHON_READS.format("x.pem"), ["to open x.pem"], id="python_reads_a_hidden_file"),
        pytest.param(PYTHON_READS.format("HOME/.ssh/id_rsa"), ["to open HOME/.ssh/id_rsa"], id="python_in_a_directory"),
        pytest.param(PYTHON_READS.format("nothing"), [], id="python_reads_nothing"),
        pytest.param("touch HOME/x", ["to write HOME/x"], id="touch_elsewhere"),
        pytest.param("echo x > keep.txt", ["to write keep.txt"], id="shell_writes_what_is_denied"),
        pytest.param("echo x > .git/hooks/pre-commit", ["to write .git/hooks/pre-commit"], id="shell_writes_a_hook"),
        pytest.param("mv .git .g", ["to move or remove .git"], id="mv_a_repository"),
        pytest.param("cp a.txt HOME/; mkdir HOME/d", ["to write HOME/a.txt", "to write HOME/d"], id="cp_and_mkdir"),
        pytest.param("mv a.txt HOME/a.txt", ["to write HOME/a.txt"], id="mv_elsewhere"),
        pytest.param(URLOPEN.format("https://example.org"), ["the network"], id="python_opens_an_address"),
        pytest.param("python3 -c 'import socket; socket.socket(socket.AF_UNIX)'", ["a socket"], id="unix_socket"),
    ],
)
@pytest.mark.sandbox
def test_what_srt_really_refuses_is_explained(
    settings: SandboxSettings, workspace: Path, command: str, expected: list[str]
):
    policy = SandboxPolicy(settings, workspace)
    without_proxy = f"unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY; {command}"

    assert refused(run_in_srt(without_proxy, settings, workspace), policy) == expected


@pytest.mark.sandbox
def test_what_the_proxy_of_srt_really_refuses_is_explained(proxied: SandboxPolicy, workspace: Path):
    (workspace / "fetch.py").write_text("from urllib.request import urlopen\nurlopen('https://example.org', timeout=9)")

    (hint,) = explain_denials(run_in_srt("python3 fetch.py", proxied.settings, workspace), proxied)

    assert hint.startswith(
        f"The sandbox refused the network: code can reach only hosts in network.allowedDomains of {SOURCE}"
    )


def run_in_srt(command: str, settings: SandboxSettings, workspace: Path) -> str:
    """Returns what a shell command puts out in the sandbox."""
    file = workspace.parent / "srt.json"
    content = {
        "filesystem": {
            "denyRead": settings.deny_read,
            "allowRead": settings.allow_read,
            "allowWrite": settings.allow_write,
            "denyWrite": settings.deny_write,
        },
        "network": {"allowedDomains": settings.allowed_domains, "deniedDomains": settings.denied_domains},
    }
    file.write_text(json.dumps(content))
    command = command.replace("HOME", str(workspace.parent / "home")).replace("python3", sys.executable)
    # srt leaves a socket there that is named by its process, and fails where another one left the same.
    with tempfile.TemporaryDirectory() as temporary:
        process = subprocess.run(
            ["srt", "--settings", str(file), "--", "bash", "-c", command],
            cwd=workspace,
            env={**os.environ, "TMPDIR": temporary},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
    return process.stdout
