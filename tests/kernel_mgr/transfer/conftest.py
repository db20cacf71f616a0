"""A workspace with something outside of it."""

from pathlib import Path

import pytest

from ipybox.kernel_mgr.transfer.file_transfer import FileTransfer


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "workspace"
    directory.mkdir()
    return directory


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Where nothing must change, and from where nothing must be read."""
    directory = tmp_path / "outside"
    directory.mkdir()
    (directory / "file").write_text("outside")
    return directory


@pytest.fixture
def workspace(root: Path) -> FileTransfer:
    return FileTransfer(root)
