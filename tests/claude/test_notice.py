"""What the SessionStart hook prints, for the person and for the model."""

import json
import os
from pathlib import Path

import pytest

from tests.claude.cli import no_process_left
from tests.claude.launcher import Plugin


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    """One with what is ready, as far as a notice looks."""
    return Plugin(tmp_path)


def test_a_session_is_told_of_files_that_are_not_trusted(plugin: Plugin):
    (plugin.workspace / "ipybox.yaml").write_text("default: allow")
    (plugin.workspace / "sandbox-config.json").write_text('{"filesystem": {"allowRead": ["~/.ssh"]}}')

    output = plugin.notice("sandbox", CLAUDE_PLUGIN_OPTION_APPROVE="ipybox.yaml")
    told = output["hookSpecificOutput"]["additionalContext"]
    assert "Tell the user: The workspace's sandbox-config.json is not trusted" in told
    assert "Tell the user: The workspace's ipybox.yaml is not trusted" in told
    assert f"{plugin.data}/environments/" in told
    assert "\nThe workspace's ipybox.yaml is not trusted" in output["systemMessage"]
    assert output["systemMessage"].count("in a terminal, then reconnect ipybox with /mcp.") == 2
    assert "Tell the user" not in output["systemMessage"]
    told = plugin.notice("docker", CLAUDE_PLUGIN_OPTION_APPROVE="ipybox.yaml")["systemMessage"]
    assert "sandbox-config.json" not in told
    assert f"uvx --from {plugin.root}/package ipybox trust" in told


def test_the_person_is_told_what_to_do(plugin: Plugin):
    (plugin.bin / "srt").unlink()

    output = plugin.notice("sandbox")

    assert "codeact-sandbox can't run code here: srt is missing.\nWhat to do: run `npm " in output["systemMessage"]
    assert "reconnect codeact-sandbox with /mcp.\n" in output["systemMessage"]
    told = output["hookSpecificOutput"]["additionalContext"]
    assert "Tell the user what to do: run `npm " in told
    assert "ask the user to reconnect codeact-sandbox with /mcp: you can't.\n" in told
    assert "WaitForMcpServers" in told
    assert "WaitForMcpServers" not in output["systemMessage"]


def test_programs_that_hang_are_not_waited_for(plugin: Plugin):
    # The notice would be there only after the time that programs have to tell their version, which is 5 s each.
    (plugin.bin / "rg").unlink()
    (plugin.bin / "rg").write_text("#!/bin/sh\nexec sleep 1000\n")
    (plugin.bin / "rg").chmod(0o755)
    (plugin.workspace / "sandbox-config.json").write_text('{"filesystem": {"allowRead": ["~/.ssh"]}}')
    (plugin.workspace / ".claude").mkdir()
    enabled = {"codeact-sandbox@ipybox": True, "codeact-docker@ipybox": True, "codeact-default@ipybox": False}
    (plugin.workspace / ".claude" / "settings.json").write_text(json.dumps({"enabledPlugins": enabled}))
    os.mkfifo(plugin.workspace / ".claude" / "settings.local.json")

    with no_process_left():
        said = plugin.notice("docker")["systemMessage"] + str(plugin.notice("sandbox"))

    assert "The workspace's sandbox-config.json is not trusted" in said
    assert "rg" not in said.split()
    assert "did not finish" not in said


def test_several_plugins_at_once_are_told_by_one_of_them(plugin: Plugin):
    config = Path(plugin.env["CLAUDE_CONFIG_DIR"])
    config.mkdir()
    enabled = {"codeact-default@ipybox": True, "codeact-sandbox@ipybox": True, "other@ipybox": True}
    (config / "settings.json").write_text(json.dumps({"enabledPlugins": enabled}))
    said = "The plugins codeact-default and codeact-sandbox are all enabled. "

    assert said in plugin.notice("plain")["systemMessage"]
    assert said not in str(plugin.notice("sandbox"))

    (plugin.workspace / ".claude").mkdir()
    (plugin.workspace / ".claude" / "settings.json").write_text('{"enabledPlugins": {"codeact-sandbox@ipybox": false}}')
    assert said not in str(plugin.notice("plain"))
