"""Probes over our own boundary: what crosses it from a sandboxed kernel, or from whoever takes the gateway's place.

An attack on the host's data or programs runs in a plain kernel first, where it has to succeed. For attacks on the host
process itself the control is that honest use is answered, before and after.
"""

import asyncio
import gc
import json
import os
import re
import select
import shlex
import shutil
import signal
import socket
import struct
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ipybox import ApprovalRequest, CodeExecutionError, CodeExecutionResult, CodeExecutor, generate_mcp_sources
from ipybox.endpoint import Endpoint
from ipybox.errors import IpyboxError
from ipybox.kernel_mgr import client as kernel_client
from ipybox.kernel_mgr import link as link_module
from ipybox.kernel_mgr.client import KernelClient
from ipybox.kernel_mgr.link import Link
from ipybox.sandbox.launch import Sandbox
from ipybox.sandbox.settings import load_settings
from ipybox.state import scratch_root, state_dir
from ipybox.tool_exec.server import MAX_GUEST_CONNECTIONS, ToolServer
from tests import servers
from tests.security import guests
from tests.security.conftest import Row
from tests.servers import WAIT

# Not for an ordinary user: their processes together can have no more descriptors on their way than one may open, which
# the plain kernel uses up for all that follows.
pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 1 << 20
SECRET = "the-secret-of-the-host"

#: Seconds that the host's event loop may stand still, on a machine that is busy with the attack itself, and in CI with
#: other tests, too. What would block the loop blocks it for minutes, or for good.
MAX_STALL = 3.0

#: The same where as much comes at once as may: a message of 256 MiB, an image of 150 MiB, three million values.
MAX_STALL_OF_LARGE = 10.0

#: Bytes by which the host may grow under an attack, at its peak.
MAX_GROWTH = 512 * MIB
MAX_GROWTH_OF_LARGE = 1024 * MIB

# The two sides


@dataclass
class Side:
    """A kernel, and what an attack from there may hit."""

    executor: CodeExecutor
    workspace: Path
    elsewhere: Path
    outside: Path
    port: int
    door: "Door"
    sandboxed: bool

    @property
    def mark(self) -> Path:
        """What a program makes that was run on the host."""
        return self.outside / "mark"

    def clear(self) -> None:
        """Undoes what an attack has left."""
        shutil.rmtree(self.outside)
        self.outside.mkdir()
        self.door.visits = 0

    async def run(self, code: str, timeout: float = WAIT) -> str:
        """Executes code and returns its output, or its error."""
        given = f"import guests, json, os\nOUTSIDE, PORT, DOOR = {str(self.outside)!r}, {self.port}, {self.door.port}\n"
        try:
            return (await self.executor.execute(given + code, timeout)).text or ""
        except (CodeExecutionError, TimeoutError, OSError) as exc:
            return f"{getattr(exc, 'text', None) or ''}\n{exc}"

    async def works(self) -> None:
        """Fails unless the executor executes code and honest calls."""
        assert "2" in (await self.run("1 + 1")).splitlines()  # beside what threads of an attack still print
        assert "hello" in await self.run("print(guests.call_registered('scripted'))")


class Door:
    """A port of the host that tells whether somebody came."""

    def __init__(self) -> None:
        self.visits = 0
        self.port = 0

    @asynccontextmanager
    async def open(self) -> AsyncGenerator["Door"]:
        def visit(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.visits += 1
            writer.close()

        async with await asyncio.start_server(visit, "127.0.0.1", 0) as server:
            self.port = server.sockets[0].getsockname()[1]
            yield self


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, shared: None) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("home")
        (home / ".npmrc").write_text("offline=true\nupdate-notifier=false\n")
        patch.setenv("HOME", str(home))
        patch.setenv("HOST_SECRET", SECRET)
        yield


@asynccontextmanager
async def side(directory: Path, *, sandboxed: bool) -> AsyncGenerator[Side]:
    workspace, elsewhere, outside = (directory / name for name in ("workspace", "elsewhere", "outside"))
    for each in (workspace, workspace / "conf", elsewhere, outside):
        each.mkdir()
    shutil.copy(guests.__file__, workspace)
    (workspace / "conf" / "sandbox.json").write_text("{}")
    registered = {
        "scripted": servers.scripted(),
        "secret": servers.scripted() | {"env": {"VALUE": "${HOST_SECRET}"}},
        "marker": marker(outside),
        "relative": {"command": "/bin/sh", "args": ["-c", "touch mark"], "cwd": str(workspace)},
        "remote": {"url": "http://127.0.0.1:9/mcp"},
    }
    for place in (workspace, elsewhere):
        sealed = {
            name: {"params": params, "seal": servers.registered(name, params, place / "mcptools")}
            for name, params in registered.items()
        }
        (workspace / ("registered.json" if place is workspace else "elsewhere.json")).write_text(json.dumps(sealed))
    await generate_mcp_sources("tools", servers.scripted(), workspace / "mcptools")
    before = set(_token_files())
    async with (
        Door().open() as door,
        CodeExecutor(
            working_dir=workspace,
            images_dir=workspace / "pictures",
            sandbox=sandboxed,
            sandbox_config=workspace / "conf" / "sandbox.json" if sandboxed else None,
            tool_server_port=0,
            connect_timeout=5,
        ) as executor,
    ):
        (file,) = set(_token_files()) - before
        port = int(re.findall(r"\d+", file.name)[-1])
        yield Side(executor, workspace, elsewhere, outside, port, door, sandboxed)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plain(tmp_path_factory: pytest.TempPathFactory, environment: None) -> AsyncIterator[Side]:
    async with side(tmp_path_factory.mktemp("plain"), sandboxed=False) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandboxed(tmp_path_factory: pytest.TempPathFactory, environment: None) -> AsyncIterator[Side]:
    async with side(tmp_path_factory.mktemp("sandboxed"), sandboxed=True) as made:
        yield made


def marker(outside: Path) -> dict[str, Any]:
    """A server that is no server, but leaves a mark that it was run."""
    return {"command": "/bin/sh", "args": ["-c", f"touch {outside}/mark"]}


