"""Tests that code in the sandbox does not reach the host: one test per probe."""

import asyncio
import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from ipybox import generate_mcp_sources
from ipybox.kernel_mgr import timeouts
from ipybox.support.state import scratch_root, state_dir
from tests import servers
from tests.security.boundary.heart import Heart
from tests.security.boundary.probes import HELD, PLACE, PROBES, Probe
from tests.security.boundary.sides import SECRET, Side, side
from tests.security.conftest import Row
from tests.servers import WAIT

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plain(tmp_path_factory: pytest.TempPathFactory, environment: None) -> AsyncIterator[Side]:
    async with side(tmp_path_factory.mktemp("plain"), sandboxed=False) as made:
        yield made


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
async def test_the_boundary_holds_against(probe: Probe, plain: Side, sandboxed: Side, table: list[Row]) -> None:
    texts: list[str] = []
    for each in (plain, sandboxed):
        each.clear()
        probe.prepare(each)
        state = f"STATE = {os.environ['XDG_STATE_HOME']!r}\n"
        text = await each.run(state + probe.code)
        texts.append(text)
        reached = probe.reached(each, text)
        each.clear()
        link = each.workspace / "pictures"
        if link.is_symlink():
            link.unlink()
        await each.works()
        if each is plain:
            assert reached, f"the control does not work: {text}"
        else:
            assert not reached, f"the boundary did not hold: {text}"
    table.append(Row(probe.area, probe.name, "reached", probe.outcome))


async def test_no_environment_holds_a_secret_of_the_host(plain: Side, sandboxed: Side, table: list[Row]) -> None:
    victim = await asyncio.create_subprocess_exec(
        "sleep", "1000", env={"HOST_SECRET": SECRET, "PATH": os.environ["PATH"]}
    )
    try:
        code = f"print(guests.environments())\nprint(open('/proc/{victim.pid}/environ').read())"
        control, within = await plain.run(code), await sandboxed.run(code)
    finally:
        victim.kill()
        await victim.wait()

    assert SECRET in control
    assert SECRET not in within
    # Next to the state directory are scratch directories, of which code knows its own.
    assert str(state_dir()) not in within.replace(str(scratch_root()), "")
    table.append(Row(HELD, "a secret in an environment, /proc/*/environ included", "read", "in none"))


async def test_a_registration_follows_no_link_out_of_the_workspace(
    plain: Side, sandboxed: Side, table: list[Row]
) -> None:
    for each in (plain, sandboxed):
        each.clear()
        await each.run("os.rename('mcptools', 'kept'); os.symlink(OUTSIDE, 'mcptools')")
        failure: OSError | None = None
        try:
            await generate_mcp_sources("tools", servers.scripted(), each.workspace / "mcptools")
        except OSError as exc:
            failure = exc
        assert not any(each.outside.iterdir())
        assert isinstance(failure, NotADirectoryError)
        await each.run("os.unlink('mcptools'); os.rename('kept', 'mcptools')")
        await each.works()
    table.append(
        Row(HELD, "mcptools/ that leads elsewhere when a server is registered", "not followed", "not followed")
    )


async def test_a_plain_kernel_that_has_stolen_the_link_does_no_harm_there(plain: Side, table: list[Row]) -> None:
    await plain.works()  # the test before may have left it without a kernel
    before = len(os.listdir("/proc/self/fd"))
    code = """
import socket
files = [os.open("/dev/null", os.O_RDWR) for _ in range(50)]
listener = socket.create_server(("127.0.0.1", 0))
for link in guests.steal_links():
    link.setblocking(False)
    for data in (guests.LISTENER, b"?" * 1000, guests.READY):
        for _ in range(20):
            try: socket.send_fds(link, [data], [listener.fileno(), *files])
            except OSError: pass
"""
    async with Heart().beating() as heart:
        await plain.run(code)
        await plain.works()
    assert len(os.listdir("/proc/self/fd")) <= before + 2
    table.append(Row(PLACE, "the link, stolen by a plain kernel", "stolen", f"closes all: {heart.check()}"))


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("os.kill(os.getppid(), 9)", id="the gateway is killed"),
        pytest.param("os.kill(-1, 9)", id="everything is killed"),
        pytest.param("os.kill(os.getpid(), 9)", id="the kernel kills itself"),
        pytest.param("os.kill(os.getppid(), 19)", id="the gateway is stopped"),
        pytest.param("os.kill(os.getpid(), 19)", id="the kernel stops itself"),
    ],
)
async def test_a_kernel_that_takes_its_own_away_gets_a_fresh_one(
    code: str, sandboxed: Side, table: list[Row], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "GATEWAY_TIMEOUT", 1.0)
    monkeypatch.setattr(timeouts, "INTERRUPT_GRACE", 0.5)
    monkeypatch.setattr(timeouts, "ANSWER_GRACE", 0.5)
    await sandboxed.works()
    async with Heart().beating() as heart, asyncio.timeout(2 * WAIT):
        await sandboxed.run(code, timeout=2)
        try:
            assert "2" in (await sandboxed.run("1 + 1", timeout=5)).splitlines()
        finally:
            await sandboxed.executor.reset()
        await sandboxed.works()
    table.append(Row(PLACE, request.node.callspec.id, "the executor works", heart.check()))
