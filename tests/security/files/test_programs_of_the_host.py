"""Git and MCP servers on the host run nothing of what kernels have planted."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from ipybox import CodeExecutionError
from tests import servers
from tests.security import file_attacks, kernels
from tests.security.conftest import Row
from tests.security.files.probing import Kernels
from tests.security.kernels import Kernel, Place, Probe, held, named, running

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.kernel]

GIT = [
    Probe("a hook that git runs on the host", file_attacks.git_hook),
    Probe("settings that make git run a program", file_attacks.git_config),
    Probe("a common directory that does", file_attacks.git_common_directory),
    Probe("settings of a worktree that do", file_attacks.git_worktree_configuration),
    Probe("a submodule that does", file_attacks.git_submodule),
    Probe("another repository in its place", file_attacks.git_moved_away),
]


def run_git(*arguments: str, cwd: Path) -> None:
    command = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *arguments]
    subprocess.run(command, cwd=cwd, check=True, capture_output=True, timeout=kernels.TIMEOUT)


def with_repository(root: Path) -> Place:
    place = Place(root, root / "workspace", "")
    place.workspace.mkdir(parents=True)
    run_git("init", "-q", cwd=place.workspace)
    (place.workspace / "file").write_text("content")
    run_git("add", "file", cwd=place.workspace)
    run_git("commit", "-q", "-m", "first", cwd=place.workspace)
    return place


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def repository(
    all_kernels: Kernels, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Kernel, Place]]:
    """A kernel in the sandbox whose workspace is a real repository."""
    place = with_repository(tmp_path_factory.mktemp("repository"))
    async with running(place) as kernel:
        yield kernel, place


async def plant_in_git(kernel: Kernel, place: Place, probe: Probe) -> tuple[kernels.Outcome, bool]:
    """Returns whether git on the host ran what an attack has left in the repository."""
    mark = place.root / f"ran because of {probe}"
    outcome = await kernel.run(probe.attack, str(place.workspace), f"#!/bin/sh\ntouch '{mark}'\n")
    (place.workspace / "file").touch()
    status = partial(subprocess.run, ["git", "status"], cwd=place.workspace, check=False, capture_output=True)
    await asyncio.to_thread(status, timeout=kernels.TIMEOUT)
    return outcome, mark.exists()


@named(GIT)
async def test_git_on_the_host_runs_nothing_of_theirs(
    probe: Probe, repository: tuple[Kernel, Place], all_kernels: Kernels, tmp_path: Path, table: list[Row]
):
    outside, ran = await plant_in_git(all_kernels.plain, with_repository(tmp_path), probe)
    assert ran, f"the attack does not work where nothing stops it: {outside}"

    within, ran = await plant_in_git(*repository, probe)

    assert not ran, f"git ran a program from within: {within}"
    held(table, "Git", probe, "git ran it", within)


#: MCP servers start in the workspace if that is the working directory of this process.
PLANTS = [
    Probe("a module with the name of an MCP server", file_attacks.plant_a_module),
    Probe("a package with the name of an MCP server", file_attacks.plant_a_package),
    Probe("a module of Python's own that MCP servers import", file_attacks.plant_a_standard_module),
]


async def plant(probe: Probe, root: Path, *, sandbox: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[bool, str]:
    """Returns whether an MCP server on the host ran what an attack has left in the workspace, and what it answered."""
    place = Place(root, root / "workspace", "")
    place.workspace.mkdir(parents=True)
    # The control has Python import from its working directory, which ipybox keeps it from doing in each mode.
    env = {} if sandbox else {"PYTHONSAFEPATH": ""}
    servers.register(place.workspace, clock={**servers.time_(), "env": env})
    monkeypatch.chdir(place.workspace)  # as `ipybox --workspace` does
    mark = root / "ran"
    async with running(place, sandbox=sandbox) as kernel:
        await kernel.run(probe.attack, str(place.workspace), "mcp_server_time", str(mark))
        try:
            called = await kernel.executor.execute(
                "import registered; print(registered.clock.run_sync('get_current_time', {'timezone': 'UTC'}))"
            )
        except CodeExecutionError as exc:
            return mark.exists(), str(exc)
        return mark.exists(), called.text or ""


@named(PLANTS)
async def test_servers_on_the_host_run_nothing_of_theirs(
    probe: Probe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: list[Row], shared: None
):
    ran, outside = await plant(probe, tmp_path / "plain", sandbox=False, monkeypatch=monkeypatch)
    assert ran, f"the attack does not work where nothing stops it: {outside}"

    ran, within = await plant(probe, tmp_path / "sandboxed", sandbox=True, monkeypatch=monkeypatch)

    assert not ran, f"the server ran it: {within}"
    assert "UTC" in within, f"the server did not start: {within}"
    held(table, "MCP servers", probe, "the server ran it", within)
