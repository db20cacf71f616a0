"""Packages that are generated again: what people wrote survives, what changed is told, and the same is left alone."""

import json
import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ipybox.beneath import Directory
from ipybox.codeact.source import MAX_TOTAL
from ipybox.mcp_apigen import ToolModules, generator
from ipybox.mcp_apigen.generator import write_package
from ipybox.mcp_apigen.manifest import MANIFEST, MAX_BYTES, Manifest
from ipybox.mcp_apigen.module import ToolSpec
from ipybox.mcp_apigen.package import render_package
from ipybox.state import state_dir

PARSER = """

from pydantic import BaseModel


class ParseResult(BaseModel):
    count: int


def run_parsed(params: Params) -> ParseResult:
    from mcpparse.srv import a as parser

    return parser.parse(run(params))
"""

Plant = Callable[[Path], object]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Where the package of the tests is, in a workspace."""
    return tmp_path / "mcptools" / "srv"


def spec(name: str, description: str = "Does it.", properties: tuple[str, ...] = ()) -> ToolSpec:
    return ToolSpec(name, description, {"properties": {each: {"type": "string"} for each in properties}})


def rendered(*tools: ToolSpec | str) -> dict[str, str]:
    specs = [spec(tool) if isinstance(tool, str) else tool for tool in tools]
    return render_package("srv", {"command": "x"}, specs, "seal")


def write(package: Path, *tools: ToolSpec | str) -> ToolModules:
    return write_package(package, rendered(*tools), beneath=package.parents[1])


def append(package: Path, module: str, text: str = PARSER) -> None:
    with (package / f"{module}.py").open("a") as file:
        file.write(text)


def edit(file: Path) -> str:
    """Changes something in the middle of a file; returns the text as it is then."""
    text = file.read_text()
    changed = text.replace("Does it.", "Does it well.", 1)
    assert changed != text
    file.write_text(changed)
    return changed


def texts(package: Path) -> dict[str, str]:
    files = [path for path in package.iterdir() if path.is_file() and path.stat().st_size < 2**30]
    return {path.name: path.read_text(errors="replace") for path in files}


def state(package: Path) -> dict[str, tuple[int, ...]]:
    """What changes when a file, or the directory, is written or replaced."""
    stats = {str(path): path.lstat() for path in (package.parent, package, *package.rglob("*"))}
    return {path: (each.st_ino, each.st_mtime_ns, each.st_ctime_ns) for path, each in stats.items()}


# --- what has changed


def test_first_generation_is_new_and_no_drift(package: Path) -> None:
    modules = write(package, "Get-A", "b")
    assert modules == ["get_a", "b"]
    assert modules.wire_names == {"get_a": "Get-A", "b": "b"}
    assert modules.new
    assert modules.warnings() == []


def test_added_removed_and_changed_tools_are_told(package: Path) -> None:
    write(package, "same", "gone", "text", spec("schema", properties=("a",)))
    modules = write(package, "new", "same", spec("text", "Does harm."), spec("schema", properties=("b",)))
    assert not modules.new
    assert modules.unknown == ""
    assert (modules.added, modules.removed, modules.changed) == (("new",), ("gone",), ("text", "schema"))
    assert modules.warnings() == [
        "changed: text, schema (read before you trust)",
        "added: new (read before you trust)",
        "removed: gone",
    ]
    assert write(package, "new", "same", spec("text", "Does harm."), spec("schema", properties=("b",))).warnings() == []


def test_output_schema_that_changes_is_told(package: Path) -> None:
    write(package, ToolSpec("a", None, {}, {"type": "object"}))
    assert write(package, ToolSpec("a", None, {}, {"type": "object", "title": "T"})).changed == ("a",)


def test_tool_that_is_too_deep_to_be_compared_counts_as_changed(package: Path) -> None:
    # From Python 3.13 on, json goes ten times as deep as `sys.getrecursionlimit()`, and further later.
    schema = nested(100_000)
    write(package, ToolSpec("a", None, schema), "b")
    before = state(package)
    assert write(package, ToolSpec("a", None, schema), "b").changed == ("a",)
    assert state(package) == before


@pytest.mark.parametrize("depth", [100, 2_000, 20_000, 100_000])
def test_change_at_any_depth_is_told(package: Path, depth: int) -> None:
    write(package, ToolSpec("a", None, nested(depth)))
    assert write(package, ToolSpec("a", None, nested(depth, {"type": "object"}))).changed == ("a",)


def nested(depth: int, innermost: dict[str, Any] | None = None) -> dict[str, Any]:
    schema = innermost or {}
    for _ in range(depth):
        schema = {"not": schema}
    return schema


def test_other_order_of_tools_is_no_drift(package: Path) -> None:
    write(package, "a", "b")
    modules = write(package, "b", "a")
    assert (list(modules), modules.warnings()) == (["b", "a"], [])


def test_module_that_becomes_another_tools_has_changed(package: Path) -> None:
    write(package, "a-b")
    modules = write(package, "a-b", "a_b")
    assert modules.wire_names == {"a_b_2": "a-b", "a_b": "a_b"}
    assert (modules.added, modules.changed) == (("a_b_2",), ("a_b",))


def test_package_that_was_removed_is_new(package: Path) -> None:
    write(package, "a")
    package.rename(package.with_name("old"))
    modules = write(package, spec("a", "Other."))
    assert (modules.new, modules.changed) == (True, ())


def test_tool_whose_name_has_no_utf_8_form_is_recorded(package: Path) -> None:
    assert write(package, "a\ud800").wire_names == {"a": "a\ud800"}
    assert write(package, "a\ud800", "b").added == ("b",)


@pytest.mark.parametrize("schema", [{}, {"not": {"required": ["x"]}}], ids=["types", "schema beside them"])
def test_manifest_records_every_file(schema: dict[str, Any]) -> None:
    files = rendered(ToolSpec("a", None, schema), "b")
    manifest = Manifest.parse(files[MANIFEST].encode())
    assert manifest is not None
    assert manifest.generated == files.keys()
    assert len(files) == 4 + bool(schema)


def manifest_of(data: bytes | Callable[[dict[str, Any]], object]) -> Plant:
    """Writes these bytes as the manifest, or what a function makes of it."""

    def plant(package: Path) -> None:
        file = package / MANIFEST
        if isinstance(data, bytes):
            file.write_bytes(data)
            return
        content = json.loads(file.read_bytes())
        data(content)
        file.write_text(json.dumps(content))

    return plant


def add_values(manifest: Path, number: int) -> None:
    text = manifest.read_bytes().strip()
    manifest.write_bytes(text.removesuffix(b"}") + b', "more": [' + b"0," * number + b"0]}")


MANIFESTS: dict[str, Plant] = {
    "empty": manifest_of(b""),
    "no JSON": manifest_of(b"{"),
    "no text": manifest_of(b"\xff\xfe\0"),
    "no object": manifest_of(b"[]"),
    "too large": manifest_of(b" " * (MAX_BYTES + MAX_TOTAL)),
    "deep": manifest_of(b"[" * 1_000_000),
    "many values": manifest_of(b'{"server": [' + b"0," * 2_000_000 + b"0]}"),
    "too many values": lambda package: add_values(package / MANIFEST, 3_500_000),
    "huge number": manifest_of(b'{"server": ' + b"9" * 1_000_000 + b"}"),
    "no number": manifest_of(lambda content: content["modules"]["a"].update({"length": float("nan")})),
    "earlier version": manifest_of(lambda content: [each.pop("length") for each in content["modules"].values()]),
    "module elsewhere": manifest_of(lambda content: content["modules"].update({"../../x": content["modules"]["a"]})),
    "file elsewhere": manifest_of(lambda content: content["files"].update({"../../precious": "0"})),
    "parked elsewhere": manifest_of(lambda content: content.update({"parked": {"/x/y": content["modules"]["a"]}})),
    "negative length": manifest_of(lambda content: content["modules"]["a"].update({"length": -1})),
    "list of modules": manifest_of(lambda content: content.update({"modules": [*content["modules"]]})),
}


@pytest.mark.parametrize("plant", MANIFESTS.values(), ids=MANIFESTS.keys())
def test_manifest_that_is_none_leaves_unknown_what_changed_and_loses_nothing(plant: Plant, package: Path) -> None:
    precious = package.parents[1] / "precious"
    precious.write_text("mine")
    write(package, "a", "b")
    append(package, "a")
    plant(package)
    modules = write(package, "a", spec("b", "Other."))
    assert modules.unknown == f"{MANIFEST} is no record of them"
    assert (modules.new, modules.changed) == (False, ())
    assert modules.warnings()[0] == f"can't tell which tools changed: {MANIFEST} is no record of them"
    assert texts(package)["a.py"] == rendered("a")["a.py"] + PARSER
    assert precious.read_text() == "mine"
    assert write(package, "a", spec("b", "Other.")).unknown == ""


def test_manifest_that_code_has_forged_is_not_believed(package: Path) -> None:
    write(package, "a")
    evil = spec("a", "Evil.")
    recorded = json.loads(rendered(evil)[MANIFEST])["modules"]["a"]["sha256"]
    manifest_of(lambda content: content["modules"]["a"].update({"sha256": recorded}))(package)
    modules = write(package, evil)
    assert modules.unknown == f"{MANIFEST} was altered, or not written here"
    assert modules.changed == ()


def test_package_that_code_has_forged_as_a_whole_is_not_believed(package: Path) -> None:
    write(package, "a")
    for name, text in rendered(spec("a", "Evil.")).items():
        (package / name).write_text(text)
    assert write(package, spec("a", "Evil.")).unknown
    assert not write(package, spec("a", "Evil.")).unknown


def test_record_of_another_place_does_not_count(package: Path) -> None:
    write(package, "a")
    package.rename(package.with_name("other"))
    assert write(package.with_name("other"), "a").unknown


def test_record_is_the_same_however_the_place_is_named(package: Path, tmp_path: Path) -> None:
    write(package, "a")
    (tmp_path / "link").symlink_to(tmp_path)
    for place in (package, tmp_path / "link" / "mcptools" / "srv", Path(os.path.relpath(package))):
        assert not write_package(place, rendered("a")).warnings()


def test_record_is_for_its_user_alone(package: Path) -> None:
    write(package, "a")
    directory = state_dir() / "packages"
    assert directory.stat().st_mode & 0o77 == 0
    assert all(path.stat().st_mode & 0o77 == 0 for path in directory.iterdir())


# --- what is the same


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


# --- what people wrote


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
    write(package, "a_b", "a-b")
    assert texts(package)["a_b_2.py"] == rendered("a_b", "a-b")["a_b_2.py"] + PARSER
    assert texts(package)["a_b.py"] == rendered("a_b", "a-b")["a_b.py"]
    modules = write(package, "a-b")
    assert texts(package)["a_b.py"] == rendered("a-b")["a_b.py"] + PARSER
    assert modules.kept == {}


def test_tools_of_the_same_name_keep_what_is_theirs(package: Path) -> None:
    write(package, "a", "a")
    append(package, "a", "\n# first\n")
    append(package, "a_2", "\n# second\n")
    write(package, spec("a", "More."), spec("a", "More."))
    assert texts(package)["a.py"].endswith("\n# first\n")
    assert texts(package)["a_2.py"].endswith("\n# second\n")
    (package / "a.py").unlink()
    write(package, "a", "a")
    assert texts(package)["a.py"] == rendered("a", "a")["a.py"]
    assert texts(package)["a_2.py"].endswith("\n# second\n")


def test_what_was_appended_to_a_tool_that_is_gone_is_kept_and_comes_back_with_it(package: Path) -> None:
    write(package, "a", "b")
    append(package, "a")
    extended = texts(package)["a.py"]
    modules = write(package, "b")
    assert modules.kept == {"a.py": ".a.old.py"}
    assert modules.warnings() == ["removed: a", "a.py was edited or its tool is gone: kept as .a.old.py"]
    assert texts(package)[".a.old.py"] == extended
    assert "a.py" not in texts(package)
    assert write(package, "b").warnings() == []
    assert write(package, "b", "c").kept == {}
    assert texts(package)[".a.old.py"] == extended

    new = spec("a", "Is back.")
    assert write(package, new, "b").kept == {}
    assert texts(package)["a.py"] == rendered(new)["a.py"] + PARSER
    assert texts(package).keys() == rendered(new, "b").keys()
    assert texts(package)[MANIFEST] == rendered(new, "b")[MANIFEST]


def test_what_is_kept_of_a_tool_goes_to_no_other_tool(package: Path) -> None:
    write(package, "a-b", "c")
    append(package, "a_b")
    write(package, "c")
    write(package, "a_b", "c")
    assert texts(package)["a_b.py"] == rendered("a_b")["a_b.py"]
    assert PARSER in texts(package)[".a_b.old.py"]


def test_tools_that_go_one_after_the_other_are_all_kept(package: Path) -> None:
    for name in ("a-b", "a_b", "A.b"):
        write(package, name, "c")
        append(package, "a_b", f"\n# {name}\n")
        write(package, "c")
    kept = [text for name, text in texts(package).items() if name.startswith(".a_b.old")]
    assert sorted(text.splitlines()[-1] for text in kept) == ["# A.b", "# a-b", "# a_b"]
    write(package, "a_b", "A.b", "a-b", "c")
    assert {name: texts(package)[f"{name}.py"].splitlines()[-1] for name in ("a_b", "a_b_2", "a_b_3")} == {
        "a_b": "# a_b",
        "a_b_2": "# A.b",
        "a_b_3": "# a-b",
    }


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
    assert texts(package)["a.py"] == rendered("a")["a.py"] + PARSER


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


PLANTED: dict[str, Plant] = {
    "link": lambda file: file.symlink_to(file.parents[2] / "secret"),
    "dangling link": lambda file: file.symlink_to("nowhere"),
    "loop": lambda file: file.symlink_to(file),
    "pipe": os.mkfifo,
    "socket": lambda file: bound(file),
    "directory": Path.mkdir,
    "giant file": lambda file: giant(file),
    "unreadable": lambda file: file.touch(0o000),
}


def bound(file: Path) -> None:
    # A path of a socket has to be short.
    directory = os.open(file.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{directory}/{file.name}" if Path("/proc/self/fd").exists() else str(file))
    os.close(directory)


def giant(file: Path) -> None:
    with file.open("wb") as opened:
        opened.truncate(2**40)


@pytest.mark.parametrize("tools", [["a"], ["b"]], ids=["tool", "no tool"])
@pytest.mark.parametrize("plant", PLANTED.values(), ids=PLANTED.keys())
def test_what_is_planted_in_place_of_a_module_is_not_followed_or_read(
    plant: Plant, tools: list[str], package: Path
) -> None:
    (package.parents[1] / "secret").write_text("secret")
    write(package, "a")
    (package / "a.py").unlink()
    plant(package / "a.py")
    planted = (package / "a.py").lstat().st_ino
    modules = write(package, *tools)
    assert modules.kept == {"a.py": ".a.old.py"}
    assert (package / ".a.old.py").lstat().st_ino == planted
    assert {path.name: path.read_text() for path in package.glob("[!.]*")}.items() <= rendered(*tools).items()
    assert (package.parents[1] / "secret").read_text() == "secret"


@pytest.mark.parametrize("plant", PLANTED.values(), ids=PLANTED.keys())
def test_what_is_planted_in_place_of_a_kept_module_is_not_followed_or_read(plant: Plant, package: Path) -> None:
    (package.parents[1] / "secret").write_text("secret")
    write(package, "a", "b")
    append(package, "a")
    write(package, "b")
    (package / ".a.old.py").unlink()
    plant(package / ".a.old.py")
    write(package, "a", "b")
    assert texts(package)["a.py"] == rendered("a")["a.py"]


def test_package_of_too_many_files_is_refused_and_left_alone(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ipybox.mcp_apigen.previous.MAX_NAMES", 10)
    write(package, "a")
    for number in range(10):
        (package / str(number)).touch()
    before = state(package)
    with pytest.raises(FileExistsError, match="more than 10 files: move"):
        write(package, "b")
    assert state(package) == before


# --- what happens meanwhile


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


def test_package_of_a_process_that_died_while_replacing_it_is_put_back(package: Path) -> None:
    write(package, "a")
    append(package, "a")
    scratch = package.with_name(".srv.0.tmp")
    (scratch / "new").mkdir(parents=True)
    package.rename(scratch / "old0")
    modules = write(package, "a")
    assert not modules.new
    assert texts(package)["a.py"].endswith(PARSER)


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
