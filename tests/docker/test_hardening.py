"""What code in the container can't do: each test runs some, with all that the launcher asks of Docker."""

import json
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from socket import create_server
from typing import Any

import pytest

from ipybox.docker.container import MEMORY_BESIDE_CODE, PIDS_LIMIT, STATE, WORKSPACE, Options, create_command
from ipybox.docker.engine import find_engine
from tests.docker.conftest import NETWORK, client_of
from tests.mcp_server.test_server import call, output, text_of
from tests.servers import WAIT


def run(
    workspace: Path, image: str, code: str, *, network: str = NETWORK, memory_limit: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs Python code instead of ipybox in its container."""
    options = Options(workspace=workspace, image=image, network=network, memory_limit=memory_limit)
    program, create, *arguments = create_command(options, find_engine(image))
    assert create == "create"
    arguments = [*arguments[: arguments.index(image)], "--entrypoint", "python", image, "-c", code]
    return subprocess.run(
        [program, "run", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * WAIT,
        check=False,
    )


def result(workspace: Path, image: str, code: str, **options: Any) -> Any:
    """Returns the value of `result` after the code ran in the container."""
    done = run(workspace, image, f"import json\n{code}\nprint(json.dumps(result))", **options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


STATUS = "result = dict(line.split(':', 1) for line in open('/proc/self/status').read().splitlines())"


def test_no_process_has_a_capability(tmp_path: Path, image: str):
    status = result(tmp_path, image, STATUS)
    sets = [int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")]
    assert sets == [0, 0, 0, 0, 0]


def test_no_process_gets_new_privileges(tmp_path: Path, image: str):
    assert result(tmp_path, image, STATUS)["NoNewPrivs"].strip() == "1"


def test_system_calls_are_filtered(tmp_path: Path, image: str):
    assert result(tmp_path, image, STATUS)["Seccomp"].strip() == "2"


def test_only_the_workspace_and_what_ends_with_the_container_can_be_written(tmp_path: Path, image: str):
    others = ("/", "/etc", "/usr/local/bin", "/opt/ipybox/bin", "/app", "/var")
    writable = ["/tmp", "/home/ipybox", WORKSPACE, STATE]
    code = f"""
import os
result = {{}}
for place in {(*others, *writable)}:
    try:
        open(f"{{place}}/new", "w").close()
        result[place] = None
    except OSError as exc:
        result[place] = os.strerror(exc.errno)
"""
    outcome = result(tmp_path, image, code)
    assert [place for place, problem in outcome.items() if problem is None] == writable
    assert set(outcome.values()) <= {None, "Read-only file system", "Permission denied"}
    assert outcome["/opt/ipybox/bin"] == "Read-only file system"
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_nothing_of_this_machine_is_there_but_the_workspace(tmp_path: Path, image: str):
    (tmp_path.parent / "secret").write_text("s3cret")
    mounts = result(tmp_path, image, "result = [line.split()[:3] for line in open('/proc/self/mounts')]")
    of_disks = {target for source, target, _ in mounts if source.startswith("/")}
    of_docker = {"/etc/resolv.conf", "/etc/hostname", "/etc/hosts", "/sbin/docker-init", "/usr/sbin/docker-init"}
    assert of_disks - of_docker == {WORKSPACE, STATE}
    assert result(tmp_path, image, f"import os; result = os.path.exists({str(tmp_path.parent)!r})") is False


def test_code_does_not_run_as_root_unless_the_workspace_is_roots(tmp_path: Path, image: str):
    state = tmp_path.stat()
    ids = result(tmp_path, image, "import os; result = [os.getuid(), os.getgid(), *os.getgroups()]")
    assert set(ids[:2]) == {state.st_uid, state.st_gid}
    assert set(ids[2:]) <= {state.st_gid}


def test_memory_is_limited(tmp_path: Path, image: str):
    limit = 256 << 20
    code = f"kept = []\nfor _ in range(64): kept.append(b'x' * {(limit + MEMORY_BESIDE_CODE) // 32})\nprint('escaped')"
    done = run(tmp_path, image, code, memory_limit=limit)
    assert (done.returncode, done.stdout) == (137, "")


async def test_code_that_needs_more_memory_than_it_may_is_told_so(tmp_path: Path, image: str):
    async with client_of(tmp_path, image, "--memory-limit", "256M") as client:
        failed = await call(client, "execute_ipython_cell", code="x = []\nwhile True: x.append(b'x' * (1 << 24))")
        assert failed.is_error
        assert "256 MiB" in text_of(failed)
        assert await output(client, "6 * 7") == "42"


def test_the_number_of_processes_and_threads_is_limited(tmp_path: Path, image: str):
    code = f"""
import threading
hold = threading.Event()
result = 0
try:
    for _ in range({2 * PIDS_LIMIT}):
        threading.Thread(target=hold.wait, daemon=True).start()
        result += 1
except RuntimeError:
    pass
hold.set()
"""
    assert PIDS_LIMIT // 2 < result(tmp_path, image, code) < PIDS_LIMIT


@contextmanager
def listening() -> Generator[int]:
    """Listens on this machine's loopback, and yields the port."""
    with create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize(("network", "reaches"), [("none", False), (NETWORK, True)])
def test_this_machines_loopback_is_not_that_of_a_container_without_network(
    network: str, reaches: bool, tmp_path: Path, image: str
):
    with listening() as port:
        code = f"""
import socket
try:
    socket.create_connection(("127.0.0.1", {port}), 5).close()
    result = True
except OSError:
    result = False
"""
        assert result(tmp_path, image, code, network=network) is reaches


def test_a_container_without_network_has_no_interface_but_its_own_loopback(tmp_path: Path, image: str):
    code = "import socket; result = [name for _, name in socket.if_nameindex()]"
    assert result(tmp_path, image, code, network="none") == ["lo"]


async def test_code_runs_without_network_too(tmp_path: Path, image: str):
    async with client_of(tmp_path, image, "--network", "none") as client:
        assert await output(client, "6 * 7") == "42"
