"""Kernels of one sandbox, and the template that they are forked off: none of them reaches into another."""

import ast
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from ipybox import CodeExecutor
from ipybox.guest import landlock
from ipybox.kernel_mgr.client import KernelClient
from ipybox.kernel_mgr.server import KernelGateway
from tests.conftest import Mode
from tests.guest.landlock.test_process import version
from tests.guest.spares import until_spare
from tests.security import process_attacks
from tests.security.conftest import Row
from tests.security.kernels import Kernel, Probe, held, named
from tests.security.test_processes import SIGHT, SIGNALS

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.kernel]

#: Searches the writable memory of its own process for a word, whose halves it never joins: that would be a finding.
SEARCH = """
def search(head, tail):
    found = []
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", buffering=0) as memory:
        for line in maps:
            span, mode, *_ = line.split()
            if mode.startswith("rw"):
                start, end = (int(text, 16) for text in span.split("-"))
                while start < end:
                    memory.seek(start)
                    try:
                        part = memory.read(min(end - start, 1 << 24))
                    except OSError:
                        break
                    place = part.find(head)
                    while place >= 0:
                        if part[place + len(head) : place + len(head) + len(tail)] == tail:
                            found.append(line)
                        place = part.find(head, place + 1)
                    start += len(part)
    return found
"""


#: Leaves a secret in variables, the environment, a pipe, a temporary file without a name, a thread and traces.
KEEPS = """
import os, tempfile, threading, tracemalloc
tracemalloc.start()
secret = {head} + {tail}
os.environ["KEPT_SECRET"] = secret.decode()
reader, writer = os.pipe()
os.write(writer, secret)
file = tempfile.TemporaryFile(prefix="kept-")
file.write(secret)
file.flush()
stop = threading.Event()
threading.Thread(target=lambda kept: stop.wait(), args=(secret + b"!",), daemon=True).start()
print("kept")
"""

#: What a kernel could have of all that.
TRACES = """
import os, threading, tracemalloc
links = []
for name in os.listdir("/proc/self/fd"):
    try: links.append(os.readlink("/proc/self/fd/" + name))
    except OSError: pass
(tracemalloc.is_tracing(), tracemalloc.get_traced_memory(), "KEPT_SECRET" in os.environ,
    [link for link in links if "deleted" in link])
"""


@dataclass(frozen=True)
class Siblings:
    """Two kernels of one gateway.

    Attributes:
        attacker: Runs the attacks.
        victim: The other one.
        pid: The process id of the victim, as the attacker sees it.
    """

    attacker: Kernel
    victim: CodeExecutor
    pid: str


@asynccontextmanager
async def two_kernels(directory: Path, *, sandbox: bool) -> AsyncGenerator[Siblings]:
    async with (
        CodeExecutor(working_dir=directory, sandbox=sandbox) as victim,
        victim.sibling() as attacker,
    ):
        # The id of /proc, which can be of another namespace than that of system calls.
        pid = (await victim.execute("import os; print(os.readlink('/proc/self'))")).text
        await until_spare(victim, attacker)  # attacks on other processes find it, too
        yield Siblings(Kernel(attacker), victim, str(pid))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def siblings(tmp_path_factory: pytest.TempPathFactory, shared: None) -> AsyncIterator[tuple[Siblings, Siblings]]:
    """Without and with a sandbox."""
    async with AsyncExitStack() as stack:
        plain, sandboxed = [
            await stack.enter_async_context(two_kernels(tmp_path_factory.mktemp("workspace"), sandbox=sandbox))
            for sandbox in (False, True)
        ]
        yield plain, sandboxed


@named([probe for probe in SIGHT if probe.attack is not process_attacks.take_descriptors])
async def test_a_kernel_sees_nothing_of_its_sibling_or_of_the_template(
    probe: Probe, siblings: tuple[Siblings, Siblings], table: list[Row]
):
    plain, sandboxed = siblings
    outside = await plain.attacker.run(probe.attack, plain.pid, "ipybox.guest.kernel")
    assert outside.got is not None, f"the attack does not work where nothing stops it: {outside}"

    # The token is in no command line, so that each process is tried: template, gateway and sibling.
    within = await sandboxed.attacker.run(probe.attack, sandboxed.pid, secrets.token_hex(8))

    assert within.got is None, f"it works on other processes: {within}"
    held(table, "Siblings", probe, "worked", within)


