"""The kernel gateway and its client: over a port, as other processes use them, and over private sockets."""

import asyncio
import inspect
import os
import signal
import socket
import stat
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import aiohttp
import pytest
import pytest_asyncio

from ipybox import CodeExecutor
from ipybox.errors import ExecutionTimeoutError, GatewayError, KernelDiedError, SandboxError
from ipybox.kernel_mgr.client import ExecutionError, ExecutionResult, KernelClient
from ipybox.kernel_mgr.remote_kernel import RemoteKernel
from ipybox.kernel_mgr.server import KernelGateway
from ipybox.support.tokens import find_token, token_file
from tests import servers
from tests.code_exec.test_lifecycle import command_of
from tests.conftest import GRACE, Mode
from tests.servers import WAIT

pytestmark = pytest.mark.asyncio(loop_scope="module")


def kernels() -> set[int]:
    """The processes of kernels."""
    return {pid for pid in servers.descendants() if "ipybox.guest.kernel" in command_of(pid)}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory, mode: Mode, shared: None) -> AsyncIterator[KernelGateway]:
    directory = tmp_path_factory.mktemp("gateway")
    async with KernelGateway(port=0, working_dir=directory, sandbox=mode.sandbox) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(gateway: KernelGateway, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KernelClient]:
    async with KernelClient(port=port(gateway), images_dir=tmp_path_factory.mktemp("images")) as connected:
        yield connected


def port(gateway: KernelGateway) -> int:
    assert gateway.port
    return gateway.port


async def status(
    gateway: KernelGateway, headers: dict[str, str], path: str = "/api/kernels", method: str = "GET"
) -> int:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, f"http://localhost:{gateway.port}{path}", headers=headers) as response,
    ):
        return response.status


async def test_a_client_needs_host_and_port_only(client: KernelClient):
    assert await client.execute("print('hello'); 1 + 1") == ExecutionResult("hello\n2", [])
    assert client.kernel_id


async def test_a_stream_yields_text_and_then_the_result_with_the_images(client: KernelClient):
    code = "from IPython.display import Image\nprint('text')\ndisplay(Image(b'\\x89PNG\\r\\n\\x1a\\n', format='png'))"
    *chunks, result = [item async for item in client.stream(code)]
    assert "".join(map(str, chunks)) == "text\n"
    assert "" not in chunks
    assert isinstance(result, ExecutionResult)
    assert len(result.images) == 1


async def test_a_reset_that_overtakes_an_interrupt_is_the_only_one(
    client: KernelClient, monkeypatch: pytest.MonkeyPatch
):
    """The gateway then answers that there is no such kernel."""
    ids: list[str] = []

    async def overtaken(_: RemoteKernel) -> None:
        await client.reset()
        ids.append(client.kernel_id)
        raise GatewayError("HTTP 404")

    monkeypatch.setattr(RemoteKernel, "interrupt", overtaken)
    with pytest.raises(ExecutionTimeoutError, match="the kernel was reset while the code ran"):
        await client.execute("import time; time.sleep(1000)", timeout=0.5)
    assert (await client.execute("1")).text == "1"
    assert ids == [client.kernel_id]


async def test_the_token_can_be_read_by_the_same_user_only(gateway: KernelGateway):
    path = token_file("kernel-gateway", port(gateway))

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert find_token("kernel-gateway", port(gateway)) == gateway.token


@pytest.mark.parametrize("authorization", [{}, {"Authorization": "token wrong"}, {"Authorization": "Bearer "}])
async def test_requests_without_the_token_are_refused(gateway: KernelGateway, authorization: dict[str, str]):
    assert await status(gateway, authorization) == 401
    assert await status(gateway, authorization, method="POST") == 401


async def test_requests_with_the_token_are_answered(gateway: KernelGateway):
    assert await status(gateway, {"Authorization": f"token {gateway.token}"}) == 200


