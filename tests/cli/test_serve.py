"""What a workspace's `.env` gives to kernels of the MCP server."""

import os
import sys
from pathlib import Path

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import TextContent

from ipybox.workspace.env_file import kernel_variables

pytestmark = pytest.mark.kernel


@pytest.mark.parametrize(
    "name",
    ["LD_PRELOAD", "LD_AUDIT", "PYTHONPATH", "PYTHONSTARTUP", "HOME", "IPYTHONDIR", "JUPYTER_PATH", "OPENSSL_CONF"],
)
def test_a_variable_that_has_code_loaded_is_left_out_and_named(name: str, caplog: pytest.LogCaptureFixture):
    others = {name: "1", "KERNEL_ENV_": "2", "XKERNEL_ENV_A": "3"}
    variables = {f"KERNEL_ENV_{name}": "evil", "KERNEL_ENV_GREETING": "hello", **others}
    assert kernel_variables(variables, trusted=False) == {"GREETING": "hello"}
    assert kernel_variables(variables) == {name: "evil", "GREETING": "hello"}
    assert f"ignoring KERNEL_ENV_{name} from the workspace's .env" in caplog.text


async def test_no_code_of_the_workspace_runs_when_a_client_connects(tmp_path: Path):
    mark = tmp_path / "mark"
    trap = f"open({str(mark)!r}, 'a').write('ran\\n')\n"
    workspace = tmp_path / "workspace"
    for name in ("sitecustomize.py", "usercustomize.py", "startup.py", ".ipython/profile_default/startup/00.py"):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text(trap)
    variables = {"PYTHONPATH": "", "PYTHONSTARTUP": "/startup.py", "HOME": "", "IPYTHONDIR": "/.ipython"}
    lines = [f"KERNEL_ENV_{name}={workspace}{value}\n" for name, value in variables.items()]
    (workspace / ".env").write_text("".join([*lines, "KERNEL_ENV_GREETING=hello\n"]))
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "XDG_STATE_HOME")}
    arguments = ["-P", "-m", "ipybox", "--workspace", str(workspace)]
    server = StdioServerParameters(command=sys.executable, args=arguments, env=environment)

    async with Client(server) as client:
        code = f"import os; print(os.environ.get('GREETING'), {str(workspace)!r} in os.environ['PYTHONPATH'])"
        (block,) = (await client.call_tool("execute_ipython_cell", {"code": code})).content

    assert isinstance(block, TextContent)
    assert block.text == "hello False"
    assert not mark.exists()
