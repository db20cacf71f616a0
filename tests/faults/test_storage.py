"""A disk that is full or read-only, and a workspace that is renamed or deleted, while an executor uses them."""

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from ipybox import CodeExecutionError, CodeExecutor
from ipybox.audit.audit import AuditLog
from ipybox.errors import AuditError, GatewayError
from tests import servers
from tests.audit.lines import events
from tests.audit.test_log import file_size_limit
from tests.conftest import Mode
from tests.faults.conftest import keeps_its_state
from tests.servers import WAIT

IMAGE = "display({'image/png': 'aW1h' * 100_000, 'text/plain': '<image>'}, raw=True); print('shown')"

#: Runs in a mount namespace of its own, where the workspace is a small file system that has a fault for a while.
APPLICATION = """
import asyncio, json, os, subprocess, sys
from pathlib import Path
from ipybox import CodeExecutionError, CodeExecutor
from ipybox.audit.audit import AuditLog
from ipybox.errors import AuditError
from ipybox.mcp_server.tool_result import ToolResultBuilder
from ipybox.mcp_server.outputs import OutputStore
from tests.faults.test_storage import IMAGE

fault, mode, workspace = sys.argv[1], sys.argv[2], Path(sys.argv[3])
filling = workspace / "filling"
said = {}

def begin():
    if fault == "read_only":
        subprocess.run(["mount", "-o", "remount,ro", workspace], check=True)
        return
    try:
        with filling.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
    except OSError:
        pass

def end():
    subprocess.run(["mount", "-o", "remount,rw", workspace], check=True) if fault == "read_only" else filling.unlink()

async def error_of(executor, code):
    try:
        await executor.execute(code)
    except CodeExecutionError as exc:
        return str(exc).splitlines()[-1]

async def main():
    outputs = OutputStore(workspace)
    outputs.save("before")
    async with (
        CodeExecutor(working_dir=workspace, sandbox=mode == "sandbox") as executor,
        executor.sibling() as sibling,
    ):
        for each in (executor, sibling):
            await each.execute("kept = 'kept'")
        begin()
        image = await executor.execute(IMAGE)
        said["image"] = [image.text, image.images, image.notices]
        said["written"] = await error_of(executor, "open('made', 'w').write('x' * 10_000)")
        long = await executor.execute("print('long' * 1000)")
        (block, told) = (await ToolResultBuilder(outputs).result(long, 100)).content
        said["output"] = told.text
        try:
            AuditLog(workspace).open()
            said["audit"] = "opened"
        except AuditError as exc:
            said["audit"] = str(exc)
        said["kept"] = [(await each.execute("kept")).text for each in (executor, sibling)]
        await sibling.reset()
        said["after_reset"] = (await sibling.execute("'kept' in globals()")).text
        end()
        image = await executor.execute(IMAGE)
        said["later"] = [image.text, [path.stat().st_size for path in image.images], image.notices]
        said["files"] = len(list((workspace / "images").glob("*.png")))
        said["outputs"] = len(outputs.kept())
    print(json.dumps(said))

asyncio.run(main())
"""


