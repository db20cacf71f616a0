"""Real JupyterLab, started by the command that `ipybox attach` prints (`make attach`)."""

import asyncio
import json
import os
import re
import shlex
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from ipybox.code_exec.lifecycle import CAME
from tests.cli.test_attach import Command, attached
from tests.conftest import Mode
from tests.mcp_server.test_server import client_of, output
from tests.servers import WAIT

#: The virtual environment with JupyterLab, which `make attach` creates.
CLIENTS = Path(__file__).parents[2] / ".venv-attach" / "bin"

#: Seconds that JupyterLab has to start.
START = 4 * WAIT

pytestmark = pytest.mark.asyncio


@asynccontextmanager
async def agent_and_command(workspace: Path, mode: Mode) -> AsyncGenerator[tuple[Any, Command]]:
    """An agent with a session, in which `x` is 41, and the command for a person to join it."""
    async with client_of(workspace, *mode.options, JUPYTER_RUNTIME_DIR=os.environ["JUPYTER_RUNTIME_DIR"]) as agent:
        await output(agent, "x = 41")
        async with attached(workspace) as command:
            yield agent, command


async def test_a_notebook_of_jupyterlab_is_in_the_kernel_and_can_not_end_it(tmp_path: Path, mode: Mode):
    async with agent_and_command(tmp_path, mode) as (agent, command), lab(tmp_path, command) as http:
        # What the browser requests for a new notebook.
        notebook = {"path": "n.ipynb", "name": "n.ipynb", "type": "notebook", "kernel": {"name": "python3"}}
        async with http.post("/api/sessions", json=notebook) as answer:
            assert answer.status == 201, await answer.text()
            session = await answer.json()
        kernel_id = session["kernel"]["id"]
        async with http.ws_connect(f"/api/kernels/{kernel_id}/channels?session_id=tab") as websocket:
            assert await run(websocket, "x += 1; print(x)") == "42\n"
            seen = await output(agent, "x += 1; print(x)")
            assert seen.startswith("43")
            assert CAME in seen
            assert await run(websocket, "print(x)") == "43\n"
        async with http.post(f"/api/kernels/{kernel_id}/restart") as answer:
            assert answer.status >= 400
        async with http.delete(f"/api/kernels/{kernel_id}") as answer:
            assert answer.status == 204
        assert (await output(agent, "print(x)")).startswith("43")


@asynccontextmanager
async def lab(directory: Path, command: Command) -> AsyncGenerator[aiohttp.ClientSession]:
    """A client of a JupyterLab that runs as the command says."""
    line = (await command.until(r"JUPYTER_GATEWAY_URL=.* jupyter lab\n"))[0]
    *settings, program, subcommand = shlex.split(line)
    token = uuid.uuid4().hex
    process = await asyncio.create_subprocess_exec(
        *(str(CLIENTS / program), subcommand, "--no-browser", "--port=0", "--allow-root"),
        f"--IdentityProvider.token={token}",
        cwd=directory,
        env=os.environ | dict(setting.split("=", 1) for setting in settings),
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        log = ""
        async with asyncio.timeout(START):
            while (found := re.search(r"http://localhost:\d+", log)) is None:
                data = await process.stderr.readline()
                assert data, log
                log += data.decode()
        async with aiohttp.ClientSession(found[0], headers={"Authorization": f"token {token}"}) as http:
            await until_answered(http)
            yield http
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.communicate(), START)


async def until_answered(http: aiohttp.ClientSession) -> None:
    """Returns when JupyterLab answers: it prints its address before it listens, and nothing after that."""
    async with asyncio.timeout(START):
        while True:
            with suppress(aiohttp.ClientConnectionError):
                async with http.get("/api"):
                    return
            await asyncio.sleep(0.1)


async def run(websocket: aiohttp.ClientWebSocketResponse, code: str) -> str:
    """Returns what a cell prints."""
    msg_id = uuid.uuid4().hex
    header = {"msg_id": msg_id, "msg_type": "execute_request", "session": "tab", "username": "", "version": "5.3"}
    content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False, "stop_on_error": True}
    frame = {"channel": "shell", "header": header, "parent_header": {}, "metadata": {}, "content": content}
    await websocket.send_str(json.dumps(frame))
    printed = ""
    async with asyncio.timeout(START):
        while True:
            message = await websocket.receive_json()
            if message["parent_header"].get("msg_id") != msg_id:
                continue
            if message["msg_type"] == "stream":
                printed += message["content"]["text"]
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return printed
