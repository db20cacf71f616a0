"""Each process of an executor is killed, or stopped for a while, at each moment.

What it means for the executor is an exact error, or nothing. Its sibling notices only that all kernels were lost.
"""

import asyncio
import os
import signal

import pytest

from ipybox import CodeExecutionError, CodeExecutionResult, CodeExecutor
from ipybox.code_exec.executor import STATE_LOST
from ipybox.errors import ExecutionTimeoutError
from tests import servers
from tests.code_exec.cells import begun
from tests.conftest import Mode
from tests.faults.conftest import Family, keeps_its_state
from tests.faults.moments import MOMENTS, tool_call
from tests.faults.processes import SANDBOX, Victim, kill, outcome, pid_of, stopped
from tests.servers import WAIT

pytestmark = pytest.mark.asyncio(loop_scope="module")

DONE = "done"
DIED = "CodeExecutionError: the kernel died"
KILLED = f"{DIED}: its process was killed by signal 9 (SIGKILL)"
NOT_STARTED = "GatewayError: the kernel did not start: its process exited"
SERVER_LOST = "MCP server 'scripted': lost the connection to "

#: What comes of the work of each moment when its kernel is killed, or the gateway.
KERNEL_KILLED = {
    "starting": NOT_STARTED,
    "idle": KILLED,
    "cell": KILLED,
    "tool_call": KILLED,
    "approval": KILLED,
    "reset": DONE,  # it makes another kernel
    "stopping": DONE,
}
GATEWAY_KILLED = KERNEL_KILLED | dict.fromkeys(("idle", "cell", "tool_call", "approval"), DIED) | {"starting": DONE}

#: Seconds for which a process is stopped: whoever gives up too soon has done so by then.
PAUSE = 0.3


def said(result: object) -> str:
    """Returns the last line of what some work has put out, or of its error."""
    match result:
        case CodeExecutionResult():
            return (result.text or "").splitlines()[-1]
        case BaseException():
            return f"{type(result).__name__}: {str(result).splitlines()[-1]}"
        case _:
            return DONE


#: What follows if an idle executor has noticed the death before the next cell began.
SEEN_BEFORE = " It died: its process was killed by signal 9 (SIGKILL)."


async def tells_of_lost_state(executor: CodeExecutor, result: object = None) -> None:
    """Makes sure that `result` or the next cell reports the lost state, once, and that the executor works again."""
    # Calls that were cut off are listed, too.
    told = [notice for notice in getattr(result, "notices", []) if not notice.startswith("Before this error: ")]
    if not told:
        with pytest.raises(CodeExecutionError, match="NameError") as error:
            await executor.execute("kept", timeout=WAIT)
        told = error.value.notices
    assert [notice.removesuffix(SEEN_BEFORE) for notice in told] == [STATE_LOST]
    await executor.execute("kept = 'kept'", timeout=WAIT)
    await keeps_its_state(executor)


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_kernel_that_is_killed_costs_its_own_state_only(family: Family, moment: str):
    kernel = await pid_of(Victim.KERNEL, family)
    async with MOMENTS[moment](family) as at:
        await kill(at.kernel or kernel)
        await at.release()
        result = await outcome(at.work())
        # An idle executor may have noticed the death before it began.
        assert said(result) in (KERNEL_KILLED[moment], DONE if moment == "idle" else None)

    if moment in ("starting", "stopping"):
        await keeps_its_state(family.executor)
    elif moment == "reset":
        assert (await family.executor.execute("'kept' in globals()", timeout=WAIT)).text == "False"
    else:
        await tells_of_lost_state(family.executor, result)
    await keeps_its_state(family.sibling)


@pytest.mark.parametrize(
    ("mode", "victim", "moment"),
    [
        *((mode, Victim.GATEWAY, moment) for mode in Mode for moment in MOMENTS),
        *((Mode.SANDBOX, victim, moment) for victim in SANDBOX for moment in ("starting", "cell", "reset")),
    ],
    indirect=["mode"],
)
async def test_a_gateway_or_sandbox_that_is_killed_is_replaced_for_all(family: Family, victim: Victim, moment: str):
    gateway, pid = await pid_of(Victim.GATEWAY, family), await pid_of(victim, family)
    async with MOMENTS[moment](family) as at:
        await kill(pid)
        assert await servers.until_dead({gateway}, WAIT) == set()
        await at.release()
        result = await outcome(at.work())
        # An idle executor may notice it before, and the gateway may report the end of the kernel before its own.
        before = {"idle": {DONE, KILLED}, "starting": set[str]()}.get(moment, {KERNEL_KILLED[moment]})
        assert said(result) in {GATEWAY_KILLED[moment], *before}

    if moment == "reset":
        assert (await family.executor.execute("'kept' in globals()", timeout=WAIT)).text == "False"
    else:
        await tells_of_lost_state(family.executor, result)
    await tells_of_lost_state(family.sibling)


