"""Tests that a registration reports what changed since the package was generated."""

import shutil
from pathlib import Path

import pytest

from ipybox.workspace.registrations import ToolSpec
from tests.mcp_apigen.merge.packages import nested, rendered, spec, state, write


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


def test_other_order_of_tools_is_no_drift(package: Path) -> None:
    write(package, "a", "b")
    modules = write(package, "b", "a")
    assert (list(modules), modules.warnings()) == (["b", "a"], [])


def test_module_stays_that_of_its_tool(package: Path) -> None:
    write(package, "a-b")
    modules = write(package, "a-b", "a_b")
    added = modules[1]
    assert modules.wire_names == {"a_b": "a-b", added: "a_b"}
    assert (modules.added, modules.changed) == ((added,), ())
    shutil.rmtree(package)
    assert write(package, "a_b").wire_names == {added: "a_b"}
    assert write(package, "a_b", "a-b").wire_names == {"a_b": "a-b", added: "a_b"}


def test_manifest_that_code_has_written_gives_no_module_to_another_tool(package: Path) -> None:
    write(package, "a-b")
    other = rendered(spec("delete"), known={"a_b": "delete"})
    for name, text in other.items():
        (package / name).write_text(text)
    assert write(package, "delete", "a-b").wire_names == {"delete": "delete", "a_b": "a-b"}


def test_package_that_was_removed_is_new(package: Path) -> None:
    write(package, "a")
    package.rename(package.with_name("old"))
    modules = write(package, spec("a", "Other."))
    assert (modules.new, modules.changed) == (True, ())


def test_tool_whose_name_has_no_utf_8_form_is_recorded(package: Path) -> None:
    assert write(package, "a\ud800").wire_names == {"a_": "a\ud800"}
    assert write(package, "a\ud800", "b").added == ("b",)
