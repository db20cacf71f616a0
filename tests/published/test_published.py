"""Published MCP servers: their packages are imported and checked, and calls return what a direct client gets.

`make servers` installs the servers and runs these tests. Their mark, `servers`, keeps them out of all other targets.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ipybox import generate_mcp_sources
from ipybox.errors import IpyboxError
from ipybox.mcp_apigen.package.tool_modules import ToolModules
from tests.comparison import Server, call_directly, call_generated, repository, without
from tests.published.calls import CALLS
from tests.published.catalog import INSTALLED, published_servers
from tests.published.varying import without_varying
from tests.servers import NODE_MODULES, ROOT

# In one mode: `tests/test_real_servers.py` compares calls in both.
pytestmark = pytest.mark.kernel

SERVERS = published_servers()

#: Servers that start at the same time, as some need seconds of CPU time.
AT_ONCE = 2

IMPORT_ALL = """
import importlib, json, sys
for name in json.loads(sys.argv[1]):
    module = importlib.import_module(f"mcptools.{name}")
    assert callable(module.run) and callable(module.run_async) and module.Params.model_fields is not None, name
"""


@dataclass(frozen=True)
class Registrations:
    """Two registrations of a server, whose processes have different hash seeds."""

    first: ToolModules
    second: ToolModules


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace for the packages of all servers."""
    return tmp_path_factory.mktemp("project")


@pytest.fixture(scope="module")
def registered(project: Path) -> dict[str, Registrations | IpyboxError]:
    """What came of the registrations of all servers."""
    return asyncio.run(_register_all(project))


@pytest.fixture(scope="module")
def compared(registered: dict[str, Registrations | IpyboxError]) -> Iterator[dict[str, str]]:
    """Takes what came of each server's calls, and writes the table that `make servers` prints."""
    results: dict[str, str] = {}
    yield results
    lines = ["| server | version | tools | calls | result |", "| --- | --- | --- | --- | --- |"]
    for name, server in SERVERS.items():
        made = registered[name]
        tools = len(made.first) if isinstance(made, Registrations) else 0
        result = results.get(name, "generated" if tools else "not registered")
        lines.append(f"| {server.package} | {server.version()} | {tools} | {len(CALLS.get(name, []))} | {result} |")
    (INSTALLED / "report.md").write_text("\n".join(lines) + "\n")


async def _register_all(project: Path) -> dict[str, Registrations | IpyboxError]:
    free = asyncio.Semaphore(AT_ONCE)

    async def register(name: str) -> Registrations | IpyboxError:
        async with free:
            try:
                first, second = [await _register(name, project, seed) for seed in ("1", "2")]
            except IpyboxError as error:
                return error
            return Registrations(first, second)

    return dict(zip(SERVERS, await asyncio.gather(*map(register, SERVERS)), strict=True))


async def _register(name: str, project: Path, seed: str) -> ToolModules:
    directory = project / "servers" / name
    if not directory.exists():
        _fill(directory)
    params = SERVERS[name].params(directory, PYTHONHASHSEED=seed)
    return await generate_mcp_sources(name, params, project / "mcptools")


def _fill(directory: Path) -> None:
    """Makes a directory for a server: a git repository with files of several kinds."""
    repository(directory)
    files = {
        "notes.md": "# Notes\n\n- one\n- two\n",
        "table.csv": "name,value\nx,1\ny,2\n",
        "page.html": "<h1>Title</h1><p>Some <b>bold</b> text</p>",
        "code.py": "def double(x):\n    return 2 * x\n\n\nprint(double(3))\n",
        "code.js": "const unused = 1;\nvar y = undefinedName;\n",
        "eslint.config.js": 'module.exports = [{ rules: { "no-undef": "error", "no-unused-vars": "warn" } }];\n',
    }
    for name, text in files.items():
        (directory / name).write_text(text)


@pytest.mark.parametrize("name", SERVERS)
def test_second_registration_reports_no_change(registered: dict[str, Registrations | IpyboxError], name: str):
    made = registered[name]
    assert isinstance(made, Registrations), made
    assert made.first, "no tools"
    assert made.first.new
    second = made.second
    assert (second.new, second.unknown, second.added, second.removed, second.changed) == (False, "", (), (), ())
    assert second == made.first


def test_every_module_is_imported(registered: dict[str, Registrations | IpyboxError], project: Path):
    modules = [f"{name}.{module}" for name, module in _modules(registered)]
    command = [sys.executable, "-c", IMPORT_ALL, json.dumps(modules)]
    imported = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=300, check=False)
    assert (imported.returncode, imported.stderr) == (0, "")


def test_pyright_strict_finds_nothing(registered: dict[str, Registrations | IpyboxError], project: Path):
    config = {
        "include": ["mcptools"],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "venvPath": str(Path(sys.prefix).parent),
        "venv": Path(sys.prefix).name,
        "extraPaths": [str(ROOT)],
    }
    (project / "pyrightconfig.json").write_text(json.dumps(config))
    pyright = ["node", str(NODE_MODULES / "pyright" / "index.js"), "--outputjson", "-p", str(project)]
    checked = subprocess.run(pyright, capture_output=True, text=True, timeout=900, check=False)
    report = json.loads(checked.stdout)
    assert report["generalDiagnostics"] == []
    packages = {name for name, _ in _modules(registered)}
    assert report["summary"]["filesAnalyzed"] == len(_modules(registered)) + len(packages)


def test_there_are_enough_servers_and_calls():
    assert len(SERVERS) >= 30
    assert sum(map(len, CALLS.values())) >= 100


@pytest.mark.parametrize("name", CALLS)
async def test_calls_return_what_a_direct_client_gets(
    registered: dict[str, Registrations | IpyboxError],
    compared: dict[str, str],
    project: Path,
    tmp_path: Path,
    name: str,
):
    made = registered[name]
    assert isinstance(made, Registrations), made
    modules = {tool: module for module, tool in made.second.wire_names.items()}
    directory = tmp_path / "direct"
    _fill(directory)
    compared[name] = "differs"
    direct = await call_directly(Server(SERVERS[name].params(directory), CALLS[name], directory))
    directory = project / "servers" / name
    server = Server(SERVERS[name].params(directory), CALLS[name], directory)
    generated = await call_generated(server, project, name, modules, sandbox=False)
    expected = without(tmp_path / "direct", direct)
    assert without_varying(name, without(directory, generated)) == without_varying(name, expected)
    assert len(generated) == len(CALLS[name])
    compared[name] = "equal"


def _modules(registered: dict[str, Registrations | IpyboxError]) -> list[tuple[str, str]]:
    return [
        (name, module) for name, made in registered.items() if isinstance(made, Registrations) for module in made.second
    ]
