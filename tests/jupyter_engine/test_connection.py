"""Connections to a Jupyter server that fail at once, are lost, or come back."""

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from ipybox import CodeExecutionError, CodeExecutor
from ipybox.errors import GatewayError
from ipybox.jupyter_engine import kernel
from tests.conftest import Fifo
from tests.jupyter_engine.conftest import SETUP, echo
from tests.jupyter_engine.foreign import TOKEN, JupyterServer, Wire, jupyter
from tests.servers import WAIT

# Without the fixture `mode`: a sandbox is an error here, see `test_address.py`.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.kernel]


async def refused(**options: Any) -> str:
    """Returns why an executor with these options does not start."""
    with pytest.raises(GatewayError) as caught:
        async with CodeExecutor(**options):
            pass
    assert TOKEN not in str(caught.value)
    return str(caught.value)


async def test_a_wrong_token_and_an_unknown_kernel_are_named(gateway: JupyterServer) -> None:
    assert "gateway_token is missing or wrong" in await refused(gateway_url=gateway.url, gateway_token="other")
    assert "gateway_token is missing or wrong" in await refused(gateway_url=gateway.url)
    known = {"gateway_url": gateway.url, "gateway_token": gateway.token}
    assert "no kernel named 'julia': it has python3" in await refused(**known, kernel_name="julia")
    assert "can't use the kernel with kernel_id='gone'" in await refused(**known, kernel_id="gone")


async def test_no_error_has_the_token_wherever_one_looks() -> None:
    async def specifications(_: web.Request) -> web.Response:
        return web.json_response({"kernelspecs": {"python3": {}}})

    async def created(_: web.Request) -> web.Response:
        return web.json_response({"id": "a"})

    async def refuse(_: web.Request) -> web.Response:
        raise web.HTTPForbidden

    app = web.Application()
    app.router.add_get("/api/kernelspecs", specifications)
    app.router.add_post("/api/kernels", created)
    app.router.add_route("*", "/{path:.*}", refuse)
    async with TestServer(app, host="127.0.0.1") as server:
        with pytest.raises(GatewayError, match="refused the connection to the kernel: HTTP 403") as caught:
            async with CodeExecutor(gateway_url=str(server.make_url("/")), gateway_token=TOKEN):
                pass

    error: BaseException | None = caught.value
    seen: list[str] = []
    while error is not None:
        seen.append(f"{error!r} {error.args!r} {vars(error)!r}")
        error = error.__cause__ or error.__context__
    assert len(seen) > 1
    assert TOKEN not in "".join(seen)


async def test_nobody_at_the_address(tmp_path: Path) -> None:
    async with Wire(1).running() as wire:
        url = f"http://127.0.0.1:{wire.port}"
        wire.down = True
        assert f"can't connect to the Jupyter server at {url}" in await refused(gateway_url=url)


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param((), id="default"),
        # As if the server was so slow that each message is alone in the seconds for which it counts.
        pytest.param(
            [
                f"--ZMQChannelsWebsocketConnection.{limit}"
                for limit in ("rate_limit_window=0.001", "iopub_data_rate_limit=3e9", "iopub_msg_rate_limit=0")
            ],
            id="slow server",
        ),
    ],
)
async def test_a_jupyter_server_below_a_path_whose_rate_limit_would_drop_output(
    limits: list[str], tmp_path: Path
) -> None:
    async with jupyter(tmp_path, "server", limits=limits) as limited:
        reason = await refused(gateway_url=limited.url, gateway_token=TOKEN)

    assert "limit_rate=False" in reason


async def test_tls_with_a_ca_of_ones_own(tmp_path: Path) -> None:
    certificate = tmp_path / "certificate.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names]
    key = tmp_path / "key.pem"
    make = [*command, "-keyout", str(key), "-out", str(certificate)]
    await asyncio.to_thread(subprocess.run, make, check=True, capture_output=True)
    both = tmp_path / "both.pem"
    both.write_text(key.read_text() + certificate.read_text())
    async with jupyter(tmp_path, "server", certificate=both) as server:
        assert "pass the certificate of its CA as gateway_ca" in await refused(
            gateway_url=server.url, gateway_token=TOKEN
        )
        async with CodeExecutor(
            gateway_url=server.url,
            gateway_token=TOKEN,
            gateway_ca=certificate,
            working_dir=tmp_path,
            tools=[echo],
        ) as executor:
            code = "from mcptools.app import echo; print(echo.run(echo.Params(text='over TLS')))"
            assert (await executor.execute(code)).text == "over TLS"


