"""What holds for kernels of any Jupyter server holds for those that `gateway_provisioners` starts on SSH hosts."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ipybox import CodeExecutionError, CodeExecutor
from ipybox.code_exec.cell_runner import STATE_LOST
from tests.cluster.machines import NODES, processes
from tests.cluster.provisioned import KERNEL_NAME, kernel_processes, provisioned_gateway
from tests.code_exec.cells import SLEEPS, begun
from tests.jupyter_engine.conftest import executor, here, remote
from tests.jupyter_engine.foreign import JupyterServer
from tests.jupyter_engine.test_connection import (
    test_a_cell_and_its_calls_survive_a_lost_connection,
    test_an_adopted_kernel_has_tools_and_is_left_running,
)
from tests.jupyter_engine.test_executor import (
    test_a_call_is_approved_after_the_output_before_it,
    test_a_cell_that_is_cancelled_withdraws_its_call,
    test_a_cell_that_takes_too_long_is_interrupted_and_keeps_its_state,
    test_a_rejection_and_an_expiry_fail_in_the_code,
    test_a_reset_and_a_death_each_bring_a_new_kernel,
    test_a_server_that_was_not_registered_is_refused_and_one_that_is_runs,
    test_an_error_has_its_traceback,
    test_calls_at_the_same_time_and_from_async_code,
    test_forty_megabytes_arrive_whole,
    test_generated_packages_run_on_what_was_sent,
    test_large_arguments_and_results,
    test_output_arrives_in_order_and_an_image_is_saved,
    test_packages_that_change_are_sent_before_the_next_cell,
    test_tables_are_exchanged_with_the_kernel,
    test_variables_and_environment_are_exchanged_with_the_kernel,
)
from tests.servers import WAIT, until_dead

__all__ = [
    "executor",
    "here",
    "remote",
    "test_a_call_is_approved_after_the_output_before_it",
    "test_a_cell_and_its_calls_survive_a_lost_connection",
    "test_a_cell_that_is_cancelled_withdraws_its_call",
    "test_a_cell_that_takes_too_long_is_interrupted_and_keeps_its_state",
    "test_a_rejection_and_an_expiry_fail_in_the_code",
    "test_a_reset_and_a_death_each_bring_a_new_kernel",
    "test_a_server_that_was_not_registered_is_refused_and_one_that_is_runs",
    "test_an_adopted_kernel_has_tools_and_is_left_running",
    "test_an_error_has_its_traceback",
    "test_calls_at_the_same_time_and_from_async_code",
    "test_forty_megabytes_arrive_whole",
    "test_generated_packages_run_on_what_was_sent",
    "test_large_arguments_and_results",
    "test_output_arrives_in_order_and_an_image_is_saved",
    "test_packages_that_change_are_sent_before_the_next_cell",
    "test_tables_are_exchanged_with_the_kernel",
    "test_variables_and_environment_are_exchanged_with_the_kernel",
]

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.kernel]

#: Seconds for a kernel to end: ipykernel waits up to 29 for a child of `gateway_provisioners`, which has ended before.
SHUTDOWN_WAIT = 60.0

#: Prints the host and the process of a kernel.
WHERE = "import os, socket; print(socket.gethostname(), os.getpid())"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the gateway."""
    return tmp_path_factory.mktemp("provisioned")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(directory: Path, shared: None) -> AsyncIterator[JupyterServer]:
    async with provisioned_gateway(directory) as running:
        yield running


def on_nodes(gateway: JupyterServer, working_dir: Path, **options: Any) -> CodeExecutor:
    """Returns an executor whose kernel will run on a node."""
    return CodeExecutor(
        gateway_url=gateway.url,
        gateway_token=gateway.token,
        kernel_name=KERNEL_NAME,
        working_dir=working_dir,
        **options,
    )


async def where(executor: CodeExecutor) -> tuple[str, int]:
    """Returns the host of the kernel, and the id of its process."""
    host, pid = ((await executor.execute(WHERE)).text or "").split()
    return host, int(pid)


async def test_kernels_run_on_the_nodes_in_turn_and_end_with_their_executors(
    gateway: JupyterServer, directory: Path, tmp_path: Path
) -> None:
    before = kernel_processes(directory)
    async with on_nodes(gateway, tmp_path) as first, on_nodes(gateway, tmp_path) as second:
        places = [await where(first), await where(second)]
        assert {host for host, _ in places} == NODES
        for host, pid in places:
            assert pid in processes(host)
        started = kernel_processes(directory) - before
        assert {pid for _, pid in places} <= started
    assert not await until_dead(started, SHUTDOWN_WAIT)


async def test_killed_kernel_is_reported_and_the_next_cell_gets_another(
    gateway: JupyterServer, directory: Path, tmp_path: Path
) -> None:
    async with on_nodes(gateway, tmp_path) as executor:
        _, pid = await where(executor)
        running = await begun(executor, SLEEPS, timeout=3 * WAIT)
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(2 * WAIT):
            with pytest.raises(CodeExecutionError, match="the kernel died"):
                await running
        result = await executor.execute(WHERE)
        host, new = (result.text or "").split()
        assert host in NODES
        assert (int(new) != pid, result.kernel_restarted) == (True, True)
        assert any(notice.startswith(STATE_LOST) for notice in result.notices)
