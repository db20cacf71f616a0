"""Kernels that are forked off the template are as those that are started as programs, and share no secrets."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ipybox import CodeExecutor
from ipybox.guest.template import SOCKET_TYPE
from ipybox.kernel_mgr import gateway_launch
from tests import servers
from tests.code_exec.test_lifecycle import command_of
from tests.conftest import Mode
from tests.servers import WAIT

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: A gateway whose template does not answer in time, as on a machine where it can't work.
WITHOUT_TEMPLATE = "from ipybox.guest import gateway, template_client; template_client.FORK_TIMEOUT = 0; gateway.main()"

#: Forks processes off a template as the gateway does, and prints the command line of one at the moment of the answer.
FORK = """
import asyncio, os, sys
from pathlib import Path
from ipybox.guest.descendants import adopt_orphans
from ipybox.guest.template import fork_template
from ipybox.guest.template_client import KernelTemplate
forked = fork_template(os.environ, "")
async def main():
    adopt_orphans(asyncio.get_running_loop(), set())
    template = KernelTemplate(*forked)
    process = await template.fork(["python", "kernel"])
    shown = Path(f"/proc/{process.pid}/cmdline").read_text().rstrip("\\0").split("\\0")
    assert f"PPid:\\t{os.getpid()}\\n" in Path(f"/proc/{process.pid}/status").read_text()
    assert await template.fork(["x" * 10_000]) is None
    print(shown)
asyncio.run(main())
"""

#: What code finds of its process, and what differs from kernel to kernel by nature.
STATE = """
import gc, json, locale, os, resource, signal, sys, threading, time
def kind(fd):
    try: return os.readlink(f"/proc/self/fd/{fd}").partition(":")[0]
    except OSError: return "closed"
own = [os.environ[name] for name in
    ("IPYBOX_KERNEL_ID", "IPYBOX_GATEWAY_ID", "IPYBOX_STDOUT", "TOOL_SERVER_TOKEN", "TOOL_SERVER_PORT")]
own.append(os.path.basename(os.path.dirname(os.environ["IPYTHONDIR"])))
def shown(text):
    for value in own:
        text = text.replace(value, "*")
    return "*" if text in (str(os.getpid()), str(os.getppid())) else text
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
state = {
    "environment": {name: shown(value) for name, value in sorted(os.environ.items())},
    "arguments": [shown(argument) for argument in sys.argv],
    "original arguments": [shown(argument) for argument in sys.orig_argv],
    "command line": [shown(argument) for argument in open("/proc/self/cmdline").read().rstrip("\\0").split("\\0")],
    "id in /proc": own[0] in open("/proc/self/environ").read(),
    "path": [shown(entry) for entry in sys.path],
    "flags": repr(sys.flags),
    "directory": [os.getcwd(), os.readlink("/proc/self/cwd")],
    "main": sorted(name for name in vars(sys.modules["__main__"]) if name.startswith("__")),
    "handlers": {number.name: repr(signal.getsignal(number)).partition(" at ")[0] for number in signal.Signals},
    "signals": [status[name] for name in ("SigBlk", "SigIgn", "SigCgt")],
    "limits": [resource.getrlimit(number) for number in range(16)],
    "locale": [locale.setlocale(locale.LC_CTYPE), locale.setlocale(locale.LC_COLLATE), locale.getpreferredencoding()],
    "time zone": time.tzname,
    "input": [sys.stdin.fileno(), kind(0), os.read(0, 1).decode(), sys.stdin.read()],
    "output": [kind(1), kind(2), sys.stdout.encoding, sys.__stdout__.encoding],
    "mask": status["Umask"],
    "privileges": {name: value for name, value in status.items() if name[:3] in ("Cap", "NoN", "Sec", "Uid", "Gid")},
    "group": [os.getpid() == os.getpgid(0) == os.getsid(0), os.getppid() > 0],
    "threads": threading.active_count(),
    "collector": [gc.isenabled(), gc.get_threshold(), len(gc.callbacks)],
    "descriptors": sum(kind(fd) in ("pipe", "/dev/null") for fd in range(256)),
    "start of modules": sorted({name.partition(".")[0] for name in sys.modules}),
}
print(json.dumps(state))
"""

STREAMS = """
import json, os, random, secrets, ssl, tempfile, uuid
print(json.dumps([random.random(), str(uuid.uuid4()), secrets.token_hex(), os.urandom(8).hex(), ssl.RAND_bytes(8).hex(),
    next(tempfile._get_candidate_names())]))
"""

WORKERS = """
import multiprocessing, subprocess, sys
def answers(method):
    with multiprocessing.get_context(method).Pool(1) as pool:
        return pool.map(abs, [-1])
