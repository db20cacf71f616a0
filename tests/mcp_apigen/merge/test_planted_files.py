"""Planted files are not followed, and too large packages are refused."""

import os
import socket
from pathlib import Path

import pytest

from tests.mcp_apigen.merge.packages import Plant, append, rendered, state, texts, write

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
    monkeypatch.setattr("ipybox.mcp_apigen.package.merge.MAX_NAMES", 10)
    write(package, "a")
    for number in range(10):
        (package / str(number)).touch()
    before = state(package)
    with pytest.raises(FileExistsError, match="more than 10 files: move"):
        write(package, "b")
    assert state(package) == before
