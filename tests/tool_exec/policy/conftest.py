"""A workspace that policies are about."""

from pathlib import Path

import pytest


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in which servers are started, too, with links that lead out of `data`."""
    directory = (tmp_path / "workspace").resolve()
    (directory / "data" / "deep").mkdir(parents=True)
    (directory / "secrets").mkdir()
    (directory / "data" / "way-out").symlink_to("/etc")
    (directory / "data" / "to-secrets").symlink_to("../secrets")
    (directory / "data" / "circle").symlink_to("circle")
    (directory / "link").symlink_to("data")
    monkeypatch.chdir(directory)
    return directory
