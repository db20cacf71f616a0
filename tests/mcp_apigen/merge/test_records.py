"""Manifests and records that are missing, forged or of another place are not believed."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ipybox.codeact.source import MAX_TOTAL
from ipybox.mcp_apigen.package.manifest import MANIFEST, MAX_BYTES, Manifest
from ipybox.support.state import state_dir
from ipybox.workspace.registrations import ToolSpec
from tests.mcp_apigen.merge.packages import PARSER, Plant, append, rendered, spec, texts, write
from tests.written_packages import write_package


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
    assert modules.unknown == f"{MANIFEST} is missing or damaged"
    assert (modules.new, modules.changed) == (False, ())
    assert modules.warnings()[0] == f"can't tell which tools changed: {MANIFEST} is missing or damaged"
    assert texts(package)["a.py"] == rendered("a")["a.py"] + PARSER
    assert precious.read_text() == "mine"
    assert write(package, "a", spec("b", "Other.")).unknown == ""


def test_manifest_that_code_has_forged_is_not_believed(package: Path) -> None:
    write(package, "a")
    evil = spec("a", "Evil.")
    recorded = json.loads(rendered(evil)[MANIFEST])["modules"]["a"]["meaning"]
    manifest_of(lambda content: content["modules"]["a"].update({"meaning": recorded}))(package)
    modules = write(package, evil)
    assert modules.unknown == f"{MANIFEST} was edited, or comes from another machine"
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