async def test_requests_for_a_foreign_host_are_refused_even_with_the_token(gateway: KernelGateway):
    headers = {"Authorization": f"token {gateway.token}", "Host": "evil.example"}

    assert await status(gateway, headers) == 403
    assert await status(gateway, headers, method="POST") == 403


async def test_a_websocket_of_a_foreign_origin_is_refused_even_with_the_token(
    gateway: KernelGateway, client: KernelClient
):
    url = f"http://localhost:{gateway.port}/api/kernels/{client.kernel_id}/channels"
    async with aiohttp.ClientSession(headers={"Authorization": f"token {gateway.token}"}) as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as error:
            await session.ws_connect(url, origin="http://evil.example")
        assert error.value.status == 403
        async with session.ws_connect(url):
            pass


async def test_a_websocket_without_the_token_is_refused(gateway: KernelGateway, client: KernelClient):
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as error:
            await session.ws_connect(f"http://localhost:{gateway.port}/api/kernels/{client.kernel_id}/channels")
    assert error.value.status in (401, 403)


async def test_a_client_with_a_wrong_token_is_told_so(gateway: KernelGateway, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        patch.setattr("ipybox.support.endpoint.find_token", Mock(return_value="wrong"))
        with pytest.raises(GatewayError, match="HTTP 401"):
            await KernelClient(port=port(gateway)).connect()


async def test_the_kernel_does_not_know_the_token(gateway: KernelGateway, client: KernelClient):
    result = await client.execute("import os; print(sorted(os.environ.items()))")

    assert result.text is not None
    assert gateway.token
    assert gateway.token not in result.text


async def test_a_taken_port_is_an_error_at_once_that_names_it(gateway: KernelGateway):
    before = servers.descendants()
    with pytest.raises(OSError, match=f"can't listen on localhost port {gateway.port}: the port is already in use"):
        await KernelGateway(port=gateway.port).start()

    assert servers.descendants() == before


async def test_a_client_that_can_not_reach_a_gateway_says_where():
    with socket.create_server(("127.0.0.1", 0)) as freed:
        free = freed.getsockname()[1]
    with pytest.raises(RuntimeError, match=f"can't reach the kernel gateway at http://localhost:{free}"):
        await KernelClient(port=free).connect(retries=1, retry_interval=0.01)


async def test_a_client_waits_for_its_gateway(tmp_path: Path, mode: Mode):
    with socket.create_server(("127.0.0.1", 0)) as freed:
        free = freed.getsockname()[1]
    client = KernelClient(port=free)
    connecting = asyncio.create_task(client.connect(retries=200, retry_interval=0.05))
    async with KernelGateway(port=free, working_dir=tmp_path, sandbox=mode.sandbox):
        async with asyncio.timeout(WAIT):
            await connecting
        assert (await client.execute("1")).text == "1"
        await client.disconnect()


async def test_kernel_ends_with_its_client(gateway: KernelGateway, tmp_path: Path):
    async with KernelClient(images_dir=tmp_path, endpoint=gateway.endpoint) as other:
        ids = (await other.execute("import os; print(os.getpid(), os.readlink('/proc/self/ns/pid'))")).text or ""
        pid, namespace = ids.split()
        kernel = servers.outside(int(pid), namespace)
    async with asyncio.timeout(WAIT):
        assert await servers.until_dead({kernel}, servers.WAIT) == set()


async def test_a_client_that_is_not_connected_says_so():
    client = KernelClient()
    for use in (client.execute("1"), client.reset()):
        with pytest.raises((RuntimeError, KernelDiedError), match="not connected to a kernel"):
            await use
    with pytest.raises(RuntimeError, match="not connected to a kernel: call connect"):
        _ = client.kernel_id
    await client.disconnect()


@pytest.mark.parametrize("given", [None, Path("pictures"), Path("/tmp/pictures")])
async def test_a_client_knows_its_directory_of_images_as_in_0_9(given: Path | None):
    assert KernelClient(images_dir=given).images_dir == (given or Path("images"))


async def test_a_positional_argument_means_what_it_meant_in_0_9_or_is_an_error(tmp_path: Path):
    gateway = inspect.signature(KernelGateway).parameters.values()
    positional = [each.name for each in gateway if each.kind is each.POSITIONAL_OR_KEYWORD]
    assert positional[:4] == ["host", "port", "working_dir", "sandbox"]
    assert positional[4:] == ["sandbox_config", "log_level", "log_to_stderr", "env"]
    with pytest.raises(TypeError, match="positional arguments"):
        KernelClient("localhost", 8888, tmp_path, tmp_path)  # pyright: ignore[reportCallIssue]


async def test_a_kernel_that_does_not_answer_in_time_is_an_error_and_does_not_stay(
    gateway: KernelGateway, client: KernelClient, tmp_path: Path
):
    before = kernels()
    late = KernelClient(images_dir=tmp_path, endpoint=gateway.endpoint, kernel_init_timeout=0.01)
    with pytest.raises(GatewayError, match=r"^the kernel did not start: it did not respond within 0\.01 s$"):
        await late.connect()
    assert await servers.until_dead(kernels() - before, WAIT) == set()
    assert (await client.execute("1")).text == "1"


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
async def test_a_time_in_which_no_kernel_can_answer_is_an_error(timeout: float):
    for make in (KernelClient, CodeExecutor):
        with pytest.raises(ValueError, match=r"^kernel_init_timeout=(0|-1|nan) must be a positive number of seconds$"):
            make(kernel_init_timeout=timeout)


async def test_a_client_connects_once(client: KernelClient):
    with pytest.raises(RuntimeError, match="already connected to a kernel"):
        await client.connect()


async def test_errors_of_code_carry_traceback_and_output(client: KernelClient):
    with pytest.raises(ExecutionError) as error:
        await client.execute("print('before'); 1 / 0")

    assert str(error.value).endswith("ZeroDivisionError: division by zero")
    assert error.value.text == "before"


async def test_a_stream_gives_chunks_and_last_the_result(client: KernelClient):
    items: list[str | ExecutionResult] = []
    async for item in client.stream("print('a', flush=True); display('b')"):
        items.append(item)  # noqa: PERF401  a comprehension would hide what is iterated

    assert items == ["a\n", "'b'\n", ExecutionResult("a\n'b'", [])]


async def test_leaving_a_stream_interrupts_the_cell(client: KernelClient):
    async with aclosing(client.stream("x = 1\nprint('a', flush=True)\nimport time; time.sleep(60)")) as items:
        assert await anext(items) == "a\n"
    async with asyncio.timeout(WAIT):
        assert (await client.execute("x")).text == "1"


async def test_reset_gives_another_kernel(client: KernelClient):
    kernel_id = client.kernel_id
    await client.execute("x = 1")
    await client.reset()

    assert client.kernel_id != kernel_id
    assert (await client.execute("'x' in globals()")).text == "False"


async def test_a_kernel_that_dies_is_an_error_until_reset(client: KernelClient):
    for _ in range(2):
        with pytest.raises(KernelDiedError, match="the kernel died"):
            await client.execute("import os; os._exit(0)")
    assert not client.alive
    await client.reset()

    assert (await client.execute("1")).text == "1"


async def test_a_client_gets_a_kernel_from_a_gateway_that_was_restarted(tmp_path: Path, mode: Mode):
    gateway = KernelGateway(port=0, working_dir=tmp_path, sandbox=mode.sandbox)
    async with gateway, KernelClient(port=port(gateway), images_dir=tmp_path) as client:
        token = gateway.token
        await gateway.stop()
        await gateway.start()
        assert gateway.token != token
        await client.reset()

        assert (await client.execute("1 + 1")).text == "2"


async def test_the_port_and_its_token_are_gone_after_stop(tmp_path: Path, mode: Mode):
    gateway = KernelGateway(port=0, working_dir=tmp_path, sandbox=mode.sandbox)
    await gateway.start()
    path = token_file("kernel-gateway", port(gateway))
    assert path.exists()
    with pytest.raises(RuntimeError, match="already running"):
        await gateway.start()
    await gateway.stop()
    await gateway.stop()

    assert not path.exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port(gateway)))
    with pytest.raises(GatewayError, match="the kernel gateway is not running"):
        _ = gateway.endpoint


