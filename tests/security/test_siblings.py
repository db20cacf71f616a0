"""Kernels of one sandbox, and the template that they are forked off: none of them reaches into another."""

import ast
import asyncio
import json
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
from ipybox.kernel_mgr.gateway import GatewaySetup
from ipybox.kernel_mgr.server import KernelGateway
from ipybox.sandbox.settings import load_settings
from tests.code_exec.cells import process_of
from tests.conftest import Mode
from tests.guest.landlock.test_process import version
from tests.guest.spares import until_spare
from tests.security import process_attacks
from tests.security.conftest import Row
from tests.security.kernels import Kernel, Probe, held, named
from tests.security.test_processes import CHANGES, SIGHT, SIGNALS, Victim, settings_of
from tests.servers import WAIT

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


#: What an attacker can find out about the kernels that it tries to reach: their ports, without or with keys. The last
#: one is the control: all that the gateway knows.
KNOWLEDGE = {
    "ports": "{name: known[name] for name in known if 'key' not in name}",
    "empty_key": "known | {'key': '', 'curve_publickey': None}",
    "own_keys": "known | own",
    "own_keys_of_the_channels": "known | {name: own[name] for name in own if name.startswith('curve')}",
    "key_of_messages": "{name: known[name] for name in known if not name.startswith('curve')}",
    "all": "known",
}

#: Tries to have another kernel run code, and to listen to what it says.
REACH = """
import json, os, time, zmq
from contextlib import suppress
from ipykernel.kernelapp import IPKernelApp
from jupyter_client import BlockingKernelClient

own = IPKernelApp.instance().get_connection_info()
own = {name: text.decode() if isinstance(text, bytes) else text for name, text in own.items() if "key" in name}

def reach(info, seconds):
    client = BlockingKernelClient()
    client.load_connection_info({name: value for name, value in info.items() if value is not None})
    client.start_channels(stdin=False, hb=False)
    try:
        for name in ("shell", "control"):
            request = {"code": "planted = 1", "silent": False, "user_expressions": {}, "allow_stdin": False}
            channel = getattr(client, name + "_channel")
            channel.socket.sndtimeo = 500  # after a refused handshake, nothing is left to send to
            with suppress(zmq.Again):
                channel.send(client.session.msg("execute_request", request))
        waiting, reached = zmq.Poller(), set()
        sockets = {getattr(client, name + "_channel").socket: name for name in ("shell", "control", "iopub")}
        for socket in sockets:
            waiting.register(socket, zmq.POLLIN)
        end = time.monotonic() + seconds
        while len(reached) < 2 and (found := waiting.poll(max(0, end - time.monotonic()) * 1000)):
            for socket, _ in found:
                reached.add(sockets[socket])
                waiting.unregister(socket)
        return sorted(reached)
    finally:
        client.stop_channels()
"""

#: Returns ports and keys of this kernel, as its gateway knows them.
KEYS = """
import json
from ipykernel.kernelapp import IPKernelApp
info = IPKernelApp.instance().get_connection_info()
print(json.dumps({name: text.decode() if isinstance(text, bytes) else text for name, text in info.items()}))
"""

#: Writes what IPython and Jupyter run, or take settings from, into every directory that kernels share.
LEAVES_FILES = """
import json, os
from pathlib import Path
code = "import builtins; builtins.planted = 1"
config = f"c = get_config(); c.InteractiveShellApp.exec_lines = [{code!r}]"
spec = {"argv": ["x"], "display_name": "x", "language": "python", "env": {"IPYTHONDIR": str(Path.cwd() / "ipython"),
    "PYTHONSTARTUP": str(Path.cwd() / "00.py"), "PLANTED": "1"}}
shared = Path(os.environ["IPYTHONDIR"]).parent.parent
directories = [shared, *(each for each in shared.rglob("*") if each.is_dir())]
directories += [shared / "ipython", Path.cwd() / "ipython", Path.cwd(), Path.home() / ".local/share/jupyter"]
for directory in directories:
    for place in (directory, directory / "profile_default"):
        (place / "startup").mkdir(parents=True, exist_ok=True)
        (place / "startup" / "00.py").write_text(code)
        (place / "00.py").write_text(code)
        for name in ("ipython", "ipython_kernel", "jupyter", "jupyter_kernel_gateway"):
            (place / f"{name}_config.py").write_text(config)
    kernel = directory / "kernels" / "python3"
    kernel.mkdir(parents=True, exist_ok=True)
    (kernel / "kernel.json").write_text(json.dumps(spec))
print(len(directories))
"""

#: Whether any of that had an effect.
HAS_PLANTED = """
import builtins, os
print(hasattr(builtins, "planted"), "planted" in globals(), "PLANTED" in os.environ,
    os.environ["IPYTHONDIR"] == os.path.join(os.getcwd(), "ipython"))
"""