def _token_files() -> list[Path]:
    return list(Path(os.environ["JUPYTER_RUNTIME_DIR"]).glob("ipybox-tool-server-*.json"))


class Heart:
    """Measures the longest stall of the event loop and the peak of this process's memory, from `beating` on."""

    def __init__(self) -> None:
        self.stall = 0.0
        self._base = 0

    @asynccontextmanager
    async def beating(self) -> AsyncGenerator["Heart"]:
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        self._base = _status("VmRSS")
        loop = asyncio.get_running_loop()
        last = loop.time()

        def beat() -> None:
            nonlocal last, handle
            now = loop.time()
            self.stall, last = max(self.stall, now - last), now
            handle = loop.call_later(0.01, beat)

        handle = loop.call_later(0.01, beat)
        try:
            yield self
        finally:
            handle.cancel()
            self.stall = max(self.stall, loop.time() - last)

    @property
    def growth(self) -> int:
        """Bytes between the memory at the start and its peak."""
        return max(0, _status("VmHWM") - self._base)

    def check(self, *, large: bool = False) -> str:
        """Returns what was measured, if it is within the bounds."""
        said = f"stall {self.stall * 1000:.0f} ms, +{self.growth / MIB:.0f} MiB"
        assert self.stall < (MAX_STALL_OF_LARGE if large else MAX_STALL), f"the event loop stood still: {said}"
        assert self.growth < (MAX_GROWTH_OF_LARGE if large else MAX_GROWTH), f"the host has grown: {said}"
        return said


def _status(name: str) -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) << 10


# What must not cross the boundary


def marked(side: Side, _: str) -> bool:
    return side.mark.exists()


def visited(side: Side, _: str) -> bool:
    return side.door.visits > 0


def revealed(_: Side, text: str) -> bool:
    return SECRET in text


def answered(_: Side, text: str) -> bool:
    return guests.REACHED in text


@dataclass(frozen=True)
class Probe:
    """Code of a kernel, and how to tell on the host that it has reached what it wants."""

    area: str
    name: str
    code: str
    reached: Callable[[Side, str], bool] = marked
    prepare: Callable[[Side], None] = field(default=lambda _: None)
    outcome: str = "refused"


PARAMS = "launch parameters"
SENDS = """
params, seal = guests.registered()[NAME].values()
print(guests.call(NAME, {**params, **CHANGE}, seal, tool=TOOL))
"""


def changed(name: str, change: str, tool: str = "echo") -> str:
    return SENDS.replace("NAME", repr(name)).replace("CHANGE", change).replace("TOOL", repr(tool))


def edit_package(side: Side) -> None:
    shutil.copytree(side.workspace / "mcptools" / "tools", side.workspace / "edited", dirs_exist_ok=True)


PROBES_OF_PARAMS = [
    Probe(
        PARAMS,
        "parameters that nobody has registered",
        "print(guests.call('new', {'command': '/bin/sh', 'args': ['-c', f'touch {OUTSIDE}/mark']}, None))",
    ),
    Probe(
        PARAMS,
        "another command under a registered seal",
        changed("scripted", "{'command': '/bin/sh', 'args': ['-c', f'touch {OUTSIDE}/mark']}"),
    ),
    Probe(PARAMS, "other arguments", changed("relative", "{'args': ['-c', f'touch {OUTSIDE}/mark']}")),
    Probe(
        PARAMS,
        "another argument at the end",
        changed("scripted", "{'args': [*params['args'], '--log', f'{OUTSIDE}/mark']}"),
    ),
    Probe(
        PARAMS,
        "an environment that makes the interpreter run a planted module",
        "os.makedirs('planted', exist_ok=True)\n"
        "open('planted/json.py', 'w').write(f\"open('{OUTSIDE}/mark', 'w')\")\n"
        + changed("scripted", "{'env': {'PYTHONPATH': os.path.abspath('planted')}}"),
    ),
    Probe(PARAMS, "another working directory", changed("relative", "{'cwd': OUTSIDE}")),
    Probe(
        PARAMS,
        "a URL in place of a command",
        "print(guests.call('scripted', {'url': f'http://127.0.0.1:{DOOR}/mcp'},"
        " guests.registered()['scripted']['seal']))",
        visited,
    ),
    Probe(PARAMS, "another URL", changed("remote", "{'url': f'http://127.0.0.1:{DOOR}/mcp'}"), visited),
    Probe(
        PARAMS,
        "headers with a secret of the host for another URL",
        changed("remote", "{'url': f'http://127.0.0.1:{DOOR}/mcp', 'headers': {'X': '${HOST_SECRET}'}}"),
        visited,
    ),
    Probe(
        PARAMS,
        "a package that was edited on disk",
        """
import importlib, pathlib, sys
file = pathlib.Path("edited/__init__.py")
file.write_text(file.read_text().replace("CLIENT = ", f"_ = ") + f'''
SHELL = {{"command": "/bin/sh", "args": ["-c", "touch {OUTSIDE}/mark"]}}
CLIENT = ToolRunner.from_env("tools", SHELL, vars(_)["_seal"])
''')
sys.modules.pop("edited", None); importlib.invalidate_caches()
import edited
edited.CLIENT.run_sync("echo", {"text": "x"})
""",
        prepare=edit_package,
    ),
    Probe(
        PARAMS,
        "a package of another workspace",
        "entry = json.load(open('elsewhere.json'))['marker']\n"
        "print(guests.call('marker', entry['params'], entry['seal']))",
    ),
    Probe(
        PARAMS,
        "a package of another workspace whose seal's place climbs there",
        """
entry = json.load(open("elsewhere.json"))["marker"]
mac = entry["seal"].rpartition(":")[2]
elsewhere = os.path.join(os.path.dirname(os.getcwd()), "elsewhere", "mcptools")
os.path.lexists("way") or os.symlink(os.path.dirname(elsewhere), "way")
for place in ("../elsewhere/mcptools", elsewhere, "./../elsewhere/mcptools", "x/../../elsewhere/mcptools",
              "way/mcptools", "//" + elsewhere,
              "", "/" * 100_000, "a/" * 100_000, "mcptools\\0/../..", "..\\\\elsewhere"):
    print(guests.call("marker", entry["params"], f"{place}:{mac}")[:200])
""",
    ),
    Probe(
        PARAMS,
        "the seal of another server",
        "guests.tell('hello' in guests.call('relative', guests.registered()['scripted']['params'],"
        " guests.registered()['scripted']['seal']))",
        answered,
    ),
    Probe(
        PARAMS,
        "a seal made in the kernel",
        """
import pathlib
from ipybox.tool_exec.seal import seal
params = {"command": "/bin/sh", "args": ["-c", f"touch {OUTSIDE}/mark"]}
for state in (os.environ.get("XDG_STATE_HOME"), STATE, os.path.expanduser("~/.local/state")):
    if state:
        os.environ["XDG_STATE_HOME"] = state
        try:
            made = seal("new", params, pathlib.Path.cwd() / "mcptools")
        except OSError as exc:
            print(exc)
        else:
            print(guests.call("new", params, made))
""",
    ),
    Probe(
        PARAMS,
        "a variable of the host smuggled into the arguments",
        changed("scripted", "{'env': {'STOLEN': '${HOST_SECRET}'}}", "env"),
        revealed,
    ),
    Probe(
        PARAMS,
        "a variable of the host smuggled into a server's own words",
        changed("scripted", "{'command': '/bin/sh', 'args': ['-c', 'echo ${HOST_SECRET} | rev >&2; exit 1']}"),
        lambda _, text: SECRET[::-1] in text,
    ),
]

