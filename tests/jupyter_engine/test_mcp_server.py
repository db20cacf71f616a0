"""The MCP server with kernels of a Jupyter server."""

import subprocess
import sys
from pathlib import Path

import pytest

from ipybox.code_exec import ExecutorConfig
from ipybox.mcp_server import MCPServer
from tests import servers
from tests.jupyter_engine.foreign import JupyterServer
from tests.mcp_server.test_server import call, client_of, output, text_of

# Without the fixture `mode`: a sandbox is an error here, see `test_address.py`.
pytestmark = pytest.mark.kernel


@pytest.mark.asyncio(loop_scope="module")
async def test_each_session_has_a_kernel_there_which_calls_tools_and_never_sees_the_token(
    gateway: JupyterServer, tmp_path: Path
) -> None:
    options = ["--gateway-url", gateway.url, "--kernel-name=python3"]
    async with client_of(tmp_path, *options, IPYBOX_GATEWAY_TOKEN=gateway.token, KERNEL_ENV_GREETING="hi") as client:
        await call(client, "register_mcp_server", server_name="scripted", server_params=servers.scripted())
        code = "from mcptools.scripted import echo; print(echo.run(echo.Params(text='from there')))"
        assert "from there" in await output(client, code)
        assert await output(client, "import os; one = 1; print(os.environ['GREETING'])") == "hi"
        assert await output(client, "print('one' in globals())", session="second") == "False"
        seen = await output(client, "print('IPYBOX_GATEWAY_TOKEN' in os.environ, os.path.exists('mcptools'))")
        assert seen == "False False"

        installed = await call(client, "install_package", package_name="six")
        assert installed.is_error
        assert "those of its environment" in text_of(installed)
    log = (tmp_path / ".ipybox/audit.jsonl").read_text()
    assert "from there" in log
    assert gateway.token not in log


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--gateway-url", "ftp://x"], "is not the URL of a server"),
        (["--gateway-url", "http://example.org"], "anybody on the way could read the token"),
        (["--gateway-url", "https://a:secret@example.org"], "can only have a host, a port and a path"),
        (["--gateway-url", "https://x", "--gateway-ca", "/absent.pem"], "No such file"),
        (["--gateway-url", "https://x", "--engine", "HERE"], "engine"),
        (["--gateway-url", "https://x", "--memory-limit", "1G"], "memory_limit does not apply"),
        (["--gateway-url", "https://x", "--allowed-dir", "."], "files are not copied"),
        (["--kernel-name", "python3"], "pass its gateway_url, too"),
    ],
)
def test_a_wrong_option_is_one_line(options: list[str], reason: str, tmp_path: Path) -> None:
    (tmp_path / "ipybox").mkdir()
    (tmp_path / "ipybox/engines.yaml").write_text("HERE: {command: [true]}")
    command = [sys.executable, "-m", "ipybox", "--workspace", str(tmp_path), *options]
    env = {"XDG_CONFIG_HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path), "IPYBOX_GATEWAY_TOKEN": "not-shown"}
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("ipybox: ")
    assert reason in line
    assert "secret" not in line
    assert "not-shown" not in line


def test_files_are_refused_when_the_server_is_made(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="files are not copied"):
        MCPServer(ExecutorConfig(working_dir=tmp_path, gateway_url="https://x"), allowed_dirs=["."])
