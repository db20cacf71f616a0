"""What a package says about itself costs no more than its size allows."""

from pathlib import Path

from ipybox.kernel_mgr.packages.distributions import Installed
from ipybox.kernel_mgr.packages.store import MAX_FILES, _files_of  # pyright: ignore[reportPrivateUsage]


def test_only_as_many_files_are_read_as_a_distribution_can_have(tmp_path: Path):
    (tmp_path / "RECORD").write_text("a\n" * (MAX_FILES + 1))
    assert sum(1 for _ in _files_of(Installed("a", "1", tmp_path, {}))) == MAX_FILES