BESIDE = "servers beside the sandbox"
BESIDE_SERVERS: dict[str, dict[str, Any]] = {
    "module": {"command": sys.executable, "args": ["-m", "mcp_server_time"]},
}
PLANTED = """
import pathlib
pathlib.Path("json.py").write_text(f"open('{OUTSIDE}/mark', 'w').close(); raise SystemExit")
"""
CALLS_BESIDE = """
try:
    print(guests.call_registered(NAME))
finally:
    os.unlink("json.py")
"""


def register_beside(name: str) -> Callable[[Side], None]:
    def prepare(side: Side) -> None:
        file = side.workspace / "registered.json"
        params = BESIDE_SERVERS[name] | {"cwd": str(side.workspace)}
        if not side.sandboxed:  # where ipybox does the same for servers, so that the control goes behind its back
            words = shlex.join([params["command"], *params["args"]])
            params |= {"command": "/bin/sh", "args": ["-c", f"PYTHONSAFEPATH= {words}"]}
        entry = {"params": params, "seal": servers.registered(name, params, side.workspace / "mcptools")}
        file.write_text(json.dumps(json.loads(file.read_text()) | {name: entry}))

    return prepare


def beside(name: str, planted: str) -> Probe:
    code = PLANTED + CALLS_BESIDE.replace("NAME", repr(name))
    return Probe(BESIDE, planted, code, prepare=register_beside(name), outcome="not run")


PROBES_BESIDE = [
    beside("module", "json.py for a server that is a Python module"),
]

ROUTES = "routes of the application"
FINDS_TOKEN = "token = guests.application_token(PORT) or os.environ['TOOL_SERVER_TOKEN']\n"
BOTH_PORTS = """
def everywhere(data):
    return guests.application_sends(PORT, data) + guests.raw(data)
"""


def server_gone(_: Side, text: str) -> bool:
    return not servers.is_alive(int(text.split()[0]))


STARTS = "print(json.loads(guests.call_registered('scripted', 'pid', {}))['content'][0]['text'])\n"

PROBES_OF_ROUTES = [
    Probe(
        ROUTES,
        "reset",
        STARTS
        + FINDS_TOKEN
        + BOTH_PORTS
        + "print(everywhere(guests.head('PUT', '/reset', Authorization=f'token {token}', Content_Length='0')))",
        server_gone,
    ),
    Probe(
        ROUTES,
        "reset hidden in another request, or spelled otherwise",
        STARTS + FINDS_TOKEN + BOTH_PORTS + "for data in guests.smuggled('PUT', '/reset', f'token {token}'):\n"
        "    print(everywhere(data)[:60])",
        server_gone,
    ),
    Probe(
        ROUTES,
        "status",
        FINDS_TOKEN
        + BOTH_PORTS
        + "guests.tell('approval_client' in everywhere(guests.head('GET', '/status', Authorization=f'token {token}'))"
        ")",
        answered,
    ),
    Probe(
        ROUTES,
        "the approval channel",
        FINDS_TOKEN
        + BOTH_PORTS
        + "said = everywhere(guests.upgrade('/approval', f'token {token}'))\n"
        + "guests.tell('another approval client' in said or ' 101 ' in said)",
        answered,
    ),
]