@named(SIGNALS)
async def test_a_kernel_does_not_signal_its_sibling(
    probe: Probe, siblings: tuple[Siblings, Siblings], table: list[Row]
):
    if version() < landlock.ABI_SCOPES:
        pytest.skip("Landlock restricts signals since Linux 6.12")
    plain, sandboxed = siblings
    outside = await plain.attacker.run(probe.attack, plain.pid, "ipybox.guest.kernel")
    assert outside.got is not None, f"the attack does not work where nothing stops it: {outside}"
    await sandboxed.victim.execute(
        "import signal; hits = []; _ = signal.signal(signal.SIGURG, lambda *_: hits.append(1))"
    )

    within = await sandboxed.attacker.run(probe.attack, sandboxed.pid, secrets.token_hex(8))

    assert (await sandboxed.victim.execute("hits")).text == "[]"
    held(table, "Siblings", probe, "hit", "not hit" if within.got else within)


@pytest.mark.parametrize("which", [0, 1], ids=["plain", "sandbox"])
async def test_no_kernel_has_the_token_of_another_in_its_memory(siblings: tuple[Siblings, Siblings], which: int):
    """The first kernel of a gateway and a later one, which was forked when the first had its token."""
    kernels = siblings[which].victim, siblings[which].attacker.executor
    halves = [await token_halves(each) for each in kernels]
    assert halves[0] != halves[1]
    async with kernels[0].sibling() as third:
        await third.execute(SEARCH)
        own = await token_halves(third)
        found = [(await third.execute(f"len(search(*{each}))")).text for each in (*halves, own)]
    assert found[:2] == ["0", "0"]
    assert int(found[2] or 0) > 0


async def test_no_kernel_has_the_token_of_its_gateway(tmp_path: Path, mode: Mode):
    """The first kernel, whose template was forked off the gateway."""
    async with (
        KernelGateway(port=0, working_dir=tmp_path, sandbox=mode.sandbox, prespawn=True) as gateway,
        KernelClient(port=gateway.port or 0) as client,
    ):
        token = (gateway.token or "").encode()
        middle = len(token) // 2
        await client.execute(SEARCH)
        found = (await client.execute(f"len(search({token[:middle]}, {token[middle:]}))")).text
    assert (found, middle > 8) == ("0", True)


async def test_the_operating_system_shows_only_variables_of_the_kernel(siblings: tuple[Siblings, Siblings]):
    code = "shown = {entry.partition('=')[0] for entry in open('/proc/self/environ').read().split('\\0')}\n"
    for each in siblings:
        for kernel in (each.victim, each.attacker.executor):
            assert (await kernel.execute(f"import os\n{code}shown - os.environ.keys() - {{''}}")).text == "set()"


@pytest.mark.parametrize("which", [0, 1], ids=["plain", "sandbox"])
async def test_a_later_kernel_has_nothing_that_code_has_left_in_an_earlier_one(
    siblings: tuple[Siblings, Siblings], which: int
):
    """The spare kernel, which was forked while the other one had the secret, and one that is forked after it."""
    victim, attacker = siblings[which].victim, siblings[which].attacker.executor
    head, tail = secrets.token_hex(16).encode(), secrets.token_hex(16).encode()
    assert (await victim.execute(KEEPS.format(head=head, tail=tail))).text == "kept"
    await victim.execute(SEARCH)
    assert int((await victim.execute(f"len(search({head}, {tail}))")).text or 0) > 0
    await until_spare(victim, attacker)
    async with victim.sibling() as spare, victim.sibling() as forked:
        for later in (spare, forked):
            await later.execute(SEARCH)
            assert (await later.execute(f"len(search({head}, {tail}))")).text == "0"
            assert (await later.execute(TRACES)).text == "(False, (0, 0), False, [])"


async def token_halves(executor: CodeExecutor) -> list[bytes]:
    code = "import os; token = os.environb[b'TOOL_SERVER_TOKEN']; middle = len(token) // 2; "
    return ast.literal_eval((await executor.execute(code + "[token[:middle], token[middle:]]")).text or "")
