"""Files that code in the sandbox could plant: none of them stops an answer, and each is named in a line."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ipybox.codeact import check, tools
from ipybox.codeact import source as source_module
from ipybox.codeact.source import MAX_FILE, SourceReader, UnreadableError
from tests.codeact.conftest import COMMITS

#: Seconds that an answer may take, whatever there is.
PROMPT = 20.0


def circle(path: Path) -> None:
    path.symlink_to(path.name)


def secret(path: Path) -> None:
    outside = path.parents[3].parent / f"outside-{path.parents[2].name}.py"
    outside.write_text("def run(classified): ...\n")
    path.symlink_to(outside)


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


PLANTED: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "pipe": (os.mkfifo, ("is not a regular file",)),
    "directory": (Path.mkdir, ("is not a regular file",)),
    "circle of links": (circle, ("can't be opened",)),
    "link to the outside": (secret, ("is a link out of the workspace",)),
    "endless link": (lambda path: path.symlink_to("/dev/zero"), ("is a link out of the workspace",)),
    "huge file": (huge, (f"is larger than {MAX_FILE:,} bytes",)),
    "no text": (lambda path: path.write_bytes(b"x = 1\n# \xff\n"), (":2: is not UTF-8",)),
    "no Python": (lambda path: path.write_text("x = 1\ndef f(:\n"), (":2: is not valid Python",)),
    "null bytes": (lambda path: path.write_text("x\0"), ("is not valid Python", "nested too deeply")),
    "deep parentheses": (lambda path: path.write_text("(" * 100_000), ("is not valid Python",)),
    "deep operators": (lambda path: path.write_text("-" * 100_000 + "1"), ("nested too deeply",)),
    "deep sums": (lambda path: path.write_text("1" + "+1" * 100_000), ("nested too deeply",)),
    "deep attributes": (lambda path: path.write_text("a" + ".b" * 100_000), ("nested too deeply",)),
    "deep branches": (lambda path: path.write_text("if a: pass\n" + "elif a: pass\n" * 15_000), ("nested too deeply",)),
    "declared encoding": (lambda path: path.write_text("# coding: nonsense\n"), ()),
}


@pytest.mark.parametrize(("plant", "reasons"), PLANTED.values(), ids=PLANTED)
@pytest.mark.parametrize("place", ["mcptools/github/planted.py", "mcpparse/tracker/ping.py", f"{COMMITS}/api.py"])
def test_a_planted_file_is_named_in_a_line(
    good: Path, plant: Callable[[Path], object], reasons: tuple[str, ...], place: str
):
    path = good / place
    path.unlink(missing_ok=True)
    plant(path)
    started = time.monotonic()

    # `tools` has no need to read a parser.
    listed = [] if place.startswith("mcpparse") else [tools(workspace=good), tools("search", workspace=good)]
    for answer in (*listed, check(workspace=good)):
        if reasons:
            (named,) = [line for line in answer.splitlines() if f"{place}:" in line]
            assert any(reason in named for reason in reasons)
        assert "classified" not in answer
    assert time.monotonic() - started < PROMPT


@pytest.mark.parametrize("root", ["gentools", "mcptools", "mcpparse"])
def test_directories_in_circles_end(good: Path, root: str):
    (good / root / "again").symlink_to(good / root)
    (good / root / "itself").symlink_to("itself")
    (good / root / "github" / "again").symlink_to(good / root)

    assert "github" in tools(workspace=good)
    assert "Traceback" not in check(workspace=good)


def test_a_directory_that_leads_outside_is_not_listed(good: Path, tmp_path_factory: pytest.TempPathFactory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "leaked.py").write_text("def run(): ...\n")
    (good / "mcptools" / "other").symlink_to(outside)

    assert "leaked" not in tools(workspace=good)
    assert "! mcptools/other:1: is a link out of the workspace" in tools(workspace=good).splitlines()


def test_a_workspace_may_be_a_link(good: Path, tmp_path_factory: pytest.TempPathFactory):
    link = tmp_path_factory.mktemp("links") / "workspace"
    link.symlink_to(good)

    assert tools(workspace=link) == tools(workspace=good)
    assert check(workspace=link) == check(workspace=good) == "ok: 2 gentools, 2 parsers"


@pytest.mark.slow
def test_thousands_of_files_are_answered_in_part(good: Path):
    for number in range(10_001):
        (good / f"mcptools/github/x{number}.py").touch()
    started = time.monotonic()

    assert "! mcptools/github:1: is omitted: there are more than 10,000 files" in tools(workspace=good).splitlines()
    assert "mcptools/github:1: is omitted" in check(workspace=good)
    assert time.monotonic() - started < PROMPT


def test_many_large_files_are_answered_in_part(good: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(source_module, "MAX_TOTAL", 100_000)
    for number in range(100):
        (good / f"mcptools/github/x{number}.py").write_text("# \n" * 10_000)

    answer = tools(workspace=good)

    assert "the files before it exceed " in answer
    assert len(answer) < 2500


def test_dense_code_counts_more_than_its_bytes(good: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(source_module, "MAX_TOTAL", 300_000)
    for name, text in {"x1": f"'{'1,' * 50_000}'\n", "x2": f"x = {'1,' * 50_000}1\n"}.items():
        (good / f"mcptools/github/{name}.py").write_text(text)

    assert "x2.py:1: is omitted: the files before it exceed 300,000 bytes of code" in tools(workspace=good)


def test_names_and_texts_can_not_steer_a_terminal(good: Path):
    api = good / COMMITS / "api.py"
    api.write_text(api.read_text().replace("most stars", "\x1b[31mred\u202e"))
    os.mkdir(os.fsencode(good / "gentools") + b"/\xff\x1b")

    answers = [tools(workspace=good), tools("github.commits_of_top_repos", workspace=good), check(workspace=good)]

    for answer in answers:
        answer.encode()
        assert all(each.isprintable() or each == "\n" for each in answer)


def test_deep_annotations_are_a_fault(good: Path):
    api = good / COMMITS / "api.py"
    api.write_text(api.read_text().replace("-> list[Repo]", "-> " + " | ".join(["Repo"] * 900)))

    assert f"{COMMITS}/" in check(workspace=good)
    assert "commits_of_top_repos" in tools(workspace=good)


def test_reading_a_missing_file_is_no_fault_of_it(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        SourceReader(tmp_path).module("gone.py")


def test_reading_names_what_can_not_be_listed(good: Path):
    with pytest.raises(UnreadableError, match="can't be listed") as caught:
        SourceReader(good).entries("mcptools/github/list_commits.py")
    assert caught.value.path == "mcptools/github/list_commits.py"
