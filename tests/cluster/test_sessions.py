"""MCP sessions whose kernels are jobs of Slurm, over both transports; and packages for them."""

import asyncio
import json
import os
import re
from pathlib import Path

import pytest

from ipybox import CodeExecutor
from tests.cluster.machines import NODES, on_head, queue_is_empty, srun
from tests.conftest import Mode
from tests.http_server import serving
from tests.kernel_mgr.packages.conftest import index, place
from tests.kernel_mgr.packages.index import Index
from tests.mcp_server.test_http import client_of as http_client_of
from tests.mcp_server.test_http import run
from tests.mcp_server.test_server import call, client_of, output, text_of
from tests.servers import scripted

__all__ = ["index", "place"]

pytestmark = pytest.mark.kernel

WHERE = "import socket; print(socket.gethostname())"


@pytest.fixture
def configured(tmp_path: Path) -> dict[str, str]:
    """The environment of a user with an engine `slurm`; JSON is YAML, too."""
    engines = tmp_path / "config" / "ipybox" / "engines.yaml"
    engines.parent.mkdir(parents=True)
    engines.write_text(json.dumps({"slurm": {"command": srun()}}))
    (tmp_path / "workspace").mkdir()
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "SLURM_CONF": os.environ["SLURM_CONF"]}


async def test_session_of_an_agent_over_stdio(tmp_path: Path, configured: dict[str, str]):
    async with client_of(
        tmp_path / "workspace", "--engine=slurm", name="test", protocol="auto", **configured
    ) as client:
        node = await output(client, WHERE)
        assert node in NODES
        assert node in on_head("squeue", "--noheader", "--format=%N")
        registered = await call(client, "register_mcp_server", server_name="scripted", server_params=scripted())
        assert "echo" in text_of(registered).splitlines()
        code = "from mcptools.scripted import echo; print(echo.run(echo.Params(text='called')))"
        assert await output(client, code) == "called"
        failed = await call(client, "execute_ipython_cell", code="print('before'); 1/0")
        assert re.fullmatch(r"before\n(.|\n)*ZeroDivisionError: division by zero", text_of(failed))
        assert text_of(await call(client, "reset")) == "The kernel was reset."
    await queue_is_empty()


async def test_session_of_an_agent_over_http(tmp_path: Path, configured: dict[str, str]):
    with serving(tmp_path / "workspace", "--engine=slurm", **configured) as server:
        async with http_client_of(server) as client:
            assert await run(client, WHERE) in NODES
            assert await run(client, "x = 1; x + 1") == "2"
        async with http_client_of(server) as client:
            assert await run(client, "x") == "1", "kernels stay for the next client"
    await queue_is_empty()


async def test_sixteen_sessions_are_jobs_on_both_nodes(tmp_path: Path, configured: dict[str, str]):
    names = ["default", *(f"session-{number}" for number in range(1, 16))]
    options = ("--engine=slurm", "--max-sessions=16")
    async with client_of(tmp_path / "workspace", *options, name="test", protocol="auto", **configured) as client:
        nodes = await asyncio.gather(*(output(client, WHERE, session=name, timeout=300) for name in names))
        jobs = await asyncio.to_thread(on_head, "squeue", "--noheader", "--format=%N")
        assert sorted(nodes) == sorted(jobs.split())
        assert set(nodes) == NODES
    await queue_is_empty()


@pytest.mark.parametrize("mode", [Mode.SANDBOX], indirect=True)  # without one, code can install no packages
async def test_packages_that_code_installs_are_on_the_node(index: Index, place: Path, mode: Mode):
    index.wheel("fresh", "1.0")
    async with CodeExecutor(working_dir=place, engine=srun(), sandbox=mode.sandbox) as executor:
        assert "Installed fresh-1.0" in ((await executor.execute("!pip install fresh")).text or "")
        assert (await executor.execute("import fresh; fresh.VERSION")).text == "'1.0'"
    await queue_is_empty()
