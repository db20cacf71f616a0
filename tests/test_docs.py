"""Executes the Python of `docs/`, and checks that its examples are what the text shows."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from ipybox.mcp_params import parse_params
from ipybox.oauth.params import OAuthParams
from ipybox.sandbox.settings import load_settings
from ipybox.tool_exec.approval.policy import Policy
from tests.audit.lines import log_of, steady
from tests.test_readme import PATH, REPOSITORY

DOCS = REPOSITORY / "docs"
SCRIPTS = [
    pytest.param(block, id=f"{page.stem}_{number}")
    for page in sorted(DOCS.glob("*.md"))
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL))
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_script_of_the_documentation_runs(script: str, tmp_path: Path):
    shutil.copytree(DOCS / "examples", tmp_path / "examples")
    (tmp_path / "README.md").touch()
    (tmp_path / ".env").write_text("TOKEN=secret")

    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={"PATH": PATH, "HOME": str(tmp_path.parent), "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "secret" not in done.stdout + done.stderr


def test_settings_that_are_shown_are_those_of_the_example():
    shown = re.findall(r"^```json\n(.*?)^```$", (DOCS / "sandbox.md").read_text(), re.MULTILINE | re.DOTALL)

    assert [json.loads(block) for block in shown] == [json.loads((DOCS / "examples/sandbox-kernel.json").read_text())]
    assert load_settings(DOCS / "examples" / "sandbox-kernel.json").allowed_domains == (
        "example.org",
        "*.example.org:443",
    )
    assert load_settings(DOCS / "examples" / "sandbox-mcp.json").deny_read == (".env",)


def test_rules_that_are_shown_are_a_policy(tmp_path: Path):
    (rules,) = re.findall(r"^```yaml\n(.*?)^```$", (DOCS / "approvals.md").read_text(), re.MULTILINE | re.DOTALL)
    policy = Policy(rules, tmp_path)

    assert policy.decide("bank", "transfer", {"amount": 1000}).effect == "ask"
    assert policy.decide("bank", "transfer", {"amount": 999}).effect == "allow"
    assert policy.decide("filesystem", "read_file", {"path": "secrets/x"}).effect == "deny"


def test_every_key_of_oauth_is_documented_and_the_example_is_right():
    page = (DOCS / "remote-servers.md").read_text()
    (example,) = re.findall(r"^```json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\|(.*?)\|", page, re.MULTILINE)

    assert parse_params(json.loads(example))
    assert {key for row in rows for key in re.findall(r"`(\w+)`", row)} == {field.name for field in fields(OAuthParams)}


def test_events_that_are_shown_are_those_of_the_script(tmp_path: Path):
    page = (DOCS / "audit.md").read_text()
    (script,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (shown,) = re.findall(r"^```jsonl\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    env = {"PATH": PATH, "HOME": str(tmp_path), "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"]}

    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=env, capture_output=True, timeout=60, check=True)

    hashes = {"code_hash": "", "arguments_hash": ""}  # which the user's own key makes different
    written = [steady(line) | hashes for line in log_of(tmp_path)[1:-1]]
    assert written == [steady(json.loads(line)) | hashes for line in shown.splitlines()]


def test_every_test_that_the_sandboxs_promises_name_is_there():
    named = re.findall(r"`(tests/[\w/]+(?:\.py)?|\.ci/run)`", (DOCS / "sandbox.md").read_text())

    assert len(named) > 5
    assert [name for name in named if not (REPOSITORY / name).exists()] == []
