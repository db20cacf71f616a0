import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import ipybox

ROOT = Path(ipybox.__file__).parent

#: What no module of the guest may load, directly or through others.
HOST_ONLY = ("mcp", "mcp_types", "aiohttp", "starlette", "uvicorn", "ipybox.mcp_apigen", "ipybox.mcp_client")

STARTS_AN_EXECUTOR = """
import asyncio
from ipybox import CodeExecutor
async def main():
    async with CodeExecutor() as executor:
        assert (await executor.execute("1 + 1")).text == "2"
asyncio.run(main())
"""


def loaded_after(code: str, cwd: Path) -> set[str]:
    """Returns the modules that a fresh interpreter has loaded after running the code."""
    script = f"{code}\nimport sys; print('\\n'.join(sys.modules))"
    output = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], cwd=cwd, capture_output=True, text=True, timeout=60, check=True
    ).stdout
    return set(output.split())


def under(names: tuple[str, ...], modules: set[str]) -> set[str]:
    return {module for module in modules if any(module == name or module.startswith(f"{name}.") for name in names)}


def test_exported_names_are_these():
    assert ipybox.__all__ == [
        "ApprovalRequest",
        "Clear",
        "CodeExecutionChunk",
        "CodeExecutionError",
        "CodeExecutionResult",
        "CodeExecutor",
        "Display",
        "Executor",
        "ExecutorConfig",
        "Result",
        "Stream",
        "StreamedRequest",
        "accepts_batches",
        "generate_mcp_sources",
    ]


def test_exported_names_are_sorted_and_exist():
    assert ipybox.__all__ == sorted(ipybox.__all__)
    assert set(ipybox.__all__) <= set(dir(ipybox))
    for name in ipybox.__all__:
        assert getattr(ipybox, name).__name__ == name


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'ipybox' has no attribute 'nothing'"):
        getattr(ipybox, "nothing")  # noqa: B009  pyright knows that the attribute is missing
    with pytest.raises(AttributeError, match=r"module 'ipybox\.code_exec' has no attribute 'nothing'"):
        getattr(import_module("ipybox.code_exec"), "nothing")  # noqa: B009


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("ipybox.kernel_mgr.server", ["KernelGateway"]),
        ("ipybox.kernel_mgr.client", ["KernelClient", "ExecutionResult", "ExecutionError"]),
        ("ipybox.tool_exec.server", ["ToolServer"]),
        ("ipybox.tool_exec.client", ["ToolRunner", "ToolRunnerError", "reset"]),
        (
            "ipybox.tool_exec.models",
            ["UNSET", "Among", "CheckedInput", "Choice", "Default", "Exact", "Input", "Output", "SafeInteger"],
        ),
        ("ipybox.tool_exec.approval.client", ["ApprovalClient", "ApprovalRequest"]),
        ("ipybox.tool_exec.approval.server", ["ApprovalChannel"]),
        ("ipybox.tool_exec.approval.policy", ["ApprovalPolicy"]),
        ("ipybox.audit.audit", ["AuditLog"]),
        (
            "ipybox.code_exec",
            ["CodeExecutionChunk", "CodeExecutionError", "CodeExecutionResult", "CodeExecutor"],
        ),
        ("ipybox.mcp_apigen", ["generate_mcp_sources"]),
        ("ipybox.mcp_client", ["MCPClient"]),
        ("ipybox.mcp_server", ["HTTPServerInfo", "MCPServer"]),
        ("ipybox.utils", ["arun"]),
    ],
)
def test_documented_deep_paths_exist(module: str, names: list[str]):
    assert [name for name in names if not hasattr(import_module(module), name)] == []


def test_importing_ipybox_loads_nothing_heavy(tmp_path: Path):
    modules = loaded_after("import ipybox", tmp_path)

    assert "ipybox" in modules
    assert under((*HOST_ONLY, "pydantic", "jupyter_client", "tornado", "asyncio", "nbformat"), modules) == set()


def test_modules_of_the_guest_load_nothing_of_the_host(tmp_path: Path):
    guest = {
        ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
        for path in (ROOT / "guest").rglob("*.py")
        if path.stem not in ("__init__", "sitecustomize")  # which Python imports by itself, under another name
    }
    modules = loaded_after(f"import {', '.join(sorted(guest))}", tmp_path)

    assert guest <= modules
    assert under((*HOST_ONLY, "ipybox.tool_exec.server", "ipybox.code_exec"), modules) == set()


def test_no_import_within_a_function_of_the_guest_is_one_of_the_host():
    paths = [*(ROOT / "guest").rglob("*.py")]
    imported: set[str] = set()
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                imported |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}

    assert "ipybox.guest.process" in imported
    assert under(HOST_ONLY, imported) == set()


def test_starting_an_executor_does_not_import_the_mcp_sdk(tmp_path: Path):
    modules = loaded_after(STARTS_AN_EXECUTOR, tmp_path)

    assert "ipybox.tool_exec.server" in modules
    assert under(("mcp", "mcp_types", "nbformat", "ipybox.mcp_apigen", "ipybox.mcp_client"), modules) == set()


def test_importing_what_generates_code_does_not_import_the_mcp_sdk(tmp_path: Path):
    modules = loaded_after("from ipybox import CodeExecutor, generate_mcp_sources", tmp_path)

    assert "ipybox.mcp_apigen" in modules
    assert under(("mcp", "mcp_types", "ipybox.mcp_client.client"), modules) == set()
