"""What one end of an engine's link sees of the files that are synchronized, and what it writes."""

import os
from pathlib import Path

import pytest

from ipybox.kernel_mgr.transfer import synced_tree
from ipybox.kernel_mgr.transfer.synced_state import Bounds, FileState, batches, changed
from ipybox.kernel_mgr.transfer.synced_tree import CHANGED, SyncedTree

#: A size above that of a batch.
LARGE = 17 << 20


def tree(base: Path, bounds: Bounds | None = None) -> SyncedTree:
    def protected(names: tuple[str, ...]) -> str | None:
        return "it is protected" if ".git" in names else None

    return SyncedTree(base, protected, protected, bounds)


def put(base: Path, *names: str, content: bytes = b"x") -> None:
    for name in names:
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_bytes(content)


def test_content_is_read_again_only_if_the_status_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    put(tmp_path, "a/one", "a/two")
    for name in ("a/one", "a/two"):
        os.utime(tmp_path / name, (1, 1))
    monkeypatch.setattr(synced_tree, "UNSETTLED", -1.0)
    files = tree(tmp_path)
    before = files.scan(["a"]).files
    read: list[int] = []
    hashed = synced_tree._hash  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(synced_tree, "_hash", lambda file, limit: read.append(1) or hashed(file, limit))  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    assert files.scan(["a"]).files == before
    assert read == []
    put(tmp_path, "a/two", content=b"y")
    assert changed(before, files.scan(["a"]).files).keys() == {"a/two"}
    assert read == [1]


def test_change_within_a_tick_of_the_clock_is_found(tmp_path: Path):
    files = tree(tmp_path)
    put(tmp_path, "a/one", content=b"1")
    status = (tmp_path / "a/one").stat()
    before = files.scan(["a"]).files
    (tmp_path / "a/one").write_bytes(b"2")
    os.utime(tmp_path / "a/one", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert files.scan(["a"]).files != before


@pytest.mark.parametrize(
    ("bounds", "omitted"),
    [
        (Bounds(one=3), {"a/big": "it has 4 bytes, and a file may have 3 bytes"}),
        (Bounds(total=3), {"a/big": "all files together may have 3 bytes"}),
        (Bounds(files=3), {"a": "it has more than 3 entries"}),
        (Bounds(files=5), {"b": "only 5 files and directories are synchronized together"}),
    ],
    ids=["one", "total", "entries", "files"],
)
def test_what_exceeds_a_bound_is_omitted_with_the_reason(tmp_path: Path, bounds: Bounds, omitted: dict[str, str]):
    put(tmp_path, "a/big", content=b"four")
    put(tmp_path, "a/1", "a/2", "a/3", "b/1", "b/2", content=b"")
    assert omitted.items() <= tree(tmp_path, bounds).scan(["a", "b"]).omitted.items()


def test_path_below_an_omitted_directory_does_not_count_as_deleted(tmp_path: Path):
    put(tmp_path, *(f"a/{n}" for n in range(5)), "b/1")
    scan = tree(tmp_path, Bounds(files=4)).scan(["a", "b"])
    assert not scan.covers("a/9")
    assert scan.covers("b/9")


def test_links_devices_and_names_without_utf8_are_omitted(tmp_path: Path):
    put(tmp_path, "a/file")
    (tmp_path / "a/link").symlink_to("/etc")
    os.mkfifo(tmp_path / "a/pipe")
    os.mkdir(os.fsencode(tmp_path / "a") + b"/\xff")
    scan = tree(tmp_path).scan(["a"])
    assert scan.files.keys() == {"a/file"}
    assert sorted(scan.omitted.values()) == ["a link", "a pipe", "its name is not valid UTF-8"]


def test_written_files_are_those_that_were_expected(tmp_path: Path):
    here, there = tmp_path / "here", tmp_path / "there"
    put(here, "a/good", "a/other", ".git/config")
    there.mkdir()
    states = tree(here).scan(["a"]).files
    packed = tree(here).packed(["a/good", "a/other", ".git/config"])
    expected = {"a/good": states["a/good"], "a/other": FileState("0" * 64, 1, False), "a/missing": states["a/good"]}
    written = tree(there).write(packed, expected)
    assert written.done == {"a/good"}
    assert written.failed == {"a/other": CHANGED, "a/missing": CHANGED}
    assert [path.name for path in there.rglob("*")] == ["a", "good"]


def test_one_file_that_cannot_be_written_does_not_keep_the_others(tmp_path: Path):
    here, there = tmp_path / "here", tmp_path / "there"
    put(here, "a/1", "a/2/x")
    (there / "a/1/in-the-way").mkdir(parents=True)
    states = tree(here).scan(["a"]).files
    written = tree(there).write(tree(here).packed(states), states)
    assert written.done == {"a/2/x"}
    assert list(written.failed) == ["a/1"]
    assert "is a directory, where a file must be" in written.failed["a/1"]


def test_deleting_leaves_directories_with_files_and_follows_no_link(tmp_path: Path):
    put(tmp_path, "a/b/c/gone", "a/b/kept", "a/__pycache__/gone.pyc", "elsewhere/file")
    (tmp_path / "a/link").symlink_to(tmp_path / "elsewhere")
    deleted = tree(tmp_path).delete(["a/b/c/gone", "a/link/file", "a/missing", "a/.git/x"])
    assert deleted.done == {"a/b/c/gone", "a/missing"}
    assert deleted.failed.keys() == {"a/link/file", "a/.git/x"}
    assert (tmp_path / "elsewhere/file").exists()
    assert not (tmp_path / "a/b/c").exists()
    assert (tmp_path / "a/b/kept").exists()


def test_large_files_have_a_batch_of_their_own():
    state, large = FileState("", 5 << 20, False), FileState("", LARGE, False)
    files = {"a": state, "b": state, "large": large, "c": state}
    assert [list(batch) for batch in batches(files)] == [["a", "b"], ["large"], ["c"]]
    assert sum(len(batch) for batch in batches({str(n): FileState("", 0, False) for n in range(1100)})) == 1100
