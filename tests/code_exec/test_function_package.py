"""The package of an application's functions, and conflicts over its name with an MCP server. No kernel runs."""

from pathlib import Path

import pytest

from ipybox import CodeExecutor, Executor, ExecutorConfig, generate_mcp_sources
from ipybox.code_exec.function_package import write_package
from ipybox.tool_exec.function_tools import FunctionTools
from tests import servers


def double(x: int) -> int:
    """Doubles a number."""
    return 2 * x


def shout(text: str) -> str:
    """Makes text loud."""
    return text.upper()


def modules(workspace: Path) -> dict[str, str]:
    return {path.stem: path.read_text() for path in (workspace / "mcptools" / "app").glob("*.py")}


def test_each_function_has_a_module_and_the_package_says_what_it_is(tmp_path: Path):
    write_package(FunctionTools([double, shout]), tmp_path)

    found = modules(tmp_path)
    assert found.keys() == {"__init__", "double", "shout"}
    assert found["__init__"].startswith(
        '"""Functions of the application, one module each.\n\ndouble: Doubles a number.'
    )
    assert "server_params={}" in found["__init__"]
    assert found["double"].startswith('"""Doubles a number."""')


def test_changed_functions_are_generated_again_and_additions_stay(tmp_path: Path):
    write_package(FunctionTools([double, shout]), tmp_path)
    before = (tmp_path / "mcptools" / "app").stat()
    write_package(FunctionTools([double, shout]), tmp_path)
    after = (tmp_path / "mcptools" / "app").stat()  # reading it changes the time of access
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)

    added = "\n\ndef twice(): pass\n"
    with (tmp_path / "mcptools" / "app" / "shout.py").open("a") as module:
        module.write(added)

    def double_(x: float) -> float:
        return 2 * x

    double_.__name__ = "double"
    write_package(FunctionTools([double_, shout]), tmp_path)
    assert "    x: float" in modules(tmp_path)["double"]
    assert modules(tmp_path)["shout"].endswith(added)

    write_package(FunctionTools([shout]), tmp_path)
    assert modules(tmp_path).keys() == {"__init__", "shout"}


@pytest.mark.parametrize("executor", [CodeExecutor, Executor, ExecutorConfig])
def test_a_function_that_can_not_be_a_tool_is_an_error_of_the_constructor(executor: type, tmp_path: Path):
    with pytest.raises(ValueError, match="<lambda> has no usable name"):
        executor(tools=[lambda: None], working_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


async def test_functions_and_a_registered_server_of_their_name_are_a_conflict(tmp_path: Path):
    functions = FunctionTools([double])
    await generate_mcp_sources("app", servers.scripted(), tmp_path / "mcptools")

    conflict = (
        r"^tools: .* contains a registered MCP server named 'app', a name reserved for functions: register the server"
    )
    with pytest.raises(ValueError, match=conflict):
        CodeExecutor(tools=[double], working_dir=tmp_path)
    with pytest.raises(ValueError, match=conflict):
        write_package(functions, tmp_path)
    assert "double" not in modules(tmp_path)
    CodeExecutor(working_dir=tmp_path)


async def test_a_server_can_not_be_registered_under_the_name_of_functions(tmp_path: Path):
    write_package(FunctionTools([double]), tmp_path)

    conflict = r"^server name 'app' is taken by the application's functions in .*: choose another name, or delete"
    with pytest.raises(ValueError, match=conflict):
        await generate_mcp_sources("app", servers.scripted(), tmp_path / "mcptools")
    assert "double" in modules(tmp_path)
    assert await generate_mcp_sources("app", servers.scripted(), tmp_path / "elsewhere")


def test_what_was_not_generated_is_not_replaced(tmp_path: Path):
    own = tmp_path / "mcptools" / "app" / "mine.py"
    own.parent.mkdir(parents=True)
    own.write_text("mine")

    with pytest.raises(FileExistsError, match="which ipybox did not generate"):
        write_package(FunctionTools([double]), tmp_path)
    assert own.read_text() == "mine"