HELD = "what the host holds"
PLACE = "in the gateway's place"
PROBES_OF_WHAT_IS_HELD = [
    Probe(
        HELD,
        "the application's token",
        "guests.tell(guests.application_token(PORT))",
        answered,
        outcome="not readable",
    ),
    Probe(
        HELD,
        "descriptors of the gateway in /proc",
        "guests.tell(os.readlink(f'/proc/{guests.parent()}/fd/1'))",
        answered,
        outcome="not readable",
    ),
    Probe(
        HELD,
        "the link stolen from another process",
        "guests.tell(guests.steal_links())",
        answered,
        outcome="none can be had",
    ),
    Probe(
        HELD,
        "the memory of other processes",
        """
reached = False
for entry, _ in guests.others():
    try:
        with open(entry / "maps") as maps, open(entry / "mem", "rb+", 0) as memory:
            memory.seek(int(maps.readline().partition("-")[0], 16))
            reached = memory.read(4) == b"\x7fELF" or reached
    except OSError:
        pass
guests.tell(reached)
""",
        answered,
        outcome="not readable",
    ),
    Probe(
        HELD,
        "the settings of the sandbox in the workspace",
        """
open("conf/sandbox.json", "w").write('{"filesystem": {"allowWrite": ["/"]}}')
""",
        lambda side, _: (side.workspace / "conf" / "sandbox.json").read_text() != "{}",
        outcome="not writable",
    ),
    Probe(
        HELD,
        "the settings of the sandbox, by moving their directory away",
        """
if os.path.exists("conf/sandbox.json"):
    os.rename("conf", "moved")
os.makedirs("conf", exist_ok=True)
open("conf/sandbox.json", "w").write('{"filesystem": {"allowWrite": ["/", "moved"]}}')
""",
        lambda side, _: "moved" in (side.workspace / "conf" / "sandbox.json").read_text(),
        prepare=lambda side: shutil.rmtree(side.workspace / "moved", ignore_errors=True),
        outcome="not movable",
    ),
    Probe(
        HELD,
        ".env, which the host reads at its next start",
        """
for attempt in (lambda: open(".env", "w").write("X=1"), lambda: os.unlink(".env"),
                lambda: (open("new", "w").write("X=1"), os.replace("new", ".env")), lambda: os.symlink("new", ".env")):
    try:
        attempt()
    except OSError as exc:
        print(exc)
""",
        lambda side, _: (side.workspace / ".env").exists() and (side.workspace / ".env").read_text() != "",
        outcome="not writable",
    ),
    Probe(
        HELD,
        "ipybox's own directory of the workspace",
        """
os.makedirs(".ipybox", exist_ok=True)
for attempt in (lambda: os.makedirs(".ipybox/packages/numpy"), lambda: os.rename(".ipybox", "moved"),
                lambda: os.symlink(OUTSIDE, ".ipybox/link")):
    try:
        attempt()
        guests.tell(True)
    except OSError as exc:
        print(exc)
""",
        answered,
        outcome="not writable",
    ),
    Probe(
        HELD,
        "a directory of images that leads elsewhere",
        """
import base64, shutil
shutil.rmtree("pictures", ignore_errors=True)
os.path.islink("pictures") or os.symlink(OUTSIDE, "pictures")
display({"image/png": base64.b64encode(b"planted").decode()}, raw=True)
""",
        lambda side, _: any(side.outside.glob("*.png")),
        prepare=lambda side: (
            (side.workspace / "pictures").unlink(missing_ok=True)
            if (side.workspace / "pictures").is_symlink()
            else None
        ),
        outcome="not followed",
    ),
]


PROBES = [*PROBES_OF_PARAMS, *PROBES_BESIDE, *PROBES_OF_ROUTES, *PROBES_OF_WHAT_IS_HELD]


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


# Approvals


async def decided(side: Side, code: str, *decisions: bool | None) -> tuple[str, int]:
    """Executes code and accepts, rejects or ignores its calls in turn; returns its text and the number of requests."""
    pending, requests = list(decisions), 0
    given = f"import guests, json, os, threading, time\nOUTSIDE = {str(side.outside)!r}\n"
    try:
        async for item in side.executor.stream(given + code, WAIT):
            match item:
                case ApprovalRequest():
                    requests += 1
                    match pending.pop(0) if pending else None:
                        case True:
                            await item.accept()
                        case False:
                            await item.reject()
                        case None:
                            pass
                case CodeExecutionResult():
                    return item.text or "", requests
                case _:
                    pass
    except CodeExecutionError as exc:
        return f"{exc.text or ''}\n{exc}", requests
    raise AssertionError("unreachable: a stream ends with its result")


APPROVALS = "approvals"
HONEST_CALL = "print(guests.call_registered('marker'))\n"

FORGED = """
answers = [{"jsonrpc": "2.0", "id": id, "result": True} for id in ("", "0", 0, None, "x", True)]
def forge():
    for answer in answers:
        for path in ("/run", "/approval"):
            for method in ("POST", "PUT", "GET"):
                guests.request(method, path, json.dumps(answer).encode())
    for data in (json.dumps(answers[0]).encode(), b"HTTP/1.1 200 OK\\r\\nContent-Length: 4\\r\\n\\r\\ntrue"):
        guests.raw(data + b"\\r\\n\\r\\n")
    print("forged")
    answered.wait(0)
answered = threading.Event()
calling = threading.Thread(target=lambda: print(guests.call_registered("marker")))
calling.start()
forge()
guests.release()
calling.join()
"""


@pytest.mark.parametrize("code", [HONEST_CALL, FORGED.replace("guests.release()", "")], ids=["honest", "forged"])
async def test_a_rejected_call_does_not_run(sandboxed: Side, table: list[Row], code: str) -> None:
    sandboxed.clear()
    _, requests = await decided(sandboxed, HONEST_CALL, True)
    assert (requests, sandboxed.mark.exists()) == (1, True)
    sandboxed.clear()
    text, requests = await decided(sandboxed, code, False)

    assert "was rejected" in text
    assert (requests, sandboxed.mark.exists()) == (1, False)
    await sandboxed.works()
    name = "a call whose approval is forged on the tool port" if code != HONEST_CALL else "a call that was rejected"
    table.append(Row(APPROVALS, name, "runs if accepted", "not run"))


async def test_a_call_after_a_reject_is_asked_for_again(sandboxed: Side, table: list[Row]) -> None:
    sandboxed.clear()
    text, requests = await decided(sandboxed, HONEST_CALL * 3, False, False, False)

    assert (text.count("was rejected"), requests, sandboxed.mark.exists()) == (3, 3, False)
    _, requests = await decided(sandboxed, HONEST_CALL * 2, True, False)
    assert (requests, sandboxed.mark.exists()) == (2, True)
    await sandboxed.works()
    table.append(Row(APPROVALS, "the same call again, after it was rejected", "runs if accepted", "asked for again"))


