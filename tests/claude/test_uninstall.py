"""An update of a plugin, and its end."""

from pathlib import Path

from tests.claude.cli import Home
from tests.claude.conftest import both_clients


@both_clients
def test_an_update_keeps_the_options_and_uninstalling_leaves_nothing_in_the_client(
    home: Home, repository: Path, workspace: Path, tmp_path: Path
):
    home.marketplace_add()
    home.install("codeact-sandbox", approve="ask")
    before = home.plugin_root("codeact-sandbox")
    next_version = home.publish_next(repository, "codeact-sandbox", tmp_path)

    home.claude("plugin", "marketplace", "update", "ipybox")
    said = home.claude("plugin", "update", "codeact-sandbox@ipybox")

    assert f"from {before.name} to {next_version}" in said
    listed = home.mcp_list(workspace)
    assert f"/{next_version}/launch/launch.sh serve sandbox " in listed
    assert "--approve=ask" in listed.split()
    assert "✔ Connected" in listed

    # Nor does it leave a process, for which each run of the client is checked.
    assert "Successfully uninstalled plugin" in home.uninstall("codeact-sandbox")

    data = home.path / ".claude" / "plugins" / "data"
    assert not data.exists() or list(data.iterdir()) == []
    assert "codeact" not in (home.path / ".claude" / "settings.json").read_text()
    assert "No MCP servers configured" in home.mcp_list(workspace)
