"""The smallest engine: the node is a process of this machine."""

import os
import sys
from collections.abc import AsyncIterator

import psutil
import pytest
import pytest_asyncio

from ipybox import CodeExecutor
from ipybox.node import __name__ as node_module
from tests import servers
from tests.conftest import Mode


@pytest.fixture(scope="session")
def command(private_directories: None) -> list[str]:
    """The command of an engine, whose node has the directories of the tests, which commands don't inherit."""
    return ["env", f"XDG_STATE_HOME={os.environ['XDG_STATE_HOME']}", sys.executable, "-P", "-m", node_module]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def on_node(
    tmp_path_factory: pytest.TempPathFactory, command: list[str], mode: Mode, shared: None
) -> AsyncIterator[CodeExecutor]:
    workspace = tmp_path_factory.mktemp("workspace")
    servers.register(workspace, scripted=servers.scripted())
    async with CodeExecutor(
        working_dir=workspace, engine=command, sandbox=mode.sandbox, cpu_seconds=2, preload=["colorsys"]
    ) as executor:
        yield executor


def nodes() -> set[int]:
    """Returns the ids of the processes of nodes."""
    return {each.pid for each in psutil.Process().children() if "ipybox.node" in each.cmdline()}
