"""What happens to a package while it is replaced."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ipybox.mcp_apigen import ToolModules, generator
from ipybox.mcp_apigen.package.hashes import inputs_hash
from ipybox.support.safe_directory import Directory
from ipybox.workspace.registrations import ToolSpec
from tests.mcp_apigen.merge.packages import PARSER, append, edit, nested, rendered, spec, texts, write


def test_text_that_is_appended_meanwhile_is_kept(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(package, "a")
    rename = os.rename

    def late(source: str, target: str, **directories: int) -> None:
        if source == "srv":
            append(package, "a", "\n# late\n")
            (package / "late.md").write_text("late")
        rename(source, target, **directories)

    monkeypatch.setattr(os, "rename", late)
    modules = write(package, spec("a", "More."))
    assert modules.kept == {"a.py": ".a.old.py"}
    assert texts(package)[".a.old.py"].endswith("# late\n")
    assert texts(package)["late.md"] == "late"


def test_link_that_is_planted_meanwhile_leads_to_no_other_record(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(package, "a")
    check = generator.check_generated

    def plant(parent: Directory, place: Path) -> None:
        check(parent, place)
        package.parent.rename(tmp_path / "away")
        package.parent.symlink_to(tmp_path)

    monkeypatch.setattr(generator, "check_generated", plant)
    modules = write(package, "a", "b")
    assert (modules.unknown, modules.added) == ("", ("b",))
    assert (tmp_path / "away" / "srv" / "b.py").exists()


def test_failing_rename_puts_back_what_was_moved(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(package, "a")
    edit(package / "a.py")
    (package / "notes.md").write_text("mine")
    before = texts(package)
    rename = os.rename

    def failing(source: str, target: str, **directories: int) -> None:
        if source == "new":
            raise PermissionError(13, "no")
        rename(source, target, **directories)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(PermissionError):
        write(package, "b")
    assert texts(package) == before
    assert os.listdir(package.parent) == ["srv"]


def test_package_that_others_keep_replacing_is_an_error(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(package, "a")
    before = texts(package)
    rename = os.rename

    def overtaken(source: str, target: str, **directories: int) -> None:
        if source == "new":  # as if another generation had just put its own there
            rename(f"old{len(attempts)}", target, **directories)
            attempts.append(source)
        rename(source, target, **directories)

    attempts: list[str] = []
    monkeypatch.setattr(os, "rename", overtaken)
    with pytest.raises(FileExistsError, match="other processes keep replacing it"):
        write(package, "b")
    assert len(attempts) > 1
    assert texts(package) == before
    assert os.listdir(package.parent) == ["srv"]


def test_tool_without_a_digest_has_no_origin() -> None:
    tools = [spec("a"), ToolSpec("b", None, nested(100_000))]

    assert inputs_hash("srv", {}, "seal", tools[:1]) is not None
    assert inputs_hash("srv", {}, "seal", tools) is None


def test_package_of_a_process_that_died_while_replacing_it_is_put_back(package: Path) -> None:
    write(package, "a")
    append(package, "a")
    scratch = package.with_name(".srv.0.tmp")
    (scratch / "new").mkdir(parents=True)
    package.rename(scratch / "old0")
    modules = write(package, "a")
    assert not modules.new
    assert texts(package)["a.py"].endswith(PARSER)


@pytest.mark.slow
def test_what_was_appended_survives_many_who_generate_at_once(package: Path) -> None:
    write(package, "a")
    append(package, "a")

    def generate(version: int) -> list[ToolModules]:
        return [write(package, spec("a", f"{version}.{number}"), "b") for number in range(20)]

    with ThreadPoolExecutor(6) as threads:
        results = [each for some in threads.map(generate, range(6)) for each in some]
    assert texts(package)["a.py"].endswith(PARSER)
    assert texts(package).keys() == rendered("a", "b").keys()
    assert not any(each.new or each.unknown or each.kept for each in results)
    assert [each.added for each in results].count(("b",)) == 1
    assert os.listdir(package.parent) == ["srv"]
