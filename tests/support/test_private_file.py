"""Files that only the same user can read."""

import os
import resource
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ipybox.support.private_file import create_private, load_or_create_key, replace_private


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """A umask that takes no permission away."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_a_private_file_is_private_from_its_first_byte_on(tmp_path: Path):
    with create_private(tmp_path / "file") as file:
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600


def test_nothing_is_created_where_something_is(tmp_path: Path):
    (tmp_path / "link").symlink_to("missing")
    with pytest.raises(FileExistsError):
        create_private(tmp_path / "link")


def test_a_file_is_replaced_by_a_private_one(tmp_path: Path):
    file = tmp_path / "file"
    file.write_text("before")

    replace_private(file, "after")

    assert file.read_text() == "after"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_that_can_not_be_replaced_stays_and_nothing_is_left(tmp_path: Path):
    file = tmp_path / "file"
    file.write_text("before")

    with pytest.raises(UnicodeEncodeError):
        replace_private(file, "half a character: \ud800")

    assert file.read_text() == "before"
    assert os.listdir(tmp_path) == ["file"]


def test_a_key_that_can_not_be_written_leaves_nothing(tmp_path: Path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            load_or_create_key(tmp_path / "key")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert os.listdir(tmp_path) == []
