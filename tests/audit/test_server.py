"""The audit log of the MCP server: what its tools do, and what its client's user decides."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp_types import ElicitResult

from ipybox import ExecutorConfig
from ipybox.mcp_server import MCPServer, approver
from tests import servers
from tests.audit.lines import digest, events, log_of
from tests.conftest import Mode
from tests.mcp_server.in_process import connected
from tests.mcp_server.test_approver import CALL, User, accept, run
from tests.mcp_server.test_server import call, client_of, output, text_of
from tests.servers import WAIT


async def test_what_the_tools_of_the_server_do_is_recorded(tmp_path: Path, mode: Mode):
    params = servers.scripted() | {"env": {"TOKEN": "${CREDENTIAL}"}}
    code = "from mcptools.scripted import echo; echo.run(echo.Params(text='fr0m-the-env'))"
    async with client_of(
        tmp_path,
        *mode.options,
        CREDENTIAL="fr0m-the-env",
        KERNEL_ENV_API_KEY="kernel-value",
        KERNEL_ENV_PORT="8080",
        PIP_NO_INDEX="1",
        PIP_CONFIG_FILE=os.devnull,
    ) as client:
        registered = await call(client, "register_mcp_server", server_name="scripted", server_params=params)
        assert not registered.is_error, text_of(registered)
        await call(client, "register_mcp_server", server_name="scripted", server_params={"command": "missing"})
        await call(client, "install_package", package_name="packaging")
        await call(client, "install_package", package_name="--help")
        await call(client, "execute_ipython_cell", code=f"x = 'kernel-value', 8080\n{code}")
        await output(client, "1", session="other")
        await call(client, "reset", session="other")

    text = (tmp_path / ".ipybox" / "audit.jsonl").read_text()
    assert "fr0m-the-env" not in text
    assert "kernel-value" not in text
    done, failed = events(tmp_path, "registration")
    assert done["server_params"]["env"] == {"TOKEN": "${CREDENTIAL}"}
    assert {"echo", "fail"} <= set(done["tools"])
    assert (failed["outcome"], failed["server_params"]) == ("error", {"command": "missing"})
    assert "command not found" in failed["error"]
    done, failed = events(tmp_path, "package_install")
    assert (done["package_name"], done["outcome"]) == ("packaging", "ok")
    assert done["message"].endswith("is already installed")
    assert (failed["package_name"], failed["outcome"]) == ("--help", "error")
    assert events(tmp_path, "decision")[0]["by"] == "auto"
    assert events(tmp_path, "cell")[0]["code"].startswith("x = '${KERNEL_ENV_API_KEY}', 8080\n")
    sessions = [(line["session_name"], line["action"]) for line in events(tmp_path, "session")]
    assert sessions == [("default", "start"), ("other", "start"), ("other", "stop"), ("default", "stop")]


async def test_a_secret_in_plain_text_is_told_when_a_server_is_registered_and_is_in_no_error_and_not_in_the_log(
    tmp_path: Path,
):
    (tmp_path / ".env").write_text("PORT=8080\n")
    params = servers.scripted("--api-key=l1teral") | {"env": {"PASSWORD": "correct-horse", "PAGER": "cat"}}
    async with client_of(tmp_path) as client:
        registered = text_of(await call(client, "register_mcp_server", server_name="scripted", server_params=params))
        missing = {"command": sys.executable, "args": ["-c", "import sys; sys.exit(sys.argv)", "--token", "l1teral"]}
        failed = text_of(await call(client, "register_mcp_server", server_name="missing", server_params=missing))
        await output(client, "8080")

    env, option, *tools = registered.splitlines()
    assert env.startswith("env PASSWORD is a plain-text secret ")
    assert "with ${PASSWORD} in its place" in env
    assert "PASSWORD=<the secret> to .env" in env
    assert option.startswith("the argument --api-key is a plain-text secret ")
    assert "SCRIPTED_API_KEY=<the secret> to .env" in option
    assert "echo" in tools
    assert "--token [redacted]" in failed
    log = (tmp_path / ".ipybox" / "audit.jsonl").read_text()
    for text in (registered, failed, log):
        assert "l1teral" not in text
        assert "correct-horse" not in text
    assert events(tmp_path, "cell")[-1]["code"] == "8080"


async def test_decisions_of_the_clients_user_are_told_from_those_of_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(approver, "READING_TIME", 0)
    servers.register(tmp_path, scripted=servers.scripted())
    user = User(accept(), ElicitResult(action="decline"), ElicitResult(action="cancel"), accept("always for this tool"))
    server = MCPServer(ExecutorConfig(working_dir=tmp_path), approve="ask", audit="hash")
    async with connected(server, elicitation_callback=user, mode="legacy") as client:
        for _ in range(5):
            await run(client, CALL)
    decisions = [(line["accepted"], line["by"]) for line in events(tmp_path, "decision")]
    assert decisions == [(True, "user"), (False, "user"), (False, "nobody"), (True, "user"), (True, "rule")]
    assert events(tmp_path, "decision")[0]["arguments_hash"] == digest({"text": "hello"})


async def test_nothing_is_recorded_where_that_is_switched_off(tmp_path: Path):
    async with connected(MCPServer(ExecutorConfig(working_dir=tmp_path), audit="off")) as client:
        await output(client, "1")
    assert not (tmp_path / ".ipybox").exists()


async def test_server_does_not_start_without_its_log_or_its_calls_say_so_and_do_nothing(tmp_path: Path):
    (tmp_path / ".ipybox").touch()
    command = [sys.executable, "-m", "ipybox", "--workspace", str(tmp_path)]
    done = await asyncio.to_thread(
        subprocess.run, command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=WAIT, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("ipybox: can't write the audit log: ")
    assert done.stderr.endswith("or set --audit to off\n")

    async with client_of(tmp_path, "--late-checks") as client:
        calls: list[tuple[str, dict[str, Any]]] = [
            ("execute_ipython_cell", {"code": "1"}),
            ("register_mcp_server", {"server_name": "x", "server_params": servers.scripted()}),
            ("install_package", {"package_name": "packaging"}),
        ]
        for tool, arguments in calls:
            result = await call(client, tool, **arguments)
            assert result.is_error
            assert text_of(result).startswith("can't write the audit log: ")
        (tmp_path / ".ipybox").unlink()
        assert await output(client, "1") == "1"
    assert not (tmp_path / "mcptools").exists()
    assert [line["event"] for line in log_of(tmp_path)] == ["session", "cell", "session"]
