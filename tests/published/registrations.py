"""The packages of published servers in one workspace, and a report of what the tests find in them."""

import datetime
import importlib.metadata
import platform
from contextlib import suppress
from pathlib import Path

from ipybox import generate_mcp_sources
from ipybox.errors import MCPServerError
from ipybox.mcp_apigen.generator import ToolModules
from tests.comparison import repository
from tests.published.calls import CALLS
from tests.published.catalog import published_servers

SERVERS = published_servers()

REPORT = """\
# Published MCP servers

`make servers` installs these servers from npm and PyPI, tests them, and writes this page if all tests pass. The calls
need no network, and the lists of tools no account.

| test | result on {date} |
| --- | --- |
| Servers registered twice, the second time without changes | {unchanged} of {servers} |
| Generated modules that can be imported, one per tool | {imported} of {tools} |
| Errors from pyright in strict mode | {pyright} |
| Calls with the same result or error as a plain MCP client | {equal} of {calls}, of {called} servers |
| Server errors among these calls | {errors} |

One change is ignored: the description of `run_command` in `cli-mcp-server` lists a Python set, whose order differs
between processes. Query identifiers (`mcp-clickhouse`), the time of a scan (`mcp-server-tree-sitter`) and the server's
directory are not compared. Python {python}, MCP SDK {sdk}.

| package | version | tools | calls | result |
| --- | --- | --- | --- | --- |
{rows}
"""


class Registrations:
    """Registers servers in a workspace, each twice, by processes with different hash seeds.

    Attributes:
        workspace: Where their packages are.
        unchanged: The servers whose second registration reported no unexpected change.
        calls: What came of the calls of each server.
        errors: How many calls had an error, from a kernel and directly.
        imported: How many modules were imported.
        pyright: What pyright reported.
    """

    def __init__(self, workspace: Path):
        self.workspace = workspace
        self.unchanged: set[str] = set()
        self.calls: dict[str, str] = {}
        self.errors = 0
        self.imported = 0
        self.pyright = "not run"
        self._made: dict[str, tuple[ToolModules, ToolModules] | MCPServerError] = {}

    def directory(self, name: str) -> Path:
        """Returns the directory that a server runs in."""
        return self.workspace / "servers" / name

    async def of(self, name: str) -> tuple[ToolModules, ToolModules]:
        """Returns what the two registrations of a server returned, or raises what they raised."""
        if name not in self._made:
            fill(self.directory(name))
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

    def report(self) -> str:
        """Returns what the tests found, in Markdown; without the servers that no test has asked for."""
        rows = [self._row(name) for name in SERVERS if name in self._made]
        equal = [len(CALLS[name]) for name, result in self.calls.items() if result == "equal"]
        return REPORT.format(
            date=datetime.datetime.now(datetime.UTC).date(),
            unchanged=len(self.unchanged),
            servers=len(rows),
            imported=self.imported,
            tools=sum(map(self._tools, self._made)),
            pyright=self.pyright,
            equal=sum(equal),
            calls=sum(len(CALLS[name]) for name in self.calls),
            errors=self.errors,
            called=len(self.calls),
            python=platform.python_version(),
            sdk=importlib.metadata.version("mcp"),
            rows="\n".join(rows),
        )

    def _row(self, name: str) -> str:
        failed = isinstance(self._made[name], MCPServerError)
        result = "does not start" if failed else self.calls.get(name, "")
        server = SERVERS[name]
        return (
            f"| {server.package} | {server.version()} | {self._tools(name)} | {len(CALLS.get(name, []))} | {result} |"
        )

    def _tools(self, name: str) -> int:
        made = self._made[name]
        return 0 if isinstance(made, MCPServerError) else len(made[1])

    async def _register(self, name: str, seed: str) -> ToolModules:
        params = SERVERS[name].params(self.directory(name), PYTHONHASHSEED=seed)
        return await generate_mcp_sources(name, params, self.workspace / "mcptools")


def fill(directory: Path) -> None:
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