def listening_sockets() -> set[str]:
    """Returns the TCP sockets on which this process or one of its descendants listens."""
    held: set[str] = set()
    for pid in {os.getpid(), *servers.descendants()}:
        # An ordinary user can't look into a sandbox, which has a network of its own anyway.
        with suppress(FileNotFoundError, PermissionError):
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(FileNotFoundError):
                    held.add(os.readlink(entry))
    rows = [row.split() for table in ("tcp", "tcp6") for row in Path(f"/proc/net/{table}").read_text().splitlines()[1:]]
    return {f"socket:[{row[9]}]" for row in rows if row[3] == "0A"} & held


async def test_without_a_port_nobody_listens(gateway: KernelGateway, tmp_path: Path, mode: Mode):
    proxies = 1 if mode.sandbox else 0  # srt's own, which asks for a token that only its sandbox has
    before = listening_sockets()
    async with (
        KernelGateway(port=None, working_dir=tmp_path, sandbox=mode.sandbox) as private,
        KernelClient(endpoint=private.endpoint) as client,
    ):
        assert (await client.execute("1")).text == "1"
        assert private.port is None
        assert private.token is None
        now = listening_sockets()
        assert now >= before
        assert len(now - before) == proxies
    assert len(before) == 1 + proxies  # that of the module's gateway


