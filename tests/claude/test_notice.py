"""What the SessionStart hook prints, for the person and for the model."""

import json
from pathlib import Path

import pytest

from tests.claude.launcher import Plugin


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    """One with what is ready, as far as a notice looks."""
    return Plugin(tmp_path)


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