@pytest.mark.parametrize("moment", ["idle", "cell", "tool_call", "approval"])
async def test_an_mcp_server_that_is_killed_costs_the_call_it_was_in(family: Family, moment: str):
    pid = await pid_of(Victim.MCP_SERVER, family)
    async with MOMENTS[moment](family) as at:
        await kill(pid)
        if moment != "tool_call":
            await at.release()
        result = await outcome(at.work())
        # A call that is accepted right now may still go to the server that was killed.
        if moment == "tool_call" or (moment == "approval" and said(result) != DONE):
            assert SERVER_LOST in str(result)
            assert str(result).endswith("it was killed by signal 9")
        else:
            assert said(result) == DONE

    assert await pid_of(Victim.MCP_SERVER, family) != pid
    await family.check()


@pytest.mark.parametrize("moment", ["idle", "cell", "tool_call"])
async def test_an_mcp_server_ends_with_its_guard(family: Family, moment: str):
    """As nobody else would end it if the application was killed, and it did not heed the end of stdin."""
    server, guard = await pid_of(Victim.MCP_SERVER, family), await pid_of(Victim.MCP_GUARD, family)
    async with MOMENTS[moment](family) as at:
        await kill(guard)
        assert await servers.until_dead({server}, WAIT) == set()
        if moment != "tool_call":
            await at.release()
        result = await outcome(at.work())
        if moment == "tool_call":
            assert SERVER_LOST in str(result)
        else:
            assert said(result) == DONE

    assert await pid_of(Victim.MCP_SERVER, family) != server
    await family.check()


@pytest.mark.parametrize(
    ("mode", "victim", "moment"),
    [
        *((mode, victim, moment) for mode in Mode for victim in (Victim.KERNEL, Victim.GATEWAY) for moment in MOMENTS),
        *((Mode.SANDBOX, victim, "cell") for victim in SANDBOX),
        *((mode, Victim.MCP_SERVER, at) for mode in Mode for at in ("idle", "cell", "tool_call", "approval")),
        *((mode, Victim.MCP_GUARD, "tool_call") for mode in Mode),
    ],
    indirect=["mode"],
)
async def test_a_process_that_is_stopped_for_a_while_costs_nothing(family: Family, victim: Victim, moment: str):
    pid = await pid_of(victim, family)
    async with MOMENTS[moment](family) as at:
        with stopped(at.kernel if victim is Victim.KERNEL and at.kernel else pid):
            work = asyncio.ensure_future(at.work())
            await at.release()
            await asyncio.wait([work], timeout=PAUSE)
        assert said(await outcome(work)) == DONE

    if moment != "reset":
        await keeps_its_state(family.executor)
    await keeps_its_state(family.sibling)


# Processes that stay stopped


@pytest.mark.usefixtures("short_graces")
async def test_a_kernel_that_stays_stopped_is_replaced_at_the_time_limit(family: Family):
    kernel = await pid_of(Victim.KERNEL, family)
    execution = await begun(family.executor, "print('begun', flush=True)\nwhile True: pass", timeout=1)
    os.kill(kernel, signal.SIGSTOP)

    with pytest.raises(ExecutionTimeoutError, match="ignored the interrupt and was restarted: its state is lost"):
        async with asyncio.timeout(WAIT):
            await execution
    assert not servers.is_alive(kernel)
    assert (await family.executor.execute("'kept' in globals()", timeout=WAIT)).text == "False"
    await keeps_its_state(family.sibling)


@pytest.mark.parametrize("end", ["reset", "stop"])
async def test_a_kernel_that_stays_stopped_does_not_outlive_a_reset_or_a_stop(family: Family, end: str):
    async with family.executor.sibling() as third:
        kernel = await pid_of(Victim.KERNEL, Family(third, family.sibling, family.directory))
        os.kill(kernel, signal.SIGSTOP)
        async with asyncio.timeout(WAIT):
            await (third.reset() if end == "reset" else third.stop())
        assert not servers.is_alive(kernel)
    await family.check()


async def test_an_mcp_server_that_stays_stopped_costs_calls_their_time_until_a_reset(family: Family):
    pid = await pid_of(Victim.MCP_SERVER, family)
    async with tool_call(family, timeout=1) as at:
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(ExecutionTimeoutError, match="was interrupted and keeps its state"):
            await at.work()

    await family.check()
    async with asyncio.timeout(WAIT):
        await family.executor.reset()
    assert not servers.is_alive(pid)
    assert await pid_of(Victim.MCP_SERVER, family) != pid
    await keeps_its_state(family.sibling)
