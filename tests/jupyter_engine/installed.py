"""Jupyter servers with environments of their own, which `make jupyter` installs and runs in a network namespace.

Fixed ports are free there.
"""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp

from tests.jupyter_engine.foreign import JupyterServer, jupyter
from tests.servers import ROOT, WAIT

#: Kernel Gateway with ipykernel 6.29, and JupyterHub with ipykernel 7.
IPYKERNEL6 = ROOT / ".venv-jupyter6/bin"
IPYKERNEL7 = ROOT / ".venv-jupyter7/bin"

#: Where npm has installed the proxy of JupyterHub.
PROXY = ROOT / ".npm/jupyter/node_modules/.bin"

HUB_PORT = 8000
HUB_TOKEN = "token-of-an-administrator"

#: A hub whose users have servers as processes of this account.
HUB_CONFIG = f"""
c.JupyterHub.bind_url = "http://127.0.0.1:{HUB_PORT}"
c.JupyterHub.authenticator_class = "dummy"
c.JupyterHub.spawner_class = "simple"
c.Authenticator.allow_all = True
c.JupyterHub.services = [{{"name": "test", "api_token": "{HUB_TOKEN}"}}]
c.JupyterHub.load_roles = [
    {{"name": "test", "scopes": ["admin:users", "admin:servers", "tokens"], "services": ["test"]}}
]
c.Spawner.args = ["--allow-root", "--ZMQChannelsWebsocketConnection.limit_rate=False"]
c.Spawner.environment = {{"JUPYTERHUB_SINGLEUSER_APP": "jupyter_server.serverapp.ServerApp"}}
c.Spawner.start_timeout = 120
"""


@asynccontextmanager
async def ipykernel6_gateway(directory: Path) -> AsyncGenerator[JupyterServer]:
    """Runs a Kernel Gateway whose kernels have ipykernel 6.29."""
    async with jupyter(directory, python=IPYKERNEL6 / "python") as running:
        yield running


@asynccontextmanager
async def hub_server(directory: Path) -> AsyncGenerator[JupyterServer]:
    """Runs a JupyterHub, and the server of a user whose home is below the directory."""
    config = directory / "jupyterhub_config.py"
    config.write_text(HUB_CONFIG)
    env = {**os.environ, "PATH": os.pathsep.join([str(IPYKERNEL7), str(PROXY), os.environ["PATH"]])}
    log = directory / "hub.log"
    with log.open("w") as written:
        process = await asyncio.create_subprocess_exec(
            *(str(IPYKERNEL7 / "jupyterhub"), "--config", str(config)),
            cwd=directory,
            env=env,
            stdout=written,
            stderr=written,
        )
    try:
        try:
            token = await _started("me")
        except (TimeoutError, aiohttp.ClientError):
            raise AssertionError(log.read_text()) from None
        yield JupyterServer(HUB_PORT, token=token, path="/user/me")
    finally:
        with suppress(ProcessLookupError):
            process.terminate()  # it ends the servers of users, and the proxy
        await process.wait()


async def _started(user: str) -> str:
    """Starts the server of a user, and returns a token of that user."""
    headers = {"Authorization": f"token {HUB_TOKEN}"}
    async with asyncio.timeout(6 * WAIT), aiohttp.ClientSession(headers=headers, raise_for_status=True) as session:
        api = f"http://127.0.0.1:{HUB_PORT}/hub/api"
        while True:
            try:
                async with session.get(f"{api}/"):
                    break
            except (aiohttp.ClientError, OSError):
                await asyncio.sleep(0.2)  # JupyterHub has no signal that it is ready
        for path in ("", "/server"):
            async with session.post(f"{api}/users/{user}{path}"):
                pass
        async with session.get(f"{api}/users/{user}/server/progress") as progress:
            assert '"ready": true' in await progress.text()  # the text ends when the server has started
        async with session.post(f"{api}/users/{user}/tokens", json={"note": "ipybox"}) as made:
            return (await made.json())["token"]