async def test_what_the_application_approves_is_what_runs(sandboxed: Side, table: list[Row]) -> None:
    """The same key twice, and names that differ in case or form only, must not show one thing and run another."""
    code = """
entry = guests.registered()["scripted"]
body = json.dumps({"server_name": "scripted", "server_params": entry["params"], "seal": entry["seal"],
                   "tool_name": "refuse", "tool_args": {"text": "shown"}})
body = body[:-1] + ', "tool_name": "echo", "tool_args": {"text": "${HOST_SECRET}"}}'
print(guests.post(body.encode()))
"""
    shown: list[tuple[str, dict[str, Any]]] = []
    text = ""
    given = "import guests, json\n"
    async for item in sandboxed.executor.stream(given + code, WAIT):
        if isinstance(item, ApprovalRequest):
            shown.append((item.tool_name, item.tool_args))
            await item.accept()
        elif isinstance(item, CodeExecutionResult):
            text = item.text or ""

    assert shown == [("echo", {"text": "${HOST_SECRET}"})]
    assert "${HOST_SECRET}" in text
    assert SECRET not in text
    table.append(Row(APPROVALS, "a variable of the host in a tool's arguments", "resolved in params", "not resolved"))


async def test_a_call_while_no_cell_runs_is_refused(sandboxed: Side, table: list[Row]) -> None:
    sandboxed.clear()
    for name in ("go", "done"):
        with suppress(FileNotFoundError):
            (sandboxed.workspace / name).unlink()
        os.mkfifo(sandboxed.workspace / name)
    code = """
def later():
    open("go").read()
    said = guests.call_registered("marker")
    open("done", "w").write(said)
import threading
threading.Thread(target=later, daemon=True).start()
"""
    await sandboxed.run(code)
    async with asyncio.timeout(WAIT):
        await asyncio.to_thread((sandboxed.workspace / "go").write_text, "go")
        said = await asyncio.to_thread((sandboxed.workspace / "done").read_text)

    assert "while no code was being executed" in said
    assert not sandboxed.mark.exists()
    await sandboxed.works()
    table.append(Row(APPROVALS, "a call between cells", "runs if accepted in a cell", "refused"))


async def test_a_call_that_outlives_its_cell_is_not_accepted_by_the_next_one(sandboxed: Side, table: list[Row]) -> None:
    sandboxed.clear()
    code = """
calling = threading.Thread(target=lambda: guests.call_registered("marker"), daemon=True)
calling.start()
calling.join(0.3)
"""
    _, requests = await decided(sandboxed, code)
    assert requests == 1
    await sandboxed.works()  # accepts all requests of its own

    assert not sandboxed.mark.exists()
    table.append(Row(APPROVALS, "a call that waits when the next cell accepts all", "runs if accepted", "not run"))


# The tool port


PORT_AREA = "the tool port"
MANY = """
import concurrent.futures
def each(count, action):
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(action, range(count)))
"""
HONEST_BODY = """
entry = guests.registered()["scripted"]
body = json.dumps({"server_name": "scripted", "server_params": entry["params"], "seal": entry["seal"],
                   "tool_name": "echo", "tool_args": {"text": ""}})
"""
PORT_ATTACKS: dict[str, str] = {
    "a head of 100 MiB": "guests.raw(guests.head(X='a')[:-2] + b'Y: ' + b'a' * (100 << 20))",
    "a million header lines": "guests.raw(guests.head()[:-2] + b'A: b\\r\\n' * 1_000_000)",
    "a request line of 100 MiB": "guests.raw(b'GET /' + b'a' * (100 << 20))",
    "a chunked body without end": "guests.raw(guests.head(Transfer_Encoding='chunked'),"
    " *[b'100000\\r\\n' + bytes(1 << 20) + b'\\r\\n'] * 400)",
    "chunks of one byte": "guests.raw(guests.head(Transfer_Encoding='chunked'),"
    " b'1\\r\\na\\r\\n' * 500_000 + b'0\\r\\n\\r\\n')",
    "a chunk extension without end": "guests.raw(guests.head(Transfer_Encoding='chunked'),"
    " b'1;' + b'a' * (20 << 20) + b'\\r\\na\\r\\n0\\r\\n\\r\\n')",
    "a body of 1 GiB": "guests.raw(guests.head(Content_Length=str(1 << 30)), *[bytes(1 << 20)] * 200)",
    "bodies of 60 MiB, 8 at once": MANY + "each(8, lambda _: guests.post(b' ' * (60 << 20)))",
    "calls of 8 MiB, 12 at once": MANY + HONEST_BODY + "body = body[:-3].encode() + b'x' * (8 << 20) + b'\"}}'\n"
    "each(12, lambda _: guests.post(body))",
    "large bodies that never arrive": "kept = [guests.connect() for _ in range(50)]\n"
    "for each in kept: each.sendall(guests.head(Content_Length=str(60 << 20)) + b'{')",
    "a content length of 1 GiB and no body": "kept = [guests.connect() for _ in range(50)]\n"
    "for each in kept: each.sendall(guests.head(Content_Length=str(1 << 30)))",
    "a content length beyond all numbers": "guests.raw(guests.head(Content_Length='9' * 5000), b'{}')",
    "a negative content length": "guests.raw(guests.head(Content_Length='-1'), b'{}')",
    "JSON that is nested ten million times": "guests.post(b'[' * 10_000_000)",
    "JSON of nearly three million empty lists, 4 at once": MANY
    + "each(4, lambda _: guests.post(b'[' + b'[],' * 1_490_000 + b'[]]'))",
    "JSON of ten million empty lists": "guests.post(b'[' + b'[],' * 10_000_000 + b'[]]')",
    "JSON with numbers of ten million digits": "guests.post(b'[' + b'9' * 10_000_000 + b']')",
    "JSON with a fraction of ten million digits": "guests.post(b'[0.' + b'9' * 10_000_000 + b']')",
    "text that is no UTF-8": "guests.post(bytes(range(256)) * 1000)",
    "a character set that is slow to decode": "guests.raw(guests.head(Content_Length=str((3 << 18) + 1),"
    " Content_Type='application/json; charset=punycode'), b'a' * (1 << 18) + b'-' + b'9a' * (1 << 18))",
    "a character set that does not exist": "guests.raw(guests.head(Content_Length='2',"
    " Content_Type='application/json; charset=nonsense'), b'{}')",
    "a compressed body that grows a thousandfold": "import gzip\n"
    "for method in ('gzip', 'deflate', 'br', 'zstd'):\n"
    "    guests.post(gzip.compress(bytes(1 << 27)), Content_Encoding=method)",
    "lone surrogates in every name": "guests.post(json.dumps({'server_name': '\\ud800',"
    " 'server_params': {'a': '\\ud800'}, 'seal': '\\ud800:\\ud800',"
    " 'tool_name': '\\ud800', 'tool_args': {'\\ud800': '\\ud800'}}).encode())",
    "arguments that are nested to any depth": """
entry = guests.registered()["scripted"]
head = json.dumps({"server_name": "scripted", "server_params": entry["params"], "seal": entry["seal"],
                   "tool_name": "echo"})[:-1]
for depth in range(800, 1000, 10):
    said = guests.post((head + ', "tool_args": {"text": ' + "[" * depth + "]" * depth + "}}").encode())
    assert said, depth
""",
    "a hundred thousand pipelined requests": "guests.raw(guests.head('GET', '/') * 100_000)",
    "half requests that stay": "kept = [guests.connect() for _ in range(200)]\n"
    "for each in kept: each.sendall(guests.head()[:20])",
    "answers that nobody reads": """
kept = []
entry = guests.registered()["scripted"]
body = json.dumps({"server_name": "scripted", "server_params": entry["params"], "seal": entry["seal"],
                   "tool_name": "echo", "tool_args": {"text": "x" * (4 << 20)}}).encode()
for _ in range(8):
    kept.append(guests.connect())
    kept[-1].sendall(guests.head(Content_Length=str(len(body))) + body)
""",
    "two thousand connections, one after the other": "for _ in range(2000): guests.connect().close()",
    "bytes that are no HTTP": "for _ in range(50): guests.raw(os.urandom(1 << 16))",
    "TLS": "guests.raw(bytes.fromhex('160301020001') + os.urandom(600))",
    "HTTP/2": "guests.raw(b'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n' + os.urandom(100))",
    "an upgrade to a WebSocket, and frames": "guests.raw(guests.upgrade('/run', 'token x') + b'\\xff' * 100_000)",
    "a header value with line ends": "guests.raw(guests.head("
    "X='a\\r\\n\\r\\nPUT /reset HTTP/1.1\\r\\nHost: localhost'))",
    "a foreign Host, Origin or token": """
for headers in ({"Host": "evil.example"}, {"Host": "localhost.evil.example"}, {"Host": "127.0.0.1@evil.example"},
                {"Origin": "http://localhost"}, {"Origin": "null"}, {"Authorization": "token x"},
                {"Authorization": ""}):
    status, _ = guests.request("POST", "/run", b"{}", **headers)
    assert status in (401, 403), (status, headers)
""",
    "routes that install, register or list": """
for path in ("/install_package", "/register_mcp_server", "/register", "/api/kernels", "/execute", "/", "/run/../status",
             "/approval/", "/RUN"):
    for method in ("GET", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE"):
        status, _ = guests.request(method, path, b'{"package_name": "x"}')
        assert status in (400, 403, 404, 405), (status, method, path)
""",
}


