"""What holds for a node of this machine holds for those of a cluster, without and with a sandbox there."""

import pytest

from tests.remote.conftest import on_node
from tests.remote.test_executor import (
    test_calls_need_a_seal_with_and_without_a_sandbox,
    test_cells_have_state_streams_and_large_outputs,
    test_denials_of_the_sandbox_are_explained,
    test_tools_run_here_after_approval,
)
from tests.remote.test_relayed import (
    test_cpu_limit_of_a_cell_holds_on_the_node,
    test_interrupt_keeps_the_state_and_reset_does_not,
    test_memory_limit_holds_on_the_node,
    test_variables_cross_in_both_directions,
)

__all__ = [
    "on_node",
    "test_calls_need_a_seal_with_and_without_a_sandbox",
    "test_cells_have_state_streams_and_large_outputs",
    "test_cpu_limit_of_a_cell_holds_on_the_node",
    "test_denials_of_the_sandbox_are_explained",
    "test_interrupt_keeps_the_state_and_reset_does_not",
    "test_memory_limit_holds_on_the_node",
    "test_tools_run_here_after_approval",
    "test_variables_cross_in_both_directions",
]

pytestmark = pytest.mark.asyncio(loop_scope="module")
