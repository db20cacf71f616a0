import os
from pathlib import Path

import pytest

from ipybox.support.safe_directory import open_untrusted


def lowest_free() -> int:
    """Returns the number of the next descriptor that this process opens."""
    fd = os.open(os.devnull, os.O_RDONLY)
    os.close(fd)
    return fd


def test_a_file_is_opened(tmp_path: Path):
    (tmp_path / "file").write_text("text")
    with open_untrusted(tmp_path / "file") as file:
        assert file.read() == b"text"


def test_a_directory_is_refused_and_its_descriptor_closed(tmp_path: Path):
    free = lowest_free()
    with pytest.raises(IsADirectoryError):
        open_untrusted(tmp_path)
    assert lowest_free() == free


def test_a_link_is_not_followed(tmp_path: Path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(OSError, match="symbolic links"):
        open_untrusted(tmp_path / "link")


def test_a_pipe_is_not_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    with open_untrusted(tmp_path / "pipe") as pipe:
        assert pipe.read() == b""