@pytest.mark.parametrize("name", PORT_ATTACKS)
async def test_the_tool_port_bears(name: str, sandboxed: Side, table: list[Row]) -> None:
    await sandboxed.works()
    async with Heart().beating() as heart:
        text = await sandboxed.run(f"{PORT_ATTACKS[name]}\nguests.tell(True)")
        assert guests.REACHED in text, f"the attack did not take place: {text}"
        await sandboxed.works()
        await sandboxed.run("kept = None")
    table.append(Row(PORT_AREA, name, "an honest call is answered", heart.check(large=name in LARGE)))


async def test_a_kernel_gets_no_more_connections_than_it_may_have(sandboxed: Side, table: list[Row]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    code = f"""
import select
kept = [guests.connect() for _ in range({MAX_GUEST_CONNECTIONS} + 300)]
for each in kept:
    try: each.sendall(guests.head()[:20])
    except OSError: pass
"""
    async with Heart().beating() as heart:
        text = await sandboxed.run(code)
        assert "Traceback" not in text
        assert len(os.listdir("/proc/self/fd")) - before < MAX_GUEST_CONNECTIONS + 50
        await sandboxed.run("for each in kept: each.close()\ndel kept")
        await sandboxed.works()
    table.append(Row(PORT_AREA, "more connections than it may have", "an honest call is answered", heart.check()))


# Messages that kernel code sends itself


MESSAGES = "messages of the kernel"
MESSAGE_ATTACKS: dict[str, str] = {
    "another cell's parent": "guests.publish('stream', {'name': 'stdout', 'text': 'FORGED'}, parent={'msg_id': 'x'})",
    "a parent that is no text": "for id in (1, None, [], {}, 'x' * 10_000_000):\n"
    "    guests.publish('stream', {'name': 'stdout', 'text': 'FORGED'}, parent={'msg_id': id, 'header': {}})",
    "the end of the kernel": "guests.publish('status', {'execution_state': 'dead'})",
    "the end of the cell": "guests.publish('status', {'execution_state': 'idle'})\n"
    "guests.reply('execute_reply', {'status': 'ok'})\nimport time\ntime.sleep(0.5)",
    "comms": "for kind in ('comm_open', 'comm_msg', 'comm_close'):\n"
    "    guests.publish(kind, {'comm_id': 'x', 'target_name': 'evil', 'data': {}})",
    "a request for input": "guests.publish('input_request', {'prompt': 'password?', 'password': True})",
    "contents of every kind": """
for content in (None, 1, "x", [], {"text": {}}, {"text": [1, None, {}]}, {"data": []}, {"data": {"image/png": {}}},
                {"data": {"image/png": "no image"}}, {"data": {"image/png": [1]}}, {"data": {"text/plain": {"a": 1}}},
                {"data": {"image/../../x": "AAAA", "image/png/../../../x": "AAAA"}}, {"transient": []},
                {"transient": {"display_id": {}}, "data": {"text/plain": "x"}}, {"wait": {}}, {"execution_state": []}):
    for kind in ("stream", "display_data", "execute_result", "update_display_data", "clear_output", "status", "error"):
        guests.publish(kind, json.dumps(content).encode())
""",
    "contents that are no JSON": """
for content in (b"", b"{", b"\\xff\\xfe", b"[" * 1_000_000, b'{"a":' * 100_000, b"9" * 1_000_000, b"NaN"):
    for kind in ("stream", "display_data", "status"):
        guests.publish(kind, content)
""",
    "JSON to show that is nested to any depth": """
for depth in range(900, 1000):
    guests.publish("display_data", b'{"data": {"application/json": ' + b"[" * depth + b"]" * depth + b"}}")
""",
    "replies of every kind": """
for content in ({}, {"status": "error"}, {"status": "error", "traceback": 1, "ename": [], "evalue": {}},
                {"status": "error", "traceback": ["x" * 1000] * 10_000}, {"status": {}}, {"payload": 1},
                {"payload": [1, {"source": "page"}, {"source": "page", "data": []}]}):
    guests.reply("execute_reply", content)
""",
    "images that are no images": """
import base64
for data in (b"", b"#!/bin/sh", b"<svg/>", os.urandom(1000), b"\\x89PNG\\r\\n"):
    display({"image/png": base64.b64encode(data).decode(), "image/jpeg": "!", "image/svg+xml": "<x>"}, raw=True)
""",
    "a control sequence without end": """
guests.publish("stream", {"name": "stdout", "text": "\\x1b["})
for _ in range(1000):
    guests.publish("stream", {"name": "stdout", "text": "0" * 65_536})
""",
    "a title for the terminal without end": """
guests.publish("stream", {"name": "stdout", "text": "\\x1b]"})
for _ in range(1000):
    guests.publish("stream", {"name": "stdout", "text": "0" * 65_536})
""",
    "ten million beginnings of control sequences": "print('\\x1b[' * 10_000_000, '\\x1b]0;' * 3_000_000)",
    "320 MiB of output": "import sys\nfor _ in range(320): sys.stdout.write('x' * (1 << 20))",
    "twenty thousand messages": "for _ in range(20_000): guests.publish('stream', {'name': 'stdout', 'text': 'x'})",
    "an image of 150 MiB": "display({'image/png': 'AAAA' * (50 << 20)}, raw=True)",
    "a message of 300 MiB": "print('x' * (300 << 20))",
    "a display of 500 places, each of which an update changes": """
for _ in range(500):
    guests.publish("display_data", {"data": {"text/plain": "x" * 1000}, "transient": {"display_id": "x"}})
for _ in range(500):
    guests.publish("update_display_data", {"data": {"text/plain": "y" * 100_000}, "transient": {"display_id": "x"}})
""",
    "JSON to show that has ten million values": "guests.publish('display_data',"
    " b'{\"data\": {\"application/json\": [' + b'[],' * 10_000_000 + b'[]]}}')",
    "a header of ten million values": "guests.publish('stream', {}, parent={'msg_id': [[]] * 10_000_000})",
}

#: Those where as much comes at once as may.
LARGE = {
    "320 MiB of output",
    "ten million beginnings of control sequences",
    "an image of 150 MiB",
    "a message of 300 MiB",
    "a display of 500 places, each of which an update changes",
    "calls of 8 MiB, 12 at once",
    "JSON of nearly three million empty lists, 4 at once",
}


@pytest.mark.parametrize("name", MESSAGE_ATTACKS)
async def test_messages_do_no_harm(name: str, sandboxed: Side, table: list[Row]) -> None:
    await sandboxed.works()
    async with Heart().beating() as heart:
        text = await sandboxed.run(MESSAGE_ATTACKS[name])
        assert "FORGED" not in text
        assert "RecursionError" not in text
        assert "SyntaxError" not in text
        del text
        await sandboxed.works()
    table.append(Row(MESSAGES, name, "an honest cell is answered", heart.check(large=name in LARGE)))
    for image in (sandboxed.workspace / "pictures").glob("*"):
        assert re.fullmatch(r"[0-9a-f]{32}\.(png|jpg)|[0-9a-f]{8}\.(svg|json)", image.name)
        image.unlink()


# What else is the host's


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
    monkeypatch.setattr(kernel_client, "GATEWAY_TIMEOUT", 1.0)
    monkeypatch.setattr(kernel_client, "INTERRUPT_GRACE", 0.5)
    monkeypatch.setattr(kernel_client, "ANSWER_GRACE", 0.5)
    await sandboxed.works()
    async with Heart().beating() as heart, asyncio.timeout(2 * WAIT):
        await sandboxed.run(code, timeout=2)
        try:
            assert "2" in (await sandboxed.run("1 + 1", timeout=5)).splitlines()
        finally:
            await sandboxed.executor.reset()
        await sandboxed.works()
    table.append(Row(PLACE, request.node.callspec.id, "the executor works", heart.check()))


# In the gateway's place


@asynccontextmanager
async def standing_in(workspace: Path, private_dir: Path, *words: str) -> AsyncGenerator[Link]:
    """Runs one of the programs of `guests` in the sandbox, linked to this process as the gateway is."""
    link = Link()
    command = [sys.executable, "-P", guests.__file__, *words]
    guest_dir = private_dir / "guest"
    guest_dir.mkdir()
    sandbox = Sandbox(load_settings(), workspace)
    process = await asyncio.create_subprocess_exec(
        *sandbox.kernel_command(command, guest_dir, private_dir / "srt.json"),
        cwd=workspace,
        env={name: os.environ[name] for name in ("PATH", "HOME")} | {"TMPDIR": str(private_dir)},
        stdin=link.guest_end.fileno(),
        stdout=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        # As in an executor, the tool server stops while the guest still lives.
        async with ToolServer(port=None, sealed_for=workspace) as tools:
            link.open(tools.accept_guest)
            yield link
    finally:
        link.close()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        async with asyncio.timeout(WAIT):
            await process.wait()


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("flood",), id="a hundred thousand descriptors of every kind"),
        pytest.param(("knock", "20000"), id="twenty thousand connections to the host's listener"),
        pytest.param(("babble", "200"), id="200 MiB that mean nothing"),
    ],
)
async def test_the_link_bears(
    words: tuple[str, ...], sandboxed: Side, tmp_path: Path, table: list[Row], request: pytest.FixtureRequest
) -> None:
    await sandboxed.works()
    before = len(os.listdir("/proc/self/fd"))
    async with Heart().beating() as heart:
        async with standing_in(sandboxed.workspace, tmp_path, *words) as link:
            async with asyncio.timeout(WAIT):
                await link.ready.wait()
            assert not link.closed.is_set()
            # The link, the listener and what the tool server may serve.
            assert len(os.listdir("/proc/self/fd")) - before < MAX_GUEST_CONNECTIONS + 50
            await sandboxed.works()
        await sandboxed.works()
    assert len(os.listdir("/proc/self/fd")) <= before + 1
    table.append(Row(PLACE, request.node.callspec.id, "the gateway itself works", heart.check()))