results = [answers(method) for method in {methods}]
child = "import os, sys; print(os.environ['IPYBOX_KERNEL_ID'] != '', sys.stdin.read() == '')"
print(results, subprocess.run([sys.executable, "-c", child], capture_output=True, text=True).stdout.strip())
"""


@asynccontextmanager
async def without_template(**options: Any) -> AsyncGenerator[CodeExecutor]:
    """Runs an executor whose gateway starts each kernel as a new process."""
    command = gateway_launch.GatewayConfig._command  # pyright: ignore[reportPrivateUsage] - no option turns it off

    def changed(self: gateway_launch.GatewayConfig) -> list[str]:
        python, _, _, _, *arguments = command(self)  # python -P -m MODULE
        return [python, "-P", "-c", WITHOUT_TEMPLATE, *arguments]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gateway_launch.GatewayConfig, "_command", changed)
        async with CodeExecutor(**options) as executor:
            yield executor


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sibling(executor: CodeExecutor, shared: None) -> AsyncIterator[CodeExecutor]:
    async with executor.sibling() as sibling:
        yield sibling


async def answer(executor: CodeExecutor, code: str) -> Any:
    return json.loads((await executor.execute(code)).text or "")


async def test_a_forked_kernel_is_as_one_that_is_started_as_a_program(
    executor: CodeExecutor, sibling: CodeExecutor, workspace: Path, mode: Mode
):
    options: dict[str, Any] = {"kernel_env": {"GREETING": "hello"}, "working_dir": workspace, "sandbox": mode.sandbox}
    async with without_template(**options) as started:
        expected = await answer(started, STATE)
    for forked in (executor, sibling):
        state = await answer(forked, STATE)
        assert set(state.pop("start of modules")) >= set(expected["start of modules"])
        assert state == {name: value for name, value in expected.items() if name != "start of modules"}


async def test_each_kernel_has_random_numbers_of_its_own(executor: CodeExecutor, sibling: CodeExecutor):
    """The seed of hashes is the same, by nature: it is set when the template starts."""
    async with executor.sibling() as third:
        streams = [await answer(each, STREAMS) for each in (executor, sibling, third)]
    for drawn in zip(*streams, strict=True):
        assert len(set(drawn)) == 3, drawn


async def test_code_starts_processes_in_all_ways(tmp_path: Path, mode: Mode):
    """In a directory of its own, because new processes import from that of the kernel first."""
    methods = ["fork", "spawn", *([] if mode.sandbox else ["forkserver"])]  # which needs a socket with a path
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox) as forked:
        results = (await forked.execute(WORKERS.replace("{methods}", str(methods)))).text
    assert results == f"{[[1]] * len(methods)} True True"


async def test_variables_count_that_python_reads_when_it_starts(tmp_path: Path, mode: Mode):
    """The template is forked off the gateway, which has started without them."""
    variables = {"PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"}
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox, kernel_env=variables) as executor:
        found = await answer(executor, "import json, time; print(json.dumps([hash('ipybox'), time.tzname[0]]))")
    assert found == [hash_with_seed("7"), "JST"]


async def test_a_process_shows_the_command_line_of_its_kernel_as_soon_as_it_has_left_the_template(tmp_path: Path):
    """Else a monitor of limits that looks just then would take it for one that has left its kernel."""
    command = [sys.executable, "-c", FORK]
    done = await asyncio.to_thread(subprocess.run, command, cwd=tmp_path, capture_output=True, text=True, timeout=WAIT)
    assert (done.stdout, done.returncode) == ("['python', 'kernel']\n", 0), done.stderr


@pytest.mark.kernel
async def test_without_a_template_that_was_killed_kernels_are_programs(tmp_path: Path):
    """Without a sandbox; in one, no code can kill it (`tests/security/test_siblings.py`)."""
    before = templates()
    async with CodeExecutor(working_dir=tmp_path) as executor:
        (killed,) = templates() - before
        await executor.execute(f"import os; os.kill({killed}, 9)")
        for _ in range(2):
            await executor.reset()
            assert (templates() - before, await answer(executor, "1 + 1")) == (set(), 2)


def hash_with_seed(seed: str) -> int:
    program = [sys.executable, "-c", "print(hash('ipybox'))"]
    return int(subprocess.run(program, env={"PYTHONHASHSEED": seed}, capture_output=True, check=True).stdout)


def templates() -> set[int]:
    return {pid for pid in servers.descendants() if "ipybox.guest.template" in command_of(pid)}


@pytest.mark.parametrize("threads", [1, 2])
async def test_a_template_ends_with_its_gateway_or_if_it_has_threads_that_no_fork_would_have(
    tmp_path: Path, threads: int
):
    starts = f"import threading, time\nfor _ in range({threads - 1}):\n"
    starts += "    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    (tmp_path / "sitecustomize.py").write_text(starts)
    ours, theirs = socket.socketpair(socket.AF_UNIX, SOCKET_TYPE)
    with ours:
        ours.setblocking(False)
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *(
                    sys.executable,
                    "-P",
                    "-m",
                    "ipybox.guest.template",
                    str(theirs.fileno()),
                    str(os.getpid()),
                    "",
                    "{}",
                ),
                pass_fds=[theirs.fileno()],
                env=os.environ | {"PYTHONPATH": str(tmp_path)},
                stderr=subprocess.PIPE,
            )
        async with asyncio.timeout(WAIT):
            answer = await asyncio.get_running_loop().sock_recv(ours, 100)
    async with asyncio.timeout(WAIT):
        _, said = await process.communicate()
    refused = b"can't fork kernels from a process with 2 threads\n"
    assert (answer, process.returncode, said) == ((b"{}", 0, b"") if threads == 1 else (b"", 1, refused))
