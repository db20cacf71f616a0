"""An index and a workspace for packages."""

import os
from pathlib import Path

import pytest

from tests.kernel_mgr.packages.index import Index


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    made = Index(tmp_path / "index")
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(made.directory))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    return made


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A workspace."""
    directory = tmp_path / "work"
    directory.mkdir()
    (directory / ".env").write_text("SECRET=1")
    return directory
