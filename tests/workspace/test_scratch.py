"""Scratch directories: private, removed when no process uses them, and out of reach of code in the sandbox."""

import asyncio
import json
import stat
import sys
from pathlib import Path

import pytest

from ipybox import CodeExecutor
from ipybox.errors import SandboxError
from ipybox.state import scratch_root
from ipybox.workspace.scratch import ScratchDirectory
from tests.conftest import Mode
from tests.servers import WAIT

HOLDER = """
import sys
from ipybox.workspace.scratch import ScratchDirectory
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


def kept(state: Path) -> dict[str, bytes]:
    """Returns what is in scratch directories, apart from the part that belongs to the code."""
    return {
        str(path): path.read_bytes() if path.is_file() else b""
        for path in (state / "ipybox-scratch").rglob("*")
        if "guest" not in path.parts
    }


def test_directory_is_private_and_exists_for_the_time_of_the_context():
    with ScratchDirectory() as first, ScratchDirectory() as second:
        assert first.path.parent == second.path.parent == scratch_root().resolve()
        assert {stat.S_IMODE(path.stat().st_mode) for path in (first.path, first.path.parent)} == {0o700}
        (first.path / "file").touch()
    assert not first.path.exists()


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


def test_a_link_in_place_of_a_directory_is_not_followed(tmp_path: Path):
    (tmp_path / "file").touch()
    scratch_root().mkdir(parents=True, exist_ok=True)
    link = scratch_root() / "link"
    link.symlink_to(tmp_path)
    try:
        with ScratchDirectory():
            assert (tmp_path / "file").exists()
    finally:
        link.unlink()


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


@pytest.mark.kernel
async def test_code_that_can_write_tmp_can_not_change_what_the_host_keeps(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
):
    tmp_path = tmp_path_factory.mktemp("s")
    state = tmp_path / "s"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"filesystem": {"allowWrite": [".", "/tmp", str(tmp_path)]}}))
    work = tmp_path / "work"
    work.mkdir()
    async with CodeExecutor(working_dir=work, images_dir=work, sandbox=True, sandbox_config=config) as executor:
        await executor.execute("pass")
        before = kept(state)
        assert any(name.endswith("srt.json") for name in before)
        await executor.execute(ATTACK)
        assert kept(state) == before
    assert (tmp_path / "it-is-writable").exists(), "the attack could not write where it may"
