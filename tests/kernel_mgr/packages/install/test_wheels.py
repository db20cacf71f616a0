"""Wheels execute nothing and write nowhere else."""

import os
from pathlib import Path

import pytest

from ipybox.kernel_mgr.packages import InstallError, packages_dir
from ipybox.kernel_mgr.packages.store import PackageStore
from ipybox.sandbox.settings import SandboxSettings, load_settings
from tests.kernel_mgr.packages.index import Index, failure, install


async def test_local_wheel_is_installed(index: Index, place: Path, settings: SandboxSettings | None):
    wheel = index.wheel("fresh", "1.0")
    wheel.rename(place / wheel.name)
    assert await install(place, wheel.name, settings) == "Installed fresh-1.0"


async def test_wheel_executes_nothing(index: Index, place: Path):
    writes = f"open({str(index.marker)!r}, 'w')"
    names = ("sitecustomize.py", "usercustomize.py", "setup.py", "pip.py", "conftest.py", "json.py")
    index.wheel("evil", "1.0", {"evil.pth": f"import sys; {writes}\n", **dict.fromkeys(names, f"{writes}\n")})
    index.wheel("fresh", "1.0")
    assert await install(place, "evil", load_settings()) == "Installed evil-1.0"
    assert await install(place, "fresh", load_settings()) == "Installed fresh-1.0"
    assert not index.marker.exists()


@pytest.mark.parametrize("entry", ["../evil.py", "/../../evil.py", "hostile-1.0.data/data/../../../../../evil.py"])
async def test_wheel_can_not_write_elsewhere(index: Index, place: Path, entry: str):
    index.wheel("hostile", "1.0", {"hostile.py": "", entry: ""})
    assert await install(place, "hostile", load_settings()) == "Installed hostile-1.0"
    assert not [path for path in place.parent.rglob("*") if "evil" in path.name]


@pytest.mark.parametrize("kind", ["symlink", "hardlink", "fifo"])
async def test_only_files_and_directories_are_taken_over(tmp_path: Path, place: Path, kind: str):
    secret = tmp_path / "secret"
    secret.write_text("SECRET")
    staged = tmp_path / "staged"
    info = staged / "a-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: a\nVersion: 1\n")
    match kind:
        case "symlink":
            (staged / "a.py").symlink_to(secret)
        case "hardlink":
            (staged / "a.py").hardlink_to(secret)
        case _:
            os.mkfifo(staged / "a.py")
    async with PackageStore.turn(place) as store:
        with pytest.raises(InstallError):
            store.replace(["a"], staged)
    assert [path.name for path in (place / ".ipybox").iterdir() if "packages" in path.name] == []


async def test_links_in_the_place_of_our_directories_are_not_followed(index: Index, place: Path, tmp_path: Path):
    index.wheel("fresh", "1.0")
    outside = tmp_path / "outside"
    outside.mkdir()
    (place / ".ipybox").symlink_to(outside)
    with pytest.raises(NotADirectoryError):
        await install(place, "fresh")
    (place / ".ipybox").unlink()
    (place / ".ipybox").mkdir()
    packages_dir(place).symlink_to(outside)
    with pytest.raises(InstallError, match="remove it"):
        await install(place, "fresh")
    assert not list(outside.iterdir())


async def test_a_wheel_whose_directories_are_too_deep_is_refused_and_others_can_be_installed(index: Index, place: Path):
    index.wheel("deep", "1.0", {f"{'d/' * 150}f.txt": ""})
    index.wheel("fresh", "1.0")

    assert "directories more than 100 deep" in await failure(place, "deep")
    assert await install(place, "fresh") == "Installed fresh-1.0"


async def test_packages_that_a_wheel_contains_can_neither_stop_later_installs_nor_fill_answers(
    index: Index, place: Path
):
    data = "evil-1.0.data/purelib"
    about = {number: f"Metadata-Version: 2.1\nName: x{number}\nVersion: 1\n" for number in range(300)}
    about[0] += f"Requires-Dist: fresh; {'(' * 1000}python_version > '3'{')' * 1000}\n"
    about[1] += "Requires-Dist: fresh; 'a' == 'b'\nRequires-Dist: fresh; 'a' in extras\n"
    files = {f"{data}/x{number}-1.dist-info/METADATA": text for number, text in about.items()}
    index.wheel("evil", "1.0", files | {f"{data}/x{number}-1.dist-info/WHEEL": "" for number in about})
    index.wheel("fresh", "1.0")

    assert (await install(place, "evil")).endswith(", and 101 more")
    assert await install(place, "fresh") == "Installed fresh-1.0"


async def test_a_module_that_needs_too_much_memory_to_be_compiled_is_installed_without(
    index: Index, place: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("ipybox.kernel_mgr.packages.installer.LEAST_MEMORY", 256 << 20)
    monkeypatch.setattr("ipybox.kernel_mgr.packages.installer.default_memory_limit", lambda: 1)
    index.wheel("evil", "1.0", {"evil.py": "a = 1\n" * 1_000_000, "fresh.py": "a = 1\n"})  # takes 700 MB

    assert await install(place, "evil", load_settings()) == "Installed evil-1.0"
    compiled = {path.name.partition(".")[0] for path in (packages_dir(place) / "__pycache__").iterdir()}
    assert "evil" not in compiled
