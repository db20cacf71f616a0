"""Cells whose tool calls would certainly fail are refused before anything runs; all other cells run as ever."""

import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ipybox import CodeExecutionError, CodeExecutor
from ipybox.mcp_apigen.package.files import ToolSpec, render_package
from tests.mcp_apigen import golden

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Seconds for a cell.
SOON = 20


def cells_in(file: str) -> list[Any]:
    """Reads test cases: a title, cells separated by dashes, and what is reported about the last one."""
    text = Path(__file__).with_name(file).read_text()
    cases = [case.partition("\n") for case in re.split("^### ", text, flags=re.MULTILINE)[1:]]
    return [pytest.param(*rest.strip().partition("\n>>>\n")[::2], id=title) for title, _, rest in cases]


_TEXT = {"type": "string"}
_NUMBER = {"type": "integer", "minimum": 1, "maximum": 100}

#: The schemas of a server's tools. All but the first accept other properties, too.
_SCHEMAS = {
    "get_file": {
        "required": ["path"],
        "properties": {"path": _TEXT, "ref": _TEXT, "maxBytes": _NUMBER},
        "additionalProperties": False,
    },
    "list_commits": {
        "required": ["owner", "repo"],
        "properties": {
            **{"owner": _TEXT, "repo": _TEXT, "perPage": _NUMBER, "state": {"enum": ["open", "closed"]}},
            **{"since": {"type": ["string", "null"]}, "paths": {"type": "array", "items": _TEXT}},
        },
    },
    "list_issues": {"properties": {"labels": {"type": "array", "items": _TEXT}, "page": _NUMBER}},
    # Types can't express these.
    "pick": {"properties": {"a": _TEXT, "b": _TEXT}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
    "put": {"required": ["value"], "properties": {"value": {}, "note": _TEXT}},
}

#: Forgets the variables and modules of earlier cells.
NEW = """
get_ipython().reset(new_session=False)
import sys
for module in [*sys.modules]:
    if module.partition(".")[0] in ("mcptools", "mine", "other", "colorsys"):
        del sys.modules[module]
del module, sys
"""


def add(a: int, b: int = 1) -> int:
    """Adds."""
    return a + b


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the packages `github` and `tracker`, which can't be called, and a module of the user."""
    directory = tmp_path_factory.mktemp("workspace")
    github = [ToolSpec(name, "", {"type": "object", **schema}) for name, schema in _SCHEMAS.items()]
    for server, tools in (("github", github), ("tracker", golden.TOOLS)):
        package = directory / "mcptools" / server
        package.mkdir(parents=True)
        for file, text in render_package(server, {"command": "true"}, tools, "").items():
            (package / file).write_text(text)
    (directory / "other.py").write_text(
        "import mcptools.github.list_commits as changed\n"
        "def change(): changed.Params = dict\n"
        "change(); list_commits = changed\n"
    )
    (directory / "mine.py").write_text("import pathlib\npathlib.Path('mcptools/made').mkdir(exist_ok=True)\n")
    return directory


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kernel(workspace: Path, shared: None) -> AsyncIterator[CodeExecutor]:
    """A kernel in that directory, with `mcptools.app`, which can be called."""
    async with CodeExecutor(working_dir=workspace, tools=[add]) as executor:
        yield executor


@pytest_asyncio.fixture(loop_scope="module")
async def fresh(kernel: CodeExecutor, workspace: Path) -> CodeExecutor:
    """The kernel, without variables and modules of other tests."""
    await kernel.execute(NEW)
    shutil.rmtree(workspace / "mcptools" / "made", ignore_errors=True)
    return kernel


IMPORT = "from mcptools.github import list_commits\n"
WRONG = "list_commits.Params(nothing=1)"

#: Cells that are inconvenient in a file.
ODD = {
    "nothing": "",
    "a long cell": f"{IMPORT}x = {'a' * 100_000!r}\nfor x in (): {WRONG}",
    "a deep cell": f"{IMPORT}list_commits.Params(owner='a', repo={'+'.join(['str(1)'] * 800)})",
    "form feeds and carriage returns": f"{IMPORT}\x0cx = 'a'\r\nif not x:\n    {WRONG}\r\n",
}


@pytest.mark.parametrize(
    ("cells", "_"), [*cells_in("cells_that_run.txt"), *(pytest.param(cell, "", id=name) for name, cell in ODD.items())]
)
async def test_other_cells_run(fresh: CodeExecutor, cells: str, _: str):
    for cell in cells.split("\n---\n"):
        await fresh.execute(cell, timeout=SOON)


@pytest.mark.parametrize(("cells", "expected"), cells_in("cells_that_are_refused.txt"))
async def test_cells_that_would_fail_are_refused(fresh: CodeExecutor, cells: str, expected: str):
    *earlier, last = cells.split("\n---\n")
    for cell in earlier:
        await fresh.execute(cell, timeout=SOON)
    with pytest.raises(CodeExecutionError) as error:
        await fresh.execute(last, timeout=SOON)

    assert error.value.name == "CellCheckError"
    assert error.value.output is not None
    assert error.value.output.text is None
    assert str(error.value) == f"CellCheckError: nothing ran\n{expected}"


async def test_a_refused_cell_is_like_any_cell_that_fails(fresh: CodeExecutor):
    await fresh.execute("x = 1")
    with pytest.raises(CodeExecutionError, match="nothing ran") as error:
        await fresh.execute(f"x = 2\n{IMPORT}print(x)\n{WRONG}", timeout=SOON)

    assert error.value.value == "nothing ran\nline 4: list_commits.Params needs owner, repo"
    assert (await fresh.execute("x", timeout=SOON)).text == "1"
    assert (await fresh.execute("import sys; type(sys.last_value).__name__", timeout=SOON)).text == "'CellCheckError'"


async def test_only_the_first_findings_are_shown(fresh: CodeExecutor):
    with pytest.raises(CodeExecutionError) as error:
        await fresh.execute(IMPORT + f"{WRONG}\n" * 25, timeout=SOON)

    shown = [f"line {line}: list_commits.Params needs owner, repo" for line in range(2, 22)]
    assert error.value.value == "\n".join(["nothing ran", *shown, "and 5 more"])


async def test_a_workspace_may_have_no_tools(fresh: CodeExecutor, workspace: Path):
    tools = (workspace / "mcptools").rename(workspace / "no_tools")
    try:
        with pytest.raises(CodeExecutionError) as error:
            await fresh.execute(f"{IMPORT}import mcptools", timeout=SOON)
    finally:
        tools.rename(workspace / "mcptools")

    assert str(error.value).splitlines()[1:] == [
        "line 1: there is no mcptools: no MCP server is registered",
        "line 2: there is no mcptools: no MCP server is registered",
    ]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("import mcptools.github.nothing", "ModuleNotFoundError"),
        ("raise SystemExit(3)", "SystemExit"),
    ],
)
async def test_a_module_that_fails_is_imported_by_the_cell(
    fresh: CodeExecutor, workspace: Path, source: str, name: str
):
    made = workspace / "mcptools" / "made"
    made.mkdir()
    (made / "tool.py").write_text(source)
    with pytest.raises(CodeExecutionError) as error:
        await fresh.execute("from mcptools.made import tool, nothing", timeout=SOON)

    assert error.value.name == name