async def run_on_small_disk(workspace: Path, fault: str, mode: Mode) -> dict[str, Any]:
    """Runs the application and returns what it says; who is not root has to be it in a user namespace."""
    namespaces = ["--mount"] if os.geteuid() == 0 else ["--mount", "--map-root-user"]
    process = await asyncio.create_subprocess_exec(
        *("unshare", *namespaces, "sh", "-c", 'mount -t tmpfs -o size=4m none "$1" && shift && exec "$@"'),
        *("sh", workspace, sys.executable, "-c", APPLICATION, fault, mode, workspace),
        cwd=servers.ROOT,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(2 * WAIT):
        out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return json.loads(out)


@pytest.mark.parametrize(
    ("fault", "reason"), [("full", "No space left on device"), ("read_only", "Read-only file system")]
)
async def test_a_disk_that_takes_nothing_costs_what_can_not_be_written_and_no_state(
    tmp_path: Path, mode: Mode, fault: str, reason: str
):
    said = await run_on_small_disk(tmp_path, fault, mode)

    text, images, (notice,) = said["image"]
    assert (text, images) == ("shown", [])
    assert notice.startswith(f"What the cell displayed can't be saved in {tmp_path}/images: ")
    assert reason in notice
    assert said["written"].startswith("OSError: [Errno ")
    assert reason in said["written"]
    assert said["output"].startswith("[ipybox] The full output can't be saved: ")
    assert reason in said["output"]
    assert said["audit"].startswith("can't write the audit log: ") == (fault == "read_only")
    assert said["kept"] == ["'kept'", "'kept'"]
    assert said["after_reset"] == "False"
    # Nothing is left of what was not reported.
    assert said["later"] == ["shown", [300_000], []]
    assert (said["files"], said["outputs"]) == (1, 1)


async def test_of_an_image_that_no_file_can_hold_nothing_stays(tmp_path: Path, mode: Mode):
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox) as executor:
        with file_size_limit(100_000):
            result = await executor.execute(IMAGE)
        assert (result.text, result.images) == ("shown", [])
        (notice,) = result.notices
        assert "File too large" in notice
        assert list((tmp_path / "images").glob("*.png")) == []
        assert len((await executor.execute(IMAGE)).images) == 1


async def test_a_full_audit_log_stops_cells_of_all_executors_until_there_is_room(tmp_path: Path, mode: Mode):
    audit = AuditLog(tmp_path)
    async with (
        CodeExecutor(working_dir=tmp_path, audit=audit, sandbox=mode.sandbox) as executor,
        executor.sibling("other") as sibling,
    ):
        for each in (executor, sibling):
            await each.execute("kept = 'kept'")
        with file_size_limit(audit.file.path.stat().st_size + 10):
            await executor.execute("kept")  # it had begun before anybody could know
            for each in (executor, sibling):
                with pytest.raises(AuditError, match=r"can't write the audit log: .*; free up space, make it"):
                    await each.execute("kept = 'changed'")
        for each in (executor, sibling):
            await keeps_its_state(each)
    assert [line["missing"] for line in events(tmp_path, "gap")] == [1]


@pytest.mark.parametrize("fault", ["deleted", "renamed"])
async def test_a_workspace_that_goes_away_does_not_come_back(tmp_path: Path, mode: Mode, fault: str):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with CodeExecutor(working_dir=workspace, sandbox=mode.sandbox) as executor, executor.sibling() as sibling:
        for each in (executor, sibling):
            await each.execute("kept = 'kept'")
        if fault == "deleted":
            shutil.rmtree(workspace)
        else:
            workspace.rename(tmp_path / "renamed")

        result = await executor.execute(IMAGE)
        assert (result.text, result.images) == ("shown", [])
        (notice,) = result.notices
        assert notice.startswith(f"What the cell displayed can't be saved in {workspace}/images: ")
        assert "No such file or directory" in notice
        assert not workspace.exists()
        for each in (executor, sibling):
            await keeps_its_state(each)

        workspace.mkdir()
        result = await executor.execute(IMAGE)
        assert [path.parent for path in result.images] == [workspace / "images"]


async def test_a_reset_after_the_workspace_was_deleted_says_what_to_do(tmp_path: Path, mode: Mode):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    remedy = r"HTTP 409 Conflict the working directory was deleted: create it and restart ipybox$"
    executor = CodeExecutor(working_dir=workspace, sandbox=mode.sandbox)
    async with executor, executor.sibling() as sibling:
        await sibling.execute("kept = 'kept'")
        shutil.rmtree(workspace)
        for _ in range(2):
            with pytest.raises(GatewayError, match=remedy):
                await executor.reset()
            with pytest.raises(CodeExecutionError, match=remedy):
                await executor.execute("1")
            workspace.mkdir(exist_ok=True)
        await keeps_its_state(sibling)
    async with executor:
        assert (await executor.execute("open('made', 'x'); 1")).text == "1"
