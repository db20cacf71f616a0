import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path

import pytest

from ipybox.guest.tools.content import save, suffix_of


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("work", "temp"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temp"))


@pytest.mark.parametrize(
    ("tool_name", "stem"),
    [
        pytest.param("get-chart", "get-chart", id="plain"),
        pytest.param("../../etc/passwd", "______etc_passwd", id="path"),
        pytest.param("/root", "_root", id="absolute_path"),
        pytest.param("..", "__", id="parent"),
        pytest.param(".env", "_env", id="hidden"),
        pytest.param("-rf", "rf", id="option"),
        pytest.param("日本\n\0", "____", id="not_ascii"),
        pytest.param("", "tool", id="empty"),
        pytest.param("x" * 300, "x" * 64, id="long"),
    ],
)
def test_files_are_named_by_their_tool_and_never_elsewhere(tool_name: str, stem: str):
    path = save(b"data", tool_name, ".txt")

    assert path.parent == Path("toolfiles")
    assert re.fullmatch(rf"{stem}-\d\d\d\.txt", path.name)
    assert path.read_bytes() == b"data"


def test_numbers_grow_and_those_of_other_processes_are_left_out():
    Path("toolfiles").mkdir()
    for number in (1, 3):
        Path(f"toolfiles/growing-{number:03}.txt").write_text("theirs")

    paths = [save(b"ours", "growing", ".txt") for _ in range(3)]

    assert [path.name for path in paths] == ["growing-002.txt", "growing-004.txt", "growing-005.txt"]
    assert Path("toolfiles/growing-001.txt").read_text() == "theirs"


def test_threads_do_not_take_each_others_names():
    contents = [b"%d" % number for number in range(200)]
    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(save, contents, repeat("threads"), repeat(".txt")))

    assert [path.read_bytes() for path in paths] == contents


@pytest.mark.parametrize("kind", ["link", "dangling_link", "file"])
def test_what_stands_in_the_place_of_the_directory_is_left_alone(tmp_path: Path, kind: str):
    target = tmp_path / "target"
    if kind == "file":
        Path("toolfiles").write_text("mine")
    else:
        Path("toolfiles").symlink_to(target)
    if kind == "link":
        target.mkdir()

    path = save(b"data", "tool", ".txt")

    assert path.read_bytes() == b"data"
    assert path.is_relative_to(tmp_path / "temp")
    assert not target.exists() or not list(target.iterdir())


def test_what_can_not_be_written_anywhere_is_an_error(monkeypatch: pytest.MonkeyPatch):
    Path("toolfiles").write_text("")
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")

    with pytest.raises(OSError, match="nonexistent"):
        save(b"data", "tool", ".txt")


@pytest.mark.parametrize(
    ("mime_type", "uri", "suffix"),
    [
        pytest.param("image/svg+xml", "", ".svg", id="svg"),
        pytest.param("image/webp", "", ".webp", id="webp"),
        pytest.param("audio/mpeg", "", ".mp3", id="mp3"),
        pytest.param("audio/wav", "", ".wav", id="wav"),
        pytest.param("audio/ogg", "", ".ogg", id="ogg"),
        pytest.param("application/pdf", "file:///a/b.txt", ".pdf", id="type_before_uri"),
        pytest.param("application/octet-stream", "x://host/b.parquet?a=b.c", ".parquet", id="uri_before_no_type"),
        pytest.param("application/gzip", "x://host/a.gz", ".gz", id="uri_before_unknown_type"),
        pytest.param("", "https://example.com", ".bin", id="no_suffix_of_a_host"),
        pytest.param("", "file:///a/b.../../c", ".bin", id="no_suffix_of_a_directory"),
        pytest.param("", "file:///a.b%0Ac", ".bin", id="no_suffix_with_an_escape"),
        pytest.param("", "x://[/a.txt", ".bin", id="no_uri"),
        pytest.param("application/x-unknown", "", ".bin", id="unknown"),
    ],
)
def test_suffixes_tell_the_type(mime_type: str, uri: str, suffix: str):
    assert suffix_of(mime_type, uri) == suffix
