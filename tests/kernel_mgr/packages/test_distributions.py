"""What is installed, by metadata that may be broken."""

from importlib.metadata import Distribution
from pathlib import Path

from ipybox.kernel_mgr.packages.distributions import closure, needs, unmet


def distribution(directory: Path, name: str, *requirements: str) -> Distribution:
    info = directory / f"{name}-1.0.dist-info"
    info.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", *(f"Requires-Dist: {it}" for it in requirements)]
    (info / "METADATA").write_text("\n".join(lines))
    return Distribution.at(info)


def test_an_environment_lists_what_a_distribution_needs():
    assert {"aiohttp", "yarl"} <= closure("aiohttp").keys()
    assert closure("no-such-distribution") == {}


def test_requirements_that_are_none_or_do_not_hold_are_left_out(tmp_path: Path):
    found = distribution(tmp_path, "a", "b>=2", ">>> no requirement", "c; extra == 'more'", "d; python_version < '3'")

    assert [need.name for need in needs(found)] == ["b"]
    assert [need.name for need in needs(found, {"more"})] == ["b", "c"]


def test_what_speaks_against_planned_versions_is_named(tmp_path: Path):
    found = distribution(tmp_path, "a", "b>=2", "c")

    assert unmet([found], {"b": "2.0rc1", "c": "1"}) == ["the installed a 1.0 requires b>=2, not 2.0rc1"]
    assert unmet([found], {"b": "2.1"}) == []
    assert unmet([found], {"a": "2", "b": "1"}) == []
