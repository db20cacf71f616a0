"""Published MCP servers: their packages are imported and checked, and calls return what a direct client gets.

`make servers` installs the servers and runs these tests. Their mark, `servers`, keeps them out of all other targets.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ipybox import generate_mcp_sources
from ipybox.errors import MCPServerError
from ipybox.mcp_apigen.package.tool_modules import ToolModules
from tests.comparison import Server, call_directly, call_generated, repository, without
from tests.published.calls import CALLS
from tests.published.catalog import INSTALLED, published_servers
from tests.published.varying import CHANGED, without_varying
from tests.servers import NODE_MODULES, ROOT

# In one mode: `tests/test_real_servers.py` compares calls in both.
pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(not (INSTALLED / "installed.stamp").exists(), reason="`make servers` installs the servers"),
]

SERVERS = published_servers()

IMPORT_ALL = """
import importlib, json, sys
for name in json.loads(sys.argv[1]):
    module = importlib.import_module(f"mcptools.{name}")
    assert callable(module.run) and callable(module.run_async) and module.Params.model_fields is not None, name
"""


class Registrations:
    """Registers servers in a workspace, each twice, by processes with different hash seeds.

    Attributes:
        workspace: Where their packages are.
        calls: What came of the calls of each server.
    """

    def __init__(self, workspace: Path):
        self.workspace = workspace
        self.calls: dict[str, str] = {}
        self._made: dict[str, tuple[ToolModules, ToolModules] | MCPServerError] = {}

    def directory(self, name: str) -> Path:
        """Returns the directory that a server runs in."""
        return self.workspace / "servers" / name

    async def of(self, name: str) -> tuple[ToolModules, ToolModules]:
        """Returns what the two registrations of a server returned, or raises what they raised."""
        if name not in self._made:
            _fill(self.directory(name))
            try:
                self._made[name] = (await self._register(name, "1"), await self._register(name, "2"))
            except MCPServerError as error:
                self._made[name] = error
        made = self._made[name]
        if isinstance(made, MCPServerError):
            raise made
        return made

    async def modules(self) -> list[str]:
        """Returns all modules of the servers that can be registered; a test of each fails for the others."""
        modules: list[str] = []
        for name in SERVERS:
            with suppress(MCPServerError):
                modules += [f"{name}.{module}" for module in (await self.of(name))[1]]
        return modules

    def table(self) -> str:
        """Returns a table of the servers, in Markdown."""
        lines = ["| server | version | tools | calls | result |", "| --- | --- | --- | --- | --- |"]
        for name in filter(self._made.__contains__, SERVERS):
            made = self._made[name]
            failed = isinstance(made, MCPServerError)
            result = "does not start" if failed else self.calls.get(name, "no calls")
            counts = f"{0 if failed else len(made[1])} | {len(CALLS.get(name, []))}"
            lines.append(f"| {SERVERS[name].package} | {SERVERS[name].version()} | {counts} | {result} |")
        return "\n".join([*lines, ""])

    async def _register(self, name: str, seed: str) -> ToolModules:
        params = SERVERS[name].params(self.directory(name), PYTHONHASHSEED=seed)
        return await generate_mcp_sources(name, params, self.workspace / "mcptools")


@pytest.fixture(scope="module")
def registrations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registrations]:
    """The registrations of all servers, each made when a test first asks for it. `make servers` prints the table."""
    registrations = Registrations(tmp_path_factory.mktemp("project"))
    yield registrations
    (INSTALLED / "report.md").write_text(registrations.table())


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


@pytest.mark.parametrize("name", CALLS)
async def test_calls_return_what_a_direct_client_gets(registrations: Registrations, tmp_path: Path, name: str):
    modules = {tool: module for module, tool in (await registrations.of(name))[1].wire_names.items()}
    registrations.calls[name] = "different"
    directory = tmp_path / "direct"
    _fill(directory)
    direct = await call_directly(Server(SERVERS[name].params(directory), CALLS[name], directory))
    expected = without_varying(name, without(directory, direct))
    directory = registrations.directory(name)
    server = Server(SERVERS[name].params(directory), CALLS[name], directory)
    generated = await call_generated(server, registrations.workspace, name, modules, sandbox=False)
    assert without_varying(name, without(directory, generated)) == expected
    assert len(generated) == len(CALLS[name])
    registrations.calls[name] = "equal"


@pytest.mark.parametrize("name", SERVERS)
async def test_second_registration_reports_only_changes_of_the_server(registrations: Registrations, name: str):
    first, second = await registrations.of(name)
    assert first
    assert first.new
    assert second == first
    assert (second.new, second.unknown, second.added, second.removed) == (False, "", (), ())
    assert second.changed == CHANGED.get(name, ())


async def test_every_module_is_imported(registrations: Registrations):
    command = [sys.executable, "-c", IMPORT_ALL, json.dumps(await registrations.modules())]
    imported = await asyncio.to_thread(
        subprocess.run, command, cwd=registrations.workspace, capture_output=True, text=True, timeout=300
    )
    assert (imported.returncode, imported.stderr) == (0, "")


async def test_pyright_strict_finds_nothing(registrations: Registrations):
    modules = await registrations.modules()
    config = {
        "include": ["mcptools"],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "venvPath": str(Path(sys.prefix).parent),
        "venv": Path(sys.prefix).name,
        "extraPaths": [str(ROOT)],
    }
    (registrations.workspace / "pyrightconfig.json").write_text(json.dumps(config))
    pyright = ["node", str(NODE_MODULES / "pyright" / "index.js"), "--outputjson", "-p", str(registrations.workspace)]
    checked = await asyncio.to_thread(subprocess.run, pyright, capture_output=True, text=True, timeout=900)
    report = json.loads(checked.stdout)
    assert report["generalDiagnostics"] == []
    packages = {module.partition(".")[0] for module in modules}
    assert report["summary"]["filesAnalyzed"] == len(modules) + len(packages)


def test_there_are_enough_servers_and_calls():
    assert len(SERVERS) >= 30
    assert sum(map(len, CALLS.values())) >= 100
