"""What is the same is left alone, and what people appended or edited survives."""

import os
import shutil
from pathlib import Path

import pytest

from ipybox.mcp_apigen.package.manifest import MANIFEST
from ipybox.support.state import state_dir
from ipybox.workspace.registrations import ToolSpec
from tests.mcp_apigen.merge.packages import PARSER, append, edit, rendered, spec, state, texts, write


def test_same_package_is_left_alone_with_all_that_was_appended(package: Path) -> None:
    tools = ("a", "b", ToolSpec("c", None, {"not": {"required": ["x"]}}))
    write(package, *tools)
    append(package, "a")
    (package / "notes.md").write_text("mine")
    (package / "__pycache__").mkdir()
    before = state(package)
    modules = write(package, *tools)
    assert modules.warnings() == []
    assert not modules.new
    assert state(package) == before


@pytest.mark.parametrize("name", ["a.py", "__init__.py", MANIFEST])
def test_package_is_mended_that_is_not_the_same(name: str, package: Path) -> None:
    write(package, "a")
    if name == MANIFEST:
        (package / name).write_text("")
    else:
        (package / name).unlink()
    write(package, "a")
    assert rendered("a").items() <= texts(package).items()


@pytest.mark.parametrize("text", [PARSER, "\n", "no python (", "\n\nasync def run_async(): pass\n"])
def test_what_was_appended_stays_below_the_new_text(text: str, package: Path) -> None:
    write(package, "a", "b")
    append(package, "a", text)
    new = spec("a", "Does more.", ("x", "y"))
    modules = write(package, new)
    assert texts(package)["a.py"] == rendered(new)["a.py"] + text
    assert modules.kept == {}
    assert texts(package).keys() == rendered(new).keys()


def test_what_was_appended_follows_its_tool_into_another_module(package: Path) -> None:
    write(package, "a-b")
    append(package, "a_b")
    shutil.rmtree(state_dir() / "packages")  # the record of names
    modules = write(package, "a_b", "a-b")
    (suffixed,) = {*modules} - {"a_b"}
    assert texts(package)[f"{suffixed}.py"] == rendered("a_b", "a-b")[f"{suffixed}.py"] + PARSER
    assert texts(package)["a_b.py"] == rendered("a_b", "a-b")["a_b.py"]
    modules = write(package, "a-b")
    assert (modules, modules.kept) == ([suffixed], {})
    assert texts(package)[f"{suffixed}.py"].endswith(PARSER)


def test_what_was_appended_to_a_tool_that_is_gone_is_kept(package: Path) -> None:
    write(package, "a", "b")
    append(package, "a")
    extended = texts(package)["a.py"]
    modules = write(package, "b")
    assert modules.kept == {"a.py": ".a.old.py"}
    assert modules.warnings() == ["removed: a", "a.py was edited or its tool was removed; saved as .a.old.py"]
    assert texts(package)[".a.old.py"] == extended
    assert "a.py" not in texts(package)
    assert write(package, "b").warnings() == []
    assert write(package, "b", "c").kept == {}
    assert texts(package)[".a.old.py"] == extended

    new = spec("a", "Is back.")
    assert write(package, new, "b").kept == {}
    assert texts(package) == {**rendered(new, "b"), ".a.old.py": extended}


def test_what_is_kept_of_a_tool_goes_to_no_other_tool(package: Path) -> None:
    write(package, "a-b", "c")
    append(package, "a_b")
    write(package, "c")
    module, _ = write(package, "a_b", "c")
    assert PARSER not in texts(package)[f"{module}.py"]
    assert PARSER in texts(package)[".a_b.old.py"]


def test_tools_that_go_one_after_the_other_are_all_kept(package: Path) -> None:
    for name in ("a-b", "a_b", "A.b"):
        module, _ = write(package, name, "c")
        append(package, module, f"\n# {name}\n")
        write(package, "c")
    kept = [text for name, text in texts(package).items() if name.startswith(".a_b")]
    assert sorted(text.splitlines()[-1] for text in kept) == ["# A.b", "# a-b", "# a_b"]


def test_module_of_a_tool_that_is_gone_goes_with_it(package: Path) -> None:
    write(package, "a", "b", ToolSpec("c", None, {"not": {"required": ["x"]}}))
    assert write(package, "b").kept == {}
    assert texts(package).keys() == rendered("b").keys()


@pytest.mark.parametrize("tools", [["a", "b"], ["b"]], ids=["tool", "no tool"])
def test_edited_module_is_kept_as_a_whole_and_so_is_what_was_appended(tools: list[str], package: Path) -> None:
    write(package, "a", "b")
    append(package, "a")
    edited = edit(package / "a.py")
    assert write(package, *tools).kept == {"a.py": ".a.old.py"}
    assert texts(package)[".a.old.py"] == edited
    assert write(package, *tools).kept == {}
    write(package, "a", "b")
    assert texts(package)["a.py"] == rendered("a")["a.py"] + (PARSER if "a" in tools else "")


def test_each_edit_is_kept(package: Path) -> None:
    for number in ("", 2, 3):
        write(package, "a")
        edited = edit(package / "a.py")
        assert write(package, "a").kept == {"a.py": f".a.old{number}.py"}
        assert texts(package)[f".a.old{number}.py"] == edited


def test_module_that_is_no_python_is_kept(package: Path) -> None:
    write(package, "a")
    (package / "a.py").write_text("<<<<<<< a merge that went wrong")
    write(package, "a")
    assert texts(package)["a.py"] == rendered("a")["a.py"]
    assert texts(package)[".a.old.py"] == "<<<<<<< a merge that went wrong"


def test_other_generated_files_that_were_edited_are_kept(package: Path) -> None:
    tool = ToolSpec("a", None, {"not": {"required": ["x"]}})
    names = rendered(tool).keys() - {"a.py", MANIFEST}
    write(package, tool)
    for name in names:
        (package / name).write_text("mine")
    kept = write(package, tool).kept
    assert kept.keys() == names
    assert {texts(package)[name] for name in kept.values()} == {"mine"}
    assert kept["__init__.py"] == ".__init__.old.py"


def test_files_that_were_not_generated_stay_whatever_they_are(package: Path, tmp_path: Path) -> None:
    write(package, "a")
    (package / "notes.md").write_text("mine")
    (package / "data" / "deep").mkdir(parents=True)
    (package / "data" / "deep" / "x").write_text("mine, too")
    (package / "link").symlink_to(tmp_path)
    os.mkfifo(package / "pipe")
    with (package / "giant").open("wb") as file:
        file.truncate(2**40)
    before = {path.name: path.lstat().st_ino for path in package.iterdir() if path.name not in rendered("a")}
    modules = write(package, "b")
    assert modules.kept == {}
    after = {path.name: path.lstat().st_ino for path in package.iterdir() if path.name not in rendered("b")}
    assert after == before
    assert (package / "data" / "deep" / "x").read_text() == "mine, too"


def test_file_in_the_place_of_a_new_tool_is_kept(package: Path) -> None:
    write(package, "a")
    (package / "helper.py").write_text("x = 1\n")
    assert write(package, "a", "helper").kept == {"helper.py": ".helper.old.py"}
    assert texts(package)[".helper.old.py"] == "x = 1\n"
    assert texts(package)["helper.py"] == rendered("helper")["helper.py"]


def test_bytecode_is_not_kept(package: Path) -> None:
    write(package, "a")
    (package / "__pycache__").mkdir()
    write(package, "b")
    assert not (package / "__pycache__").exists()