async def test_a_cell_and_its_calls_survive_a_lost_connection(
    gateway: JupyterServer, tmp_path: Path, fifo: Fifo
) -> None:
    async with Wire(gateway.port).running() as wire:
        url = gateway.through(wire)
        async with CodeExecutor(
            gateway_url=url, gateway_token=gateway.token, working_dir=tmp_path, tools=[echo]
        ) as executor:
            kernel_id = executor.kernel_id
            running = asyncio.create_task(
                executor.execute(
                    f"from mcptools.app import echo\nfor number in range(3):\n    {_ready(fifo)}\n"
                    f"    print(echo.run(echo.Params(text=str(number))))"
                )
            )
            for _ in range(3):
                await fifo.until("ready")
                wire.cut()
            result = await asyncio.wait_for(running, 3 * WAIT)

            assert (result.text or "").split()[-1:] == ["2"]
            assert any("connection to the kernel was lost" in notice for notice in result.notices)
            assert executor.kernel_id == kernel_id
            assert (await executor.execute("print(number)")).text == "2"


async def test_a_cell_whose_end_was_lost_does_not_hang(gateway: JupyterServer, tmp_path: Path, fifo: Fifo) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    headers = {"Authorization": f"token {gateway.token}"}
    base = f"{gateway.url}/"
    async with Wire(gateway.port).running() as wire, aiohttp.ClientSession(base, headers=headers) as session:
        url = gateway.through(wire)
        async with CodeExecutor(gateway_url=url, gateway_token=gateway.token, working_dir=tmp_path) as executor:
            # Another client of the kernel, so that the server keeps no messages for this one.
            async with session.ws_connect(f"api/kernels/{executor.kernel_id}/channels") as other:
                code = f"{_ready(fifo)}\nopen({str(go)!r}).read()\nx = 1"
                running = asyncio.create_task(executor.execute(code))
                await fifo.until("ready")
                wire.down = True
                wire.cut()
                await asyncio.to_thread(go.write_text, "")
                async with asyncio.timeout(WAIT):
                    while not _says_that_a_cell_ended(await other.receive_json()):
                        pass
                wire.down = False
                with pytest.raises(CodeExecutionError, match="its end was lost"):
                    await running
            assert (await executor.execute("print(x)")).text == "1"


async def test_a_connection_that_does_not_come_back_is_an_error(
    gateway: JupyterServer, tmp_path: Path, fifo: Fifo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "RECONNECT_TIMEOUT", 1.0)
    go = tmp_path / "go"
    os.mkfifo(go)
    async with Wire(gateway.port).running() as wire:
        url = gateway.through(wire)
        async with CodeExecutor(gateway_url=url, gateway_token=gateway.token, working_dir=tmp_path) as executor:
            kernel_id = executor.kernel_id
            running = asyncio.create_task(executor.execute(f"kept = 1\n{_ready(fifo)}\nopen({str(go)!r}).read()"))
            await fifo.until("ready")
            wire.down = True
            wire.cut()
            with pytest.raises(CodeExecutionError, match=f"gateway does not answer|with the id {kernel_id}"):
                await running
            with pytest.raises(CodeExecutionError, match="a new one can't be started"):
                await executor.execute("1")
            wire.down = False
            result = await executor.execute("print('back')")
            assert (result.text, result.kernel_restarted) == ("back", True)
    # The kernel was left behind, and its cell runs: a failed attempt to use it does not end it.
    adopting: dict[str, Any] = {"gateway_url": gateway.url, "gateway_token": gateway.token, "kernel_id": kernel_id}
    with pytest.raises(GatewayError, match="did not answer within 1 s"):
        async with CodeExecutor(**adopting, working_dir=tmp_path, kernel_init_timeout=1):
            pass
    await asyncio.to_thread(go.write_text, "")  # the cell ends
    async with CodeExecutor(**adopting, working_dir=tmp_path) as executor:
        result = await executor.execute("print(kept)")
        assert (result.text, result.kernel_restarted, executor.kernel_id) == ("1", False, kernel_id)


async def test_an_adopted_kernel_has_tools_and_is_left_running(gateway: JupyterServer, tmp_path: Path) -> None:
    options: dict[str, Any] = {"gateway_url": gateway.url, "gateway_token": gateway.token}
    async with CodeExecutor(**options, working_dir=tmp_path, tools=[echo]) as first:
        await first.execute(f"{SETUP.replace(', repeat', '')}\nstate = 7")
        kernel_id = first.kernel_id
        for _ in range(2):  # another application takes over, and leaves the kernel
            async with CodeExecutor(**options, working_dir=tmp_path, tools=[echo], kernel_id=kernel_id) as second:
                assert (await second.execute("print(state, call('taken over'))")).text == "7 taken over"
                assert second.kernel_id == kernel_id


def _ready(fifo: Fifo) -> str:
    """Returns a line of code that tells the test that it runs."""
    return f"with open({str(fifo.path)!r}, 'w') as file: print('ready', file=file)"


def _says_that_a_cell_ended(message: Any) -> bool:
    return (
        message["parent_header"].get("msg_type") == "execute_request"
        and message["msg_type"] == "status"
        and message["content"]["execution_state"] == "idle"
    )
