"""The end of a plugin."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.claude.conftest import Installed


@pytest.fixture
def uninstalled(installed: Installed) -> Iterator[str]:
    """Uninstalls the plugin for this test only, as others use the same home, and has what the client says."""
    yield installed.home.uninstall(installed.plugin)
    installed.home.install(installed.plugin, **installed.config)


def test_uninstalled_plugin_leaves_nothing(installed: Installed, uninstalled: str, workspace: Path):
    # Nor does it leave a process, for which each run of the client is checked.
    assert "Successfully uninstalled plugin" in uninstalled
    data = installed.home.path / ".claude" / "plugins" / "data"
    assert not data.exists() or list(data.iterdir()) == []
    assert "No MCP servers configured" in installed.home.mcp_list(workspace)