def is_gateway(pid: int) -> bool:
    return b"ipybox.guest.gateway" in Path(f"/proc/{pid}/cmdline").read_bytes()


async def test_a_process_that_was_started_ahead_is_the_one_that_is_used(tmp_path: Path, mode: Mode):
    before = servers.descendants()
    gateway = KernelGateway(port=None, working_dir=tmp_path, sandbox=mode.sandbox)
    await gateway.spawn()
    spawned = servers.descendants() - before
    assert spawned
    assert gateway.spawned
    with pytest.raises(RuntimeError, match="already running"):
        await gateway.spawn()
    async with gateway, KernelClient(endpoint=gateway.endpoint, images_dir=tmp_path) as client:
        assert not gateway.spawned
        assert spawned <= servers.descendants()
        assert (await client.execute("1 + 1")).text == "2"


async def test_a_process_that_was_started_ahead_ends_also_if_nobody_comes(tmp_path: Path, mode: Mode):
    before = servers.descendants()
    executor = CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox)
    await executor.prepare()
    spawned = servers.descendants() - before
    assert spawned
    await executor.stop()
    assert await servers.until_dead(spawned, GRACE if mode.sandbox else 0) == set()


def links() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "ipybox-link"}


@pytest.mark.parametrize("moment", [servers.descendants, links], ids=["process", "link"])
async def test_a_start_that_is_cancelled_twice_leaves_nothing_and_can_be_stopped(
    tmp_path: Path, mode: Mode, moment: Callable[[], set[Any]]
):
    before, existed = servers.descendants(), moment()
    gateway = KernelGateway(port=0, working_dir=tmp_path, sandbox=mode.sandbox)
    starting = asyncio.create_task(gateway.start())
    while moment() <= existed:  # noqa: ASYNC110 - no event tells of it
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await gateway.stop()
    assert await servers.until_dead(servers.descendants() - before, GRACE) == set()
    assert not token_file("kernel-gateway", port(gateway)).exists()


