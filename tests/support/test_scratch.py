"""Scratch directories: private, removed when no process uses them, and out of reach of code in the sandbox."""

import asyncio
import fcntl
import json
import os
import re
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ipybox import CodeExecutor
from ipybox.errors import SandboxError
from ipybox.support import scratch as module
from ipybox.support.scratch import SOCKET_NAME, ScratchDirectory
from ipybox.support.state import scratch_root
from tests.conftest import Mode
from tests.servers import WAIT

HOLDER = """
import sys
import tempfile
from ipybox.support.scratch import ScratchDirectory
print(ScratchDirectory().path, flush=True)
sys.stdin.read()
"""

#: What code tries with the directories of its own gateway: that of srt's settings, and the parent of all of them.
ATTACK = """
import os
from pathlib import Path

own = Path(os.environ["TMPDIR"]).parents[1]
Path("../it-is-writable").touch()
for directory in (own, own.parent):
    for action in (
        lambda: (directory / "srt.json").write_text("{}"),
        lambda: (directory / "planted").mkdir(),
        lambda: (directory / "srt").rename(directory / "gone"),
        lambda: directory.rename(directory.with_name("gone")),
    ):
        try:
            action()
        except OSError:
            pass
"""


@pytest.fixture(autouse=True)
def working_directory(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty one, as a fault in what removes directories may remove what is there."""
    monkeypatch.chdir(tmp_path_factory.mktemp("empty"))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of scratch directories, which nothing has made yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "ipybox-scratch"


def kept(state: Path) -> dict[str, bytes]:
    """Returns what is in scratch directories, apart from the part that belongs to the code."""
    return {
        str(path): path.read_bytes() if path.is_file() else b""
        for path in (state / "ipybox-scratch").rglob("*")
        if "guest" not in path.parts
    }


def test_directory_is_private_and_exists_for_the_time_of_the_context(root: Path):
    with ScratchDirectory() as first, ScratchDirectory() as second:
        assert first.path.parent == second.path.parent == scratch_root() == root
        assert {stat.S_IMODE(path.stat().st_mode) for path in (first.path, first.path.parent)} == {0o700}
        (first.path / "file").touch()
    assert not first.path.exists()


def test_nobody_else_can_look_into_the_directories(root: Path):
    before = os.umask(0)
    try:
        with ScratchDirectory() as scratch:
            assert {stat.S_IMODE(path.stat().st_mode) for path in (root, scratch.path)} == {0o700}
    finally:
        os.umask(before)


def test_only_directories_that_are_not_in_use_are_removed(root: Path):
    (root / "left" / "directory").mkdir(parents=True)
    (root / "left" / "directory" / "file").touch()
    (root / "file").touch()
    before = len(os.listdir("/dev/fd"))

    with ScratchDirectory() as first, ScratchDirectory() as second:
        assert {path.name for path in root.iterdir()} == {first.path.name, second.path.name, "file"}

    assert [path.name for path in root.iterdir()] == ["file"]
    assert len(os.listdir("/dev/fd")) == before


def test_no_directories_that_code_has_left_keep_the_next_process_from_starting(root: Path):
    root.mkdir(parents=True)
    fd = os.open(root, os.O_RDONLY)
    for name in ("left", *["d"] * 1500):  # deeper than Python recurses
        os.mkdir(name, dir_fd=fd)
        outer, fd = fd, os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(outer)
    os.close(fd)
    (root / "left" / "d").chmod(0)

    with ScratchDirectory() as scratch:
        assert [*root.iterdir()] == [scratch.path]


def test_the_path_has_no_links(root: Path):
    real = root.parent.with_name("real")
    real.mkdir()
    root.parent.symlink_to(real)

    with ScratchDirectory() as scratch:
        assert scratch.path.parent == real / "ipybox-scratch"


@pytest.mark.parametrize(
    ("sockets", "room", "is_short"),
    [(True, 0, False), (True, -1, True), (False, -1, False)],
    ids=["just_fits", "too_long", "no_sockets"],
)
def test_only_a_directory_for_sockets_may_not_have_a_long_path(
    root: Path, monkeypatch: pytest.MonkeyPatch, sockets: bool, room: int, is_short: bool
):
    monkeypatch.setattr(module, "MAX_SOCKET_PATH", len(str(root / "01234567")) + SOCKET_NAME + room)
    (root / "left").mkdir(parents=True)

    with ScratchDirectory(sockets=sockets, writable=[root]) as scratch:
        assert scratch.path.parent == (Path("/tmp").resolve() if is_short else root)
        assert re.fullmatch("ipybox-[0-9a-f]{8}" if is_short else "[0-9a-f]{8}", scratch.path.name)
        assert (root / "left").exists() is is_short


def test_a_place_for_sockets_that_code_can_write_is_refused_with_what_to_do(
    root: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "MAX_SOCKET_PATH", 0)

    with pytest.raises(SandboxError) as error:
        ScratchDirectory(sockets=True, writable=[root, Path("/tmp/..")])

    assert str(error.value) == (
        f"the sandbox needs a private directory for sockets: {root} is too long, and code can write to /tmp: set "
        "XDG_STATE_HOME to a shorter path, or remove '/tmp/..' from 'filesystem.allowWrite'"
    )


@pytest.mark.parametrize("moment", ["before_it_is_opened", "before_it_is_locked"])
def test_a_directory_that_another_process_removes_at_once_is_made_again(
    root: Path, monkeypatch: pytest.MonkeyPatch, moment: str
):
    removed: list[Path] = []

    def remove() -> None:
        if not removed:
            removed.extend(root.iterdir())
            removed[0].rmdir()

    def open_(path: Path, flags: int, opened: Callable[..., int] = os.open, **options: Any) -> int:
        remove()
        return opened(path, flags, **options)

    def flock(fd: int, operation: int, lock: Callable[[int, int], None] = fcntl.flock) -> None:
        remove()
        lock(fd, operation)

    before = len(os.listdir("/dev/fd"))
    if moment == "before_it_is_opened":
        monkeypatch.setattr(module.os, "open", open_)
    else:
        monkeypatch.setattr(module.fcntl, "flock", flock)
    with ScratchDirectory() as scratch:
        assert scratch.path == removed[0]
        assert scratch.path.is_dir()
        assert len(os.listdir("/dev/fd")) == before + 2  # its lock and that of the root


async def test_directory_of_a_killed_process_is_removed_by_the_next_one():
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(WAIT):
        left = Path((await process.stdout.readline()).decode().strip())
    (left / "directory").mkdir()
    with ScratchDirectory():
        assert left.exists(), "the directory of another process was removed while it ran"
    process.kill()
    await process.communicate()
    assert left.exists()
    with ScratchDirectory():
        assert not left.exists()


def test_a_link_in_place_of_a_directory_is_not_followed(root: Path, tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    root.mkdir(parents=True)
    (root / "link").symlink_to(tmp_path / "elsewhere")

    with ScratchDirectory():
        assert (tmp_path / "elsewhere").exists()
        assert (root / "link").is_symlink()


async def test_kernels_run_where_the_path_of_the_state_is_too_long_for_sockets(
    tmp_path: Path, mode: Mode, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / ("long" * 20)))
    async with CodeExecutor(working_dir=tmp_path, images_dir=tmp_path, sandbox=mode.sandbox) as executor:
        assert (await executor.execute("print(6 * 7)")).text == "42"
        with ScratchDirectory(sockets=True) as scratch:
            assert scratch.path.parent == Path("/tmp").resolve()
            assert stat.S_IMODE(scratch.path.stat().st_mode) == 0o700


@pytest.mark.parametrize("writable", ["/tmp", "/", "/tmp/**"])
async def test_sockets_are_not_where_code_can_write(tmp_path: Path, writable: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / ("long" * 20)))
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"filesystem": {"allowWrite": [writable]}}))
    with pytest.raises(SandboxError, match=r"set XDG_STATE_HOME to a shorter path, or remove '/.*' from 'filesystem"):
        async with CodeExecutor(working_dir=tmp_path, images_dir=tmp_path, sandbox=True, sandbox_config=config):
            pass


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory whose path leaves room for the names of sockets, which pytest's own may not."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory).resolve()


@pytest.mark.kernel
@pytest.mark.sandbox
async def test_code_that_can_write_around_the_state_can_not_change_what_the_host_keeps(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
):
    tmp_path = short_path
    state = tmp_path / "s"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"filesystem": {"allowWrite": [".", str(tmp_path)]}}))
    work = tmp_path / "work"
    work.mkdir()
    async with CodeExecutor(working_dir=work, images_dir=work, sandbox=True, sandbox_config=config) as executor:
        await executor.execute("pass")
        before = kept(state)
        assert any(name.endswith("srt.json") for name in before)
        await executor.execute(ATTACK)
        assert kept(state) == before
    assert (tmp_path / "it-is-writable").exists(), "the attack could not write where it may"
