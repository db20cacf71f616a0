import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ipybox.mcp_server.outputs import PAGE_BYTES, OutputStore
from tests.audit.test_log import file_size_limit


def whole(store: OutputStore, name: str) -> str:
    """The pages of an output, put together."""
    text, offset = "", 0
    while True:
        page = store.page(name, offset)
        assert len(page.text.encode()) <= PAGE_BYTES
        assert page.end > offset or page.end == page.size
        text, offset = text + page.text, page.end
        if offset == page.size:
            return text


def names(store: OutputStore) -> list[str]:
    return [kept.name for kept in store.kept()]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("a\nb", id="a_page"),
        pytest.param("x" * (3 * PAGE_BYTES), id="one_line"),
        pytest.param("ä€\U0001f600" * PAGE_BYTES, id="characters_of_all_lengths"),
        pytest.param("\n".join(map(str, range(20_000))), id="lines"),
        pytest.param("\r\n\0\x1b[31m", id="control_characters"),
    ],
)
def test_pages_put_together_are_the_output(text: str, tmp_path: Path):
    store = OutputStore(tmp_path)
    name = store.save(text)

    assert whole(store, name) == text
    assert store.path(name).read_bytes() == text.encode()


def test_pages_end_with_lines_and_begin_with_a_whole_character(tmp_path: Path):
    store = OutputStore(tmp_path)
    lines = store.save("0123456789\n" * PAGE_BYTES)
    characters = store.save("€€€")

    assert store.page(lines).text.endswith("9\n")
    assert store.page(characters, 1).text == "€€"
    assert store.page(characters, 9).text == ""


@pytest.mark.parametrize("name", ["", "x", "../../secret", "1a1ff75c7b7.txt", "1a1ff75c7b7\n"])
def test_what_is_not_the_name_of_an_output_is_refused(name: str, tmp_path: Path):
    with pytest.raises(ValueError, match="is not the name of an output"):
        OutputStore(tmp_path).page(name)


def test_what_is_not_there_is_said(tmp_path: Path):
    store = OutputStore(tmp_path)
    with pytest.raises(ValueError, match="not found: ipybox keeps the last 100 outputs, up to 256 MiB in total"):
        store.page("1a1ff75c7b7")
    name = store.save("abc")
    with pytest.raises(ValueError, match=f"offset 4 is past the end of output {name}"):
        store.page(name, 4)


def test_the_oldest_are_removed_if_there_are_too_many(tmp_path: Path):
    store = OutputStore(tmp_path, max_files=3)
    made = [store.save(str(i)) for i in range(6)]

    assert made == sorted(made)
    assert names(store) == made[:2:-1]
    assert sorted(path.name for path in store.path("").parent.iterdir()) == [f"{name}.txt" for name in made[3:]]


def test_the_oldest_are_removed_if_they_are_too_large_and_the_newest_stays_in_any_case(tmp_path: Path):
    store = OutputStore(tmp_path, max_bytes=100)
    first, second, third = (store.save("x" * 40) for _ in range(3))

    assert names(store) == [third, second]
    assert first not in names(store)
    large = store.save("x" * 1000)
    assert names(store) == [large]
    assert whole(store, large) == "x" * 1000


def test_several_servers_can_keep_outputs_at_once(tmp_path: Path):
    stores = [OutputStore(tmp_path), OutputStore(tmp_path)]

    def keep(number: int) -> str:
        return stores[number % 2].save(f"output {number}")

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(keep, range(60)))

    assert len({*made}) == 60
    assert [whole(stores[0], name) for name in made] == [f"output {i}" for i in range(60)]


def test_what_is_planted_is_neither_followed_nor_removed_nor_waited_for(tmp_path: Path):
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    workspace.mkdir()
    outside.mkdir()
    (outside / "secret").write_text("secret")
    store = OutputStore(workspace, max_files=1)
    first = store.save("first")
    place = store.path("").parent
    (place / "notes.txt").write_text("a user's")
    link, pipe = "00000000001", "00000000002"
    (place / f"{link}.txt").symlink_to(outside / "secret")
    os.mkfifo(place / f"{pipe}.txt")
    for name in (link, pipe):
        with pytest.raises(OSError, match=r"is a (link|pipe)"):
            store.page(name)

    second = store.save("second")
    assert first not in names(store)
    assert (outside / "secret").read_text() == "secret"
    assert sorted(path.name for path in place.iterdir()) == [f"{second}.txt", "notes.txt"]

    place.rename(workspace / "moved")
    place.symlink_to(outside)
    with pytest.raises(NotADirectoryError, match="outputs is a link"):
        store.save("third")
    with pytest.raises(NotADirectoryError, match="outputs is a link"):
        store.page(second)
    assert store.kept() == []
    assert os.listdir(outside) == ["secret"]


def test_names_that_others_have_taken_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(time, "time_ns", lambda: 10**18)
    stores = [OutputStore(tmp_path) for _ in range(3)]

    assert [int(store.save("x"), 16) - 10**12 for store in stores] == [1, 2, 3]


def test_name_of_what_was_just_removed_is_not_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(time, "time_ns", lambda: 10**18)
    store = OutputStore(tmp_path, max_files=1)

    assert [int(store.save("x"), 16) - 10**12 for _ in range(3)] == [1, 2, 3]


def test_nothing_is_left_of_what_could_not_be_written(tmp_path: Path):
    store = OutputStore(tmp_path)
    name = store.save("before")

    with file_size_limit(3), pytest.raises(OSError, match="File too large"):
        store.save("after")
    assert [path.name for path in store.path("").parent.iterdir()] == [f"{name}.txt"]


def test_outputs_are_kept_out_of_repositories(tmp_path: Path):
    OutputStore(tmp_path).save("x")

    assert (tmp_path / ".ipybox" / ".gitignore").read_text() == "*\n"
