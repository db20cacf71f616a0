"""The end of a plugin. By its name the last file of this folder, as the other tests use the same home before."""

from pathlib import Path

from tests.claude.conftest import Installed


def test_uninstalled_plugin_leaves_nothing(installed: Installed, workspace: Path):
    home = installed.home
    # Nor does it leave a process, for which each run of the client is checked.
    assert "Successfully uninstalled plugin" in home.uninstall(installed.plugin)
    assert list((home.path / ".claude" / "plugins" / "data").iterdir()) == []
    assert "No MCP servers configured" in home.mcp_list(workspace)
