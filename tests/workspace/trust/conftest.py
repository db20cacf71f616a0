"""A workspace that brings files."""

import json
from pathlib import Path

import pytest

from tests.workspace.trust.files import HOSTILE


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    directory = tmp_path / "workspace"
    directory.mkdir()
    return directory


@pytest.fixture
def file(workspace: Path) -> Path:
    path = workspace / "sandbox-config.json"
    path.write_text(json.dumps(HOSTILE))
    return path


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of agreements that nothing has made yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "ipybox" / "trust"