@pytest.mark.parametrize("count", [1, 2], ids=["one", "more than are taken from one message"])
async def test_sockets_whose_last_close_blocks_do_not_block_the_host(
    count: int,
    sandboxed: Side,
    tmp_path: Path,
    table: list[Row],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link_module, "MAX_FDS", 1)
    os.mkfifo(sandboxed.workspace / "closed")
    heart = Heart()
    try:
        async with standing_in(sandboxed.workspace, tmp_path, "linger", str(count)) as link:
            # This host is busy until the guest has closed its own: whoever reads the link has the last ones.
            assert (sandboxed.workspace / "closed").read_text() == "closed"
            async with heart.beating(), asyncio.timeout(5 * WAIT):
                await link.ready.wait()
    finally:
        (sandboxed.workspace / "closed").unlink()
    await sandboxed.works()
    name = f"sockets whose last close blocks: {request.node.callspec.id}"
    table.append(Row(PLACE, name, "the gateway itself works", heart.check()))


async def test_a_listener_whose_connections_block_when_they_are_closed_does_not_block_the_host(
    table: list[Row],
) -> None:
    """Accepted sockets inherit SO_LINGER. The guest's part is played here: it needs a buffer that is just full."""
    link, heart = Link(), Heart()
    with (
        link.guest_end.dup() as guest_end,
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.socket() as client,
    ):
        async with ToolServer(port=None) as tools:
            link.open(tools.accept_guest)
            try:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 4))
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
                socket.send_fds(guest_end, [guests.LISTENER], [listener.fileno()])
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
                client.setblocking(False)
                async with asyncio.timeout(WAIT):
                    await asyncio.get_running_loop().sock_connect(client, listener.getsockname())
                    client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 12)
                    answered = b""
                    # How much has come is no event of a loop, as long as it is not read.
                    while len(answered) < 1000:
                        await asyncio.sleep(0)
                        answered = client.recv(1 << 16, socket.MSG_PEEK) if _readable(client) else b""
                    assert answered.startswith(b"HTTP/1.1 ")
                async with heart.beating():
                    await tools.stop()
            finally:
                link.close()
    table.append(Row(PLACE, "a listener whose connections block at their close", "they block", heart.check()))


