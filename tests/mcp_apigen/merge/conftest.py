"""Where packages are generated."""

from pathlib import Path

import pytest


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Where the package of the tests is, in a workspace."""
    return tmp_path / "mcptools" / "srv"
