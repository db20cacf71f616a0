"""Jupyter servers that the tests of a module share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from ipybox import CodeExecutor
from tests.jupyter_engine.foreign import JupyterServer, jupyter
from tests.jupyter_engine.installed import hub_server, ipykernel6_gateway


async def echo(text: str) -> str:
    """Returns the text."""
    return text


def repeat(text: str, times: int) -> str:
    """Returns the text several times."""
    return text * times


#: What prepares a kernel of `executor`.
SETUP = """
from mcptools.app import echo, repeat
def call(text): return echo.run(echo.Params(text=text))
"""


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=[
        jupyter,
        *(pytest.param(server, marks=pytest.mark.jupyter) for server in (ipykernel6_gateway, hub_server)),
    ],
    ids=["gateway", "ipykernel6", "hub"],
)
async def gateway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, shared: None
) -> AsyncIterator[JupyterServer]:
    """A Kernel Gateway of this environment; with `make jupyter` others, see `installed.py`."""
    async with request.param(tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working directory of `executor`, where its kernel does not run."""
    return tmp_path_factory.mktemp("here")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def remote(gateway: JupyterServer, here: Path) -> AsyncIterator[CodeExecutor]:
    """An executor that the tests of a module share, each leaving the kernel usable."""
    async with CodeExecutor(
        gateway_url=gateway.url,
        gateway_token=gateway.token,
        working_dir=here,
        kernel_env={"GREETING": "hello"},
        tools=[echo, repeat],
        approval_timeout=1,
    ) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def executor(remote: CodeExecutor) -> CodeExecutor:
    """The same, whose kernel has `call(text)`, also after a test has reset it."""
    await remote.execute(SETUP)
    return remote
