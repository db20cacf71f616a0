"""What is installed, by metadata that may be broken."""

import os
from pathlib import Path

import pytest

from ipybox.kernel_mgr.packages import InstallError
from ipybox.kernel_mgr.packages.builds import own_directory
from ipybox.kernel_mgr.packages.distributions import (
    MAX_ALL_METADATA,
    MAX_METADATA,
    MAX_NAME,
    MAX_REASONS,
    Installed,
    discard_seeds,
    environment,
    find,
    pins,
    seed,
    unmet,
)


def distribution(directory: Path, name: str, *requirements: str) -> Installed:
    info = directory / f"{name}-1.0.dist-info"
    info.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", *(f"Requires-Dist: {it}" for it in requirements)]
    (info / "METADATA").write_text("\n".join(lines) + "\n\nRequires-Dist: of-the-description\n")
    return find(directory)[name]


def test_what_ipybox_needs_is_pinned_as_installed():
    pinned = pins(environment())
    assert {"aiohttp", "yarl", "uv", "pip", "ipykernel"} <= {text.partition("==")[0] for text in pinned}
    assert pins({}) == []


def test_requirements_that_are_none_or_do_not_hold_are_left_out(tmp_path: Path):
    unclear = ">>> no requirement", "e; 'a' == 'b'", "e; 'a' in extras", "e; os_name ~= 'a'"
    found = distribution(tmp_path, "a", "b>=2", *unclear, "c; extra == 'more'", "d; python_version < '3'")

    assert [need.name for need in found.requires()] == ["b"]
    assert [need.name for need in found.requires({"more"})] == ["b", "c"]


def test_what_speaks_against_planned_versions_is_named(tmp_path: Path):
    found = distribution(tmp_path, "a", "b>=2", "c")

    assert unmet([found], {"b": "2.0rc1", "c": "1"}) == ["the installed a 1.0 requires b>=2, not 2.0rc1"]
    assert unmet([found], {"b": "2.1"}) == []
    assert unmet([found], {"a": "2", "b": "1"}) == []


def test_broken_metadata_is_no_distribution(tmp_path: Path):
    broken = {
        "empty": "",
        "nameless": "Version: 1\n",
        "binary": "\x00\x01",
        "escaped": "Name: a\x1b[2J\nVersion: 1\n",
        "no version": "Name: a\nVersion: ../../1\n",
        "long": f"Name: a\nVersion: {'1' * 10_000}\n",
    }
    for name, content in broken.items():
        (tmp_path / f"{name}-1.dist-info").mkdir()
        (tmp_path / f"{name}-1.dist-info" / "METADATA").write_text(content)
    (tmp_path / "bare-1.dist-info").mkdir()
    assert find(tmp_path, tmp_path / "missing") == {}


def test_what_a_build_leaves_is_read_without_following_links(tmp_path: Path):
    staged, host = tmp_path / "staged", tmp_path / "host"
    host.mkdir()
    distribution(host, "kept")
    seed([distribution(tmp_path, "a"), distribution(tmp_path, "b")], staged)
    (staged / "c-1.0.dist-info").symlink_to(host / "kept-1.0.dist-info")
    (staged / "b-1.0.dist-info" / "WHEEL").symlink_to(host / "missing")

    assert list(discard_seeds(staged)) == ["b"]
    assert (host / "kept-1.0.dist-info" / "METADATA").exists()
    (tmp_path / "link").symlink_to(staged)
    assert own_directory(staged) == staged
    for replaced in (tmp_path / "link", tmp_path / "missing", staged / "b-1.0.dist-info" / "METADATA"):
        with pytest.raises(InstallError, match="replaced the directory for its results"):
            own_directory(replaced)


def test_lines_without_end_are_read_up_to_a_limit(tmp_path: Path):
    distribution(tmp_path, "a")
    info = tmp_path / "a-1.0.dist-info"
    (info / "METADATA").write_text(f"Name: a\nVersion: 1.0\nSummary: {'x' * (4 << 20)}\nRequires-Dist: b\n")
    assert find(tmp_path)["a"].headers.keys() == {"Name", "Version"}


def test_requirements_that_no_parser_takes_are_left_out(tmp_path: Path):
    deep = f"b; {'(' * 1000}python_version > '3'{')' * 1000}"
    found = distribution(tmp_path, "a", deep, "b; os_name ~= 'x'", "b; python_version ~= 'x'", "b<1")

    assert unmet([found], {"b": "1"}) == ["the installed a 1.0 requires b<1, not 1"]


def test_only_a_few_reasons_are_reported(tmp_path: Path):
    found = distribution(tmp_path, "a", *(f"b<0.{number}" for number in range(10_000)))

    assert len(unmet([found], {"b": "1"})) == MAX_REASONS


def test_no_more_metadata_is_read_than_distributions_have(tmp_path: Path):
    distribution(tmp_path, "a")
    large = tmp_path / "a-1.0.dist-info" / "METADATA"
    os.truncate(large, MAX_METADATA)
    for number in range(MAX_ALL_METADATA // MAX_METADATA - 1):
        (tmp_path / f"b{number}.dist-info").mkdir()
        os.link(large, tmp_path / f"b{number}.dist-info" / "METADATA")
    assert find(tmp_path).keys() == {"a"}
    with pytest.raises(KeyError):
        distribution(tmp_path, "c")


def test_names_are_short(tmp_path: Path):
    with pytest.raises(KeyError):
        distribution(tmp_path, "x" * MAX_NAME)


def test_metadata_that_are_no_requirements_are_forgotten(tmp_path: Path):
    found = distribution(tmp_path, "a", "b")
    info = found.info / "METADATA"
    info.write_text("".join(f"{number}:\n" for number in range(1000)) + info.read_text())
    assert find(tmp_path)["a"].headers.keys() == {"Metadata-Version", "Name", "Version", "Requires-Dist"}
