"""What a package says about itself costs no more than its size allows."""

import os
from pathlib import Path, PurePosixPath

import pytest

from ipybox.kernel_mgr.packages.distributions import Installed
from ipybox.kernel_mgr.packages.store import (
    MAX_FILES,
    PackageStore,
    _files_of,  # pyright: ignore[reportPrivateUsage]
)


def test_only_as_many_files_are_read_as_a_distribution_can_have(tmp_path: Path):
    (tmp_path / "RECORD").write_text("a\n" * (MAX_FILES + 1))
    assert sum(1 for _ in _files_of(Installed("a", "1", tmp_path, {}))) == MAX_FILES


def test_recorded_names_of_no_file_are_left_out(tmp_path: Path):
    (tmp_path / "RECORD").write_text("..,,\n/,,\n../a,,\n")
    assert [*_files_of(Installed("a", "1", tmp_path, {}))] == [PurePosixPath("a")]


def test_only_files_are_kept_and_what_is_in_the_way_of_the_next_generation_is_removed(tmp_path: Path):
    packages = tmp_path / ".ipybox/packages"
    packages.mkdir(parents=True)
    (packages / "module.py").touch()
    os.mkfifo(packages / "pipe")
    new = packages.with_name("packages.new")
    new.touch()
    store = PackageStore(tmp_path)
    assert not new.exists()
    new.mkdir()
    with pytest.raises(FileExistsError):
        store.replace([])
    store.replace([])
    assert os.listdir(packages) == ["module.py"]
