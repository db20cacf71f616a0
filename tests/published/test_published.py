"""Published MCP servers: their packages are imported and checked, and calls return what a direct client gets.

`make servers` installs the servers and runs these tests. Their mark, `servers`, keeps them out of all other targets.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.comparison import Server, call_directly, call_generated, without
from tests.published.calls import CALLS
from tests.published.catalog import INSTALLED
from tests.published.registrations import SERVERS, Registrations, fill
from tests.published.varying import CHANGED, without_varying
from tests.servers import NODE_MODULES, ROOT

# In one mode: `tests/test_real_servers.py` compares calls in both.
pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(not (INSTALLED / "installed.stamp").exists(), reason="`make servers` installs the servers"),
]

IMPORT_ALL = """
import importlib, json, sys
for name in json.loads(sys.argv[1]):
    module = importlib.import_module(f"mcptools.{name}")
    assert callable(module.run) and callable(module.run_async) and module.Params.model_fields is not None, name
"""


@pytest.fixture(scope="module")
def registrations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registrations]:
    """The registrations of all servers, each made when a test first asks for it. `make servers` prints the report."""
    registrations = Registrations(tmp_path_factory.mktemp("project"))
    yield registrations
    (INSTALLED / "report.md").write_text(registrations.report())


@pytest.mark.parametrize("name", CALLS)
async def test_calls_return_what_a_direct_client_gets(registrations: Registrations, tmp_path: Path, name: str):
    modules = {tool: module for module, tool in (await registrations.of(name))[1].wire_names.items()}
    registrations.calls[name] = "different"
    directory = tmp_path / "direct"
    fill(directory)
    direct = await call_directly(Server(SERVERS[name].params(directory), CALLS[name], directory))
    expected = without_varying(name, without(directory, direct))
    directory = registrations.directory(name)
    server = Server(SERVERS[name].params(directory), CALLS[name], directory)
    generated = await call_generated(server, registrations.workspace, name, modules, sandbox=False)
    assert without_varying(name, without(directory, generated)) == expected
    assert len(generated) == len(CALLS[name])
    registrations.calls[name] = "equal"
    registrations.errors += sum(isinstance(value, dict) and "error" in value for value in direct)


@pytest.mark.parametrize("name", SERVERS)
async def test_second_registration_reports_only_changes_of_the_server(registrations: Registrations, name: str):
    first, second = await registrations.of(name)
    assert first
    assert first.new
    assert second == first
    assert (second.new, second.unknown, second.added, second.removed) == (False, "", (), ())
    assert second.changed == CHANGED.get(name, ())
    registrations.unchanged.add(name)


async def test_every_module_is_imported(registrations: Registrations):
    modules = await registrations.modules()
    command = [sys.executable, "-c", IMPORT_ALL, json.dumps(modules)]
    imported = await asyncio.to_thread(
        subprocess.run, command, cwd=registrations.workspace, capture_output=True, text=True, timeout=300
    )
    assert (imported.returncode, imported.stderr) == (0, "")
    registrations.imported = len(modules)


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
    findings, files = report["generalDiagnostics"], report["summary"]["filesAnalyzed"]
    registrations.pyright = f"{len(findings)} in {files} files"
    assert findings == []
    packages = {module.partition(".")[0] for module in modules}
    assert files == len(modules) + len(packages)


def test_there_are_enough_servers_and_calls():
    assert len(SERVERS) >= 30
    assert sum(map(len, CALLS.values())) >= 100
