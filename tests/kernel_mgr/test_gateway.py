"""What executors rely on holds for each gateway: here, on a port, and at the other end of a command."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeAlias

import pytest
import pytest_asyncio

from ipybox.errors import ExecutionTimeoutError, GatewayError, KernelDiedError
from ipybox.kernel_mgr.client import KernelClient
from ipybox.kernel_mgr.gateway import Gateway, GatewaySetup
from ipybox.kernel_mgr.limits.resource_limits import ResourceLimits
from ipybox.kernel_mgr.server import KernelGateway
from ipybox.remote.application.gateway import EngineGateway
from ipybox.remote.application.settings import Engine
from ipybox.sandbox.settings import load_settings
from ipybox.support.deadline import Deadline
from tests.conftest import Mode, both_modes
from tests.remote.conftest import command
from tests.servers import WAIT

__all__ = ["command"]

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Creates a gateway for a workspace.
NewGateway: TypeAlias = Callable[[Path], Gateway]

LIMITS = ResourceLimits(memory=400 << 20, cpu_seconds=1)

#: Memory of the kernel and of a child, which together exceed the limit.
HUNGRY = """
kept = b'x' * (250 << 20)
import subprocess, sys
subprocess.run([sys.executable, '-c', 'import time; x = b"x" * (200 << 20); time.sleep(60)'])
"""


@pytest.fixture(scope="module")
def accepted() -> "asyncio.Queue[socket.socket]":
    """The connections of code to the tool server."""
    return asyncio.Queue()


@pytest.fixture(scope="module", params=["here", "port", "node"])
def new_gateway(
    request: pytest.FixtureRequest, command: list[str], mode: Mode, accepted: "asyncio.Queue[socket.socket]"
) -> NewGateway:
    setup = GatewaySetup(env={"GIVEN": "to kernels"}, sandbox=load_settings() if mode.sandbox else None, limits=LIMITS)

    def new(workspace: Path) -> Gateway:
        accept = accepted.put_nowait
        if request.param == "node":
            return EngineGateway(Engine(name="the engine", command=command), workspace, WAIT, setup, accept)
        port = 0 if request.param == "port" else None
        return KernelGateway(port=port, working_dir=workspace, setup=setup, on_tool_connection=accept)

    return new


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workspace")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(new_gateway: NewGateway, workspace: Path, shared: None) -> AsyncIterator[Gateway]:
    gateway = new_gateway(workspace)
    await gateway.start()
    yield gateway
    await gateway.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kernel(gateway: Gateway, workspace: Path) -> AsyncIterator[KernelClient]:
    async with KernelClient(endpoint=gateway.endpoint, images_dir=workspace) as client:
        yield client


async def text(kernel: KernelClient, code: str) -> str | None:
    return (await kernel.execute(code)).text


def connect(gateway: Gateway) -> None:
    assert gateway.endpoint.dial is not None
    gateway.endpoint.dial().close()


async def test_started_gateway_runs_waits_for_nothing_and_has_lost_nothing(gateway: Gateway):
    assert (gateway.running, gateway.spawned, gateway.waits_for, gateway.exceeded) == (True, False, "", {})
    assert await gateway.loss() is None
    with pytest.raises(RuntimeError, match="already"):
        await gateway.start()
    assert gateway.running


async def test_kernels_run_in_the_workspace_with_the_variables(kernel: KernelClient, workspace: Path):
    assert await text(kernel, "import os; os.getcwd(), os.environ['GIVEN']") == f"('{workspace}', 'to kernels')"


async def test_each_client_has_a_kernel_of_its_own(gateway: Gateway, kernel: KernelClient, workspace: Path):
    await kernel.execute("x = 1")
    async with KernelClient(endpoint=gateway.endpoint, images_dir=workspace) as other:
        assert other.kernel_id != kernel.kernel_id
        assert await text(other, "'x' in globals()") == "False"


async def test_connection_to_the_tool_server_arrives_here(
    kernel: KernelClient, accepted: "asyncio.Queue[socket.socket]"
):
    code = """
        import os, socket
        to_tools = socket.create_connection((os.environ["TOOL_SERVER_HOST"], int(os.environ["TOOL_SERVER_PORT"])))
        to_tools.sendall(b"call")
    """
    await kernel.execute(code)
    async with asyncio.timeout(WAIT):
        with await accepted.get() as connection:
            loop = asyncio.get_running_loop()
            assert await loop.sock_recv(connection, 100) == b"call"
            await loop.sock_sendall(connection, b"result")
            assert await text(kernel, "to_tools.recv(100)") == "b'result'"


async def test_workspace_that_is_shared_needs_no_files(gateway: Gateway, workspace: Path):
    (workspace / "uploaded").write_text("x")
    assert await gateway.push_files() == []
    assert await gateway.read_file("uploaded") is None


async def test_withdrawal_does_not_end_what_has_started(gateway: Gateway, kernel: KernelClient):
    gateway.withdraw()
    assert gateway.running
    assert await text(kernel, "1 + 1") == "2"


async def test_cell_that_exceeds_its_cpu_time_is_told_and_the_next_one_is_measured_anew(
    gateway: Gateway, kernel: KernelClient
):
    for _ in range(2):
        deadline = Deadline(None)
        with (
            gateway.measure_cell(kernel.kernel_id, deadline.expire),
            pytest.raises(ExecutionTimeoutError, match="more than cpu_seconds=1 allows"),
        ):
            await kernel.run("while True: pass", deadline)
    with gateway.measure_cell(kernel.kernel_id, pytest.fail):
        assert await text(kernel, "1 + 1") == "2"


@both_modes
async def test_denials_are_explained(gateway: Gateway, mode: Mode):
    (line,) = gateway.explain("MemoryError")
    assert line == "Each process may use at most 400 MiB of memory (memory_limit)."
    denied = gateway.explain("PermissionError: [Errno 13] Permission denied: '/root/.ssh/id_rsa'")
    assert bool(denied) == mode.sandbox
    assert gateway.explain("fine", ["fine"]) == []


async def test_limit_that_kills_a_kernel_is_known_and_costs_no_other(
    gateway: Gateway, kernel: KernelClient, workspace: Path
):
    async with KernelClient(endpoint=gateway.endpoint, images_dir=workspace) as hungry:
        with gateway.measure_cell(hungry.kernel_id, pytest.fail), pytest.raises(KernelDiedError):
            await hungry.execute(HUNGRY)
        assert "more than memory_limit=400 MiB allows" in gateway.exceeded.pop(hungry.kernel_id)
    assert gateway.exceeded.keys() <= {kernel.kernel_id}
    gateway.exceeded.clear()


async def test_stopped_gateway_can_not_be_reached_and_stops_again(new_gateway: NewGateway, tmp_path: Path):
    gateway = new_gateway(tmp_path)
    with pytest.raises(GatewayError):
        connect(gateway)
    await gateway.start()
    await gateway.stop()
    assert not gateway.running
    with pytest.raises(GatewayError):
        connect(gateway)
    await gateway.stop()


async def test_start_that_was_cancelled_leaves_nothing(new_gateway: NewGateway, tmp_path: Path):
    gateway = new_gateway(tmp_path)
    starting = asyncio.create_task(gateway.start())
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not gateway.running