def _readable(sock: socket.socket) -> bool:
    return bool(select.select([sock], [], [], 0)[0])


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("silent",), id="no answer at all"),
        pytest.param(("redirect_file",), id="a redirection to a file"),
        pytest.param(("redirect_host", "{door}"), id="a redirection to a port of the host"),
        pytest.param(("redirect_websocket", "{door}"), id="a redirection of the WebSocket to a port of the host"),
        pytest.param(("garbage",), id="an answer that is no HTTP"),
        pytest.param(("endless_head",), id="a head of 100 MiB"),
        pytest.param(("endless_body", "1200"), id="a body of 1200 MiB"),
        pytest.param(("compressed_body", "1024"), id="a compressed body of 1 GiB"),
        pytest.param(("deep_body",), id="JSON that is nested ten million times"),
        pytest.param(("numbers_body",), id="a number of twenty million digits"),
        pytest.param(("strange_id",), id="a kernel id with a path and line ends"),
        pytest.param(("compressed_frames", "500"), id="frames that are compressed unasked"),
        pytest.param(("huge_frame", "1200"), id="a frame of four exbibytes"),
        pytest.param(("impossible_frames",), id="frames that there can't be"),
        pytest.param(("endless_output", "600"), id="600 MiB of output"),
        pytest.param(("wrong_parents",), id="messages of other cells, and what is no message"),
        pytest.param(("many_messages", "30"), id="30,000 messages as fast as they can be sent"),
        pytest.param(("overlapping_parts",), id="a message of 100 MiB whose parts are all of it, a thousand times"),
    ],
)
async def test_the_client_bears_a_gateway_that_is_none(
    words: tuple[str, ...],
    sandboxed: Side,
    tmp_path: Path,
    table: list[Row],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernel_client, "GATEWAY_TIMEOUT", 2.0)
    monkeypatch.setattr(kernel_client, "KERNEL_START_TIMEOUT", 2.0)
    monkeypatch.setattr(kernel_client, "INTERRUPT_GRACE", 0.5)
    monkeypatch.setattr(kernel_client, "ANSWER_GRACE", 0.5)
    await sandboxed.works()
    sandboxed.clear()
    given = [word.format(door=sandboxed.door.port) for word in words]
    async with (
        Heart().beating() as heart,
        asyncio.timeout(2 * WAIT),
        standing_in(sandboxed.workspace, tmp_path, *given) as link,
    ):
        client = KernelClient(
            endpoint=Endpoint("kernel-gateway", dial=link.connect),
            images_dir=tmp_path / "images",
            beneath=sandboxed.workspace,
        )
        failure: Exception | None = None
        try:
            await client.connect(retries=0)
            await client.execute("1 + 1", timeout=5)
        except Exception as exc:
            failure = exc
        finally:
            await client.disconnect()
        assert isinstance(failure, (IpyboxError, RuntimeError, TimeoutError)), repr(failure)[:500]
        assert "FORGED" not in str(failure)
    assert sandboxed.door.visits == 0
    assert not (tmp_path / "images").exists()
    await sandboxed.works()
    table.append(Row(PLACE, request.node.callspec.id, "the gateway itself works", heart.check()))