#: Tries to change the program that pip runs in each kernel.
CHANGES_PIP = """
import os, shutil
from pathlib import Path
program = Path(os.environ["PIP_PYTHON"])
def attempt(what):
    try:
        return f"worked: {what()}"
    except OSError as error:
        return error.strerror
def replace():
    Path("other").write_text("x")
    os.replace("other", program)
print([attempt(what) for what in (lambda: program.write_text("x"), lambda: open(program, "r+"), program.unlink, replace,
    lambda: program.rename(program.with_name("other")), lambda: program.chmod(0o777),
    lambda: program.parent.rename(program.parent.with_name("other")), lambda: shutil.copy("other", program.parent))])
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


@named(CHANGES)
async def test_a_kernel_does_not_change_its_sibling_or_the_gateway(
    probe: Probe, siblings: tuple[Siblings, Siblings], tmp_path: Path, table: list[Row]
):
    plain, sandboxed = siblings
    other = Victim(tmp_path)
    try:
        outside = await plain.attacker.run(probe.attack, str(other.pid), other.token)
    finally:
        other.end()
    assert outside.got is not None, f"the attack does not work where nothing stops it: {outside}"
    processes = [await process_of(sandboxed.victim, which) for which in ("kernel", "gateway")]
    before = [settings_of(pid) for pid in processes]

    within = await sandboxed.attacker.run(probe.attack, sandboxed.pid, secrets.token_hex(8))

    assert [settings_of(pid) for pid in processes] == before
    assert within.got is None, f"it works on other processes: {within}"
    held(table, "Siblings", probe, "changed", within)


@pytest.mark.parametrize("knowledge", KNOWLEDGE)
async def test_a_kernel_neither_runs_code_in_another_nor_hears_it(
    knowledge: str, siblings: tuple[Siblings, Siblings], table: list[Row]
):
    """Also not in a spare kernel, with what its session has then."""
    sandboxed, seconds = siblings[1], WAIT if knowledge == "all" else 0.7
    attacker = sandboxed.attacker.executor
    await attacker.execute(REACH)
    async with sandboxed.victim.sibling() as spare:
        for victim in (sandboxed.victim, spare):
            known = (await victim.execute(f"planted = 0\n{KEYS}")).text
            attack = f"known = json.loads({known!r}); reach({KNOWLEDGE[knowledge]}, {seconds})"
            attacking = asyncio.create_task(attacker.execute(attack))
            while not attacking.done():
                await victim.execute("print('said')")
            reached, planted = (await attacking).text, (await victim.execute("planted")).text
            if knowledge == "all":
                assert (reached, planted) == ("['control', 'shell']", "1"), "the attack does not work"
            else:
                assert (reached, planted) == ("[]", "0")
    if knowledge != "all":
        table.append(Row("Siblings", f"ZeroMQ, with {knowledge}", "with all keys: reached", "not reached"))


@pytest.mark.parametrize("which", [0, 1], ids=["plain", "sandbox"])
async def test_no_file_that_kernels_share_contains_a_key(siblings: tuple[Siblings, Siblings], which: int):
    """Nor does the file that a kernel calls its own."""
    victim, attacker = siblings[which].victim, siblings[which].attacker.executor
    info = json.loads((await victim.execute(KEYS)).text or "")
    keys = [info[name] for name in info if "key" in name]
    assert len(keys) == (1 if which == 0 else 3)
    found = await attacker.execute(f"""
import os
from ipykernel.connect import get_connection_file
from pathlib import Path
shared = Path(os.environ["IPYTHONDIR"]).parent.parent
files = [each for each in shared.rglob("*") if each.is_file()]
found = [each for each in files for key in {keys} if key in each.read_text()]
print(len(files) > 1, Path(get_connection_file()) in files, found)
""")
    assert found.text == "True True []"


async def test_nothing_that_a_session_leaves_for_ipython_or_jupyter_runs_in_another(tmp_path: Path):
    """Not even where the settings let code write Jupyter's own directory. In the sandbox: else code has all rights."""
    home, workspace = tmp_path / "home", tmp_path / "workspace"
    for directory in (home / ".local/share/jupyter", workspace):
        directory.mkdir(parents=True)
    config = tmp_path / "sandbox.json"
    config.write_text(json.dumps({"filesystem": {"allowWrite": [".", str(home)]}}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        async with CodeExecutor(working_dir=workspace, sandbox=True, sandbox_config=config) as executor:
            await until_spare(executor)
            assert int((await executor.execute(LEAVES_FILES)).text or 0) > 5
            async with executor.sibling() as spare, executor.sibling() as forked:
                await executor.reset()
                for each in (executor, spare, forked):
                    assert (await each.execute(HAS_PLANTED)).text == "False False False False"


@pytest.mark.parametrize("which", [0, 1], ids=["plain", "sandbox"])
async def test_files_of_a_kernel_end_with_it(siblings: tuple[Siblings, Siblings], which: int):
    victim = siblings[which].victim
    async with victim.sibling() as ending:
        place = (await ending.execute("import os; print(os.path.dirname(os.environ['IPYTHONDIR']))")).text
        exists = f"os.path.exists({place!r})"
        assert (await victim.execute(f"import os; {exists}")).text == "True"
    async with asyncio.timeout(WAIT):
        while (await victim.execute(exists)).text != "False":
            pass


async def test_code_in_the_sandbox_can_not_change_the_program_that_pip_runs(siblings: tuple[Siblings, Siblings]):
    tried = ast.literal_eval((await siblings[1].attacker.executor.execute(CHANGES_PIP)).text or "")
    assert set(tried) <= {
        "Read-only file system",
        "Permission denied",
        "Device or resource busy",
        "Invalid cross-device link",
    }
    version = await siblings[1].victim.execute("!python -m pip --version")
    assert (version.text or "").startswith("pip ")


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
    setup = GatewaySetup(sandbox=load_settings() if mode.sandbox else None, spare_kernel=True)
    async with (
        KernelGateway(port=0, working_dir=tmp_path, setup=setup) as gateway,
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
            # The file has the copies of this kernel's own last output.
            assert (await later.execute(TRACES)).text == "(False, (0, 0), False, ['/memfd:ipybox-output (deleted)'])"


async def token_halves(executor: CodeExecutor) -> list[bytes]:
    code = "import os; token = os.environb[b'TOOL_SERVER_TOKEN']; middle = len(token) // 2; "
    return ast.literal_eval((await executor.execute(code + "[token[:middle], token[middle:]]")).text or "")