async def test_what_the_gateway_writes_reaches_a_terminal_as_text_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    code = "import os; os.write(os.open(f'/proc/{os.getppid()}/fd/2', os.O_WRONLY), b'a\\x1b]0;b\\x07\\xc2\\x9b\\n')"
    async with (
        KernelGateway(port=None, working_dir=tmp_path, log_to_stderr=True) as gateway,
        KernelClient(endpoint=gateway.endpoint, images_dir=tmp_path) as client,
    ):
        await client.execute(code)

    assert r"a\u001b]0;b\u0007\u009b" in capsys.readouterr().err


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL])
async def test_a_gateway_that_does_not_answer_is_stopped(tmp_path: Path, mode: Mode, how: signal.Signals):
    before = servers.descendants()
    gateway = KernelGateway(port=None, working_dir=tmp_path, sandbox=mode.sandbox)
    await gateway.start()
    processes = servers.descendants() - before
    # Those around a sandbox have it below them.
    (pid,) = (pid for pid in processes if is_gateway(pid) and not any(map(is_gateway, servers.descendants(pid))))
    os.kill(pid, how)
    async with asyncio.timeout(WAIT):
        await gateway.stop(timeout=0.2)
        await gateway.join()

    assert not gateway.running
    # The template and what is in a sandbox end when the kernel of the system gets to it.
    assert await servers.until_dead(processes, GRACE) == set()


async def test_a_gateway_that_ends_at_its_start_is_an_error_with_its_last_words(
    tmp_path: Path, mode: Mode, monkeypatch: pytest.MonkeyPatch
):
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho no module named nothing >&2\nexit 1\n")
    script.chmod(0o700)
    with monkeypatch.context() as patch:
        patch.setattr("sys.executable", str(script))
        error = SandboxError if mode.sandbox else GatewayError
        with pytest.raises(error, match="the kernel gateway exited during startup:\nno module named nothing"):
            await KernelGateway(port=0, working_dir=tmp_path, sandbox=mode.sandbox).start()


@pytest.mark.kernel
async def test_a_kernel_whose_client_did_not_wait_for_the_answer_ends(tmp_path: Path):
    before = servers.descendants()
    async with (
        KernelGateway(port=None, working_dir=tmp_path) as gateway,
        KernelClient(endpoint=gateway.endpoint, images_dir=tmp_path) as client,
        gateway.endpoint.session() as session,
    ):
        earlier = kernels()
        (template,) = (pid for pid in servers.descendants() - before if "ipybox.guest.template" in command_of(pid))
        os.kill(template, signal.SIGSTOP)
        with pytest.raises(TimeoutError):
            await session.post("/api/kernels", json={"name": "python3"}, timeout=aiohttp.ClientTimeout(0.2))
        os.kill(template, signal.SIGCONT)
        async with session.post("/api/kernels", json={"name": "python3"}) as response:  # it is started after that one
            kernel_id = (await response.json())["id"]
        (claimed,) = (pid for pid in kernels() if kernel_id in command_of(pid))
        assert await servers.until_dead(kernels() - earlier - {claimed}, WAIT) == set()
        assert (await client.execute("1")).text == "1"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 201 X\r\nContent-Length: 2\r\n\r\n[]", id="no_object"),
        pytest.param(b"HTTP/1.1 201 X\r\nContent-Length: 7\r\n\r\nno JSON", id="no_json"),
        pytest.param(b"HTTP/1.1 201 X\r\nContent-Length: 2\r\n\r\n{}", id="no_kernel"),
        pytest.param(b"HTTP/1.1 307 X\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n", id="redirection"),
        pytest.param(b"HTTP/1.1 500 X\r\nContent-Length: 4\r\n\r\nfail", id="failure"),
    ],
)
async def test_a_hostile_answer_of_the_gateway_is_an_error(answer: bytes):
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readline())
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        with pytest.raises(GatewayError, match=r"/api/kernels|the kernel did not start"):
            await KernelClient("127.0.0.1", server.sockets[0].getsockname()[1]).connect(retries=0)

    assert not any(b"elsewhere" in request for request in requests)
