"""Programs that code starts need a decision with `approve_shell_cmds`, and only shell escapes start any with
`require_shell_escape`: once for each command, in every thread and child, whatever cells did before."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ipybox import ApprovalRequest, CodeExecutionError, CodeExecutor
from ipybox.errors import ExecutionCancelledError
from ipybox.tool_exec.approval.policy import ApprovalPolicy
from tests.conftest import Mode
from tests.servers import WAIT

pytestmark = pytest.mark.asyncio(loop_scope="module")

SHELL, MAGIC = "shell", "shell_magic"

ESCAPES = [
    pytest.param("!echo a", SHELL, {"cmd": "echo a"}, "a", id="escape"),
    pytest.param("def f(local):\n    !echo {local} $local\nf('b')", SHELL, {"cmd": "echo b b"}, "b b", id="expanded"),
    pytest.param("x = !echo c\nprint(x)", SHELL, {"cmd": "echo c"}, "['c']", id="captured"),
    pytest.param("!!echo d", SHELL, {"cmd": "echo d"}, "['d']", id="two"),
    pytest.param("%sx echo e", SHELL, {"cmd": "echo e"}, "['e']", id="sx"),
    pytest.param("%system echo f", SHELL, {"cmd": "echo f"}, "['f']", id="system"),
    pytest.param("%%bash\necho g\necho h", MAGIC, {"cmd": "echo g\necho h\n", "program": "bash"}, "g\nh", id="bash"),
    pytest.param("%%sh\necho i", MAGIC, {"cmd": "echo i\n", "program": "sh"}, "i", id="sh"),
    pytest.param("%%script sh -e\necho j", MAGIC, {"cmd": "echo j\n", "program": "sh -e"}, "j", id="script"),
]
RUN = """
import multiprocessing, os, pty, subprocess, threading
def run(*words, **options): print(subprocess.check_output(words, text=True, **options))
"""
STARTS = [
    pytest.param("run('echo', 'a  b')", {"cmd": "echo 'a  b'"}, id="subprocess"),
    pytest.param("run('echo c | cat', shell=True)", {"cmd": "echo c | cat"}, id="shell"),
    pytest.param("run('pwd', cwd='/')", {"cmd": "pwd", "cwd": "/"}, id="directory"),
    pytest.param("run('x', 'd', executable='/bin/echo')", {"cmd": "/bin/echo d", "argv0": "x"}, id="other_name"),
    pytest.param("run('/bin/echo', 'e', close_fds=False)", {"cmd": "/bin/echo e"}, id="subprocess_by_posix_spawn"),
    pytest.param("assert os.system('echo f') == 0", {"cmd": "echo f"}, id="os_system"),
    pytest.param("print(os.popen('echo g').read())", {"cmd": "echo g"}, id="os_popen"),
    pytest.param("assert os.spawnlp(os.P_WAIT, 'echo', 'echo', 'h') == 0", {"cmd": "echo h"}, id="os_spawn"),
    pytest.param(
        "os.waitpid(os.posix_spawnp('echo', ['echo', 'i'], os.environ), 0)", {"cmd": "echo i"}, id="os_posix_spawn"
    ),
    pytest.param(
        "t = threading.Thread(target=run, args=['echo', 'j']); t.start(); t.join()", {"cmd": "echo j"}, id="thread"
    ),
    pytest.param(
        "import asyncio\np = await asyncio.create_subprocess_exec('echo', 'k')\nassert await p.wait() == 0",
        {"cmd": "echo k"},
        id="await",
    ),
    pytest.param(
        "with multiprocessing.get_context('fork').Pool(1) as pool: pool.apply(run, ['echo', 'l'])",
        {"cmd": "echo l"},
        id="forked_pool",
    ),
    pytest.param(
        "if not (child := os.fork()): os.execvp('/bin/echo', ['/bin/echo', 'm'])\nassert os.waitpid(child, 0)[1] == 0",
        {"cmd": "/bin/echo m"},
        id="exec_in_a_child",
    ),
]


class Approver:
    """Accepts commands, and rejects those with `no` in them."""

    def __init__(self) -> None:
        self.requests: list[ApprovalRequest] = []

    async def __call__(self, request: ApprovalRequest) -> None:
        self.requests.append(request)
        await (request.reject("not here") if "no" in request.tool_args["cmd"] else request.accept())

    def seen(self) -> list[tuple[str, str, str, dict[str, Any]]]:
        """Returns what it was asked about since the last call."""
        requests, self.requests = self.requests, []
        return [(each.kind, each.server_name, each.tool_name, each.tool_args) for each in requests]


@pytest.fixture(scope="module")
def approver() -> Approver:
    return Approver()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor(
    tmp_path_factory: pytest.TempPathFactory, mode: Mode, approver: Approver, shared: None
) -> AsyncIterator[CodeExecutor]:
    async with CodeExecutor(
        working_dir=tmp_path_factory.mktemp("commands"),
        sandbox=mode.sandbox,
        approver=approver,
        approve_shell_cmds=True,
        kernel_env={"SHELL": "/bin/sh"},
    ) as running:
        await running.execute(RUN, WAIT)
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def strict(
    tmp_path_factory: pytest.TempPathFactory, mode: Mode, approver: Approver, shared: None
) -> AsyncIterator[CodeExecutor]:
    async with CodeExecutor(
        working_dir=tmp_path_factory.mktemp("strict"),
        sandbox=mode.sandbox,
        approver=approver,
        approve_shell_cmds=True,
        require_shell_escape=True,
    ) as running:
        await running.execute(RUN, WAIT)
        yield running


async def fails(executor: CodeExecutor, code: str) -> str:
    with pytest.raises(CodeExecutionError) as error:
        await executor.execute(code, WAIT)
    assert error.value.name == "ShellCommandError"
    return error.value.value or ""


@pytest.mark.parametrize(("code", "tool", "arguments", "text"), ESCAPES)
async def test_an_escape_is_asked_about_once_with_its_own_text(
    executor: CodeExecutor, approver: Approver, code: str, tool: str, arguments: dict[str, str], text: str
):
    assert (await executor.execute(code, WAIT)).text == text
    assert approver.seen() == [("shell", "ipybox", tool, arguments)]


@pytest.mark.parametrize(("code", "arguments"), STARTS)
async def test_a_start_of_a_program_is_asked_about_once(
    executor: CodeExecutor, approver: Approver, code: str, arguments: dict[str, str]
):
    await executor.execute(code, WAIT)
    assert approver.seen() == [("shell", "ipybox", SHELL, arguments)]


@pytest.mark.parametrize(
    "code",
    [
        "!echo no > ran",
        "x = !echo no > ran",
        "%%bash\necho no > ran",
        "run('echo no > ran', shell=True)",
        "os.system('echo no > ran')",
        "os.spawnl(os.P_WAIT, '/bin/sh', 'sh', '-c', 'echo no > ran')",
        "pty.spawn(['/bin/sh', '-c', 'echo no > ran'])",
    ],
)
async def test_a_rejected_command_does_not_run_and_fails_with_the_reason(
    executor: CodeExecutor, approver: Approver, code: str
):
    assert await fails(executor, code) == "the shell command was rejected: not here"
    assert len(approver.seen()) == 1
    assert (await executor.execute("os.path.exists('ran')", WAIT)).text == "False"


async def test_a_search_through_path_asks_once_even_if_rejected(executor: CodeExecutor, approver: Approver):
    code = "if not (child := os.fork()): os.execlp('echo', 'echo', 'no')\nos.WEXITSTATUS(os.waitpid(child, 0)[1])"
    text = (await executor.execute(code, WAIT)).text or ""
    assert "ShellCommandError: the shell command was rejected: not here" in text
    assert text.endswith("1")
    assert len(approver.seen()) == 1


async def test_code_that_can_do_without_a_program_goes_on(executor: CodeExecutor, approver: Approver):
    code = "import pickle\ntry: run('no')\nexcept OSError as e: print(pickle.loads(pickle.dumps(e)), e.errno)"
    assert (await executor.execute(code, WAIT)).text == "the shell command was rejected: not here 1"
    assert len(approver.seen()) == 1


async def test_it_holds_after_exit_and_reset_and_in_siblings(executor: CodeExecutor, approver: Approver):
    with pytest.raises(CodeExecutionError, match="SystemExit"):
        await executor.execute("exit()", WAIT)
    await fails(executor, "!no")
    await executor.reset()
    await fails(executor, "!no")
    await fails(executor, RUN + "run('no')")
    async with executor.sibling() as sibling:
        await fails(sibling, "!no")
        await fails(sibling, RUN + "run('no')")
    assert len(approver.seen()) == 5


async def test_a_cell_that_waits_for_approval_can_be_cancelled(executor: CodeExecutor):
    asked = asyncio.Event()

    async def wait(request: ApprovalRequest) -> None:
        asked.set()
        await request.decided()

    for code in ("!echo", "import subprocess\nsubprocess.run('echo')"):
        execution = asyncio.create_task(executor.execute(code, WAIT, approver=wait))
        async with asyncio.timeout(WAIT):
            await asked.wait()
        asked.clear()
        assert executor.cancel()
        with pytest.raises(ExecutionCancelledError, match="keeps its state"):
            await execution


async def test_with_require_shell_escape_only_escapes_start_programs(strict: CodeExecutor, approver: Approver):
    for code in (
        "run('echo')",
        "os.system('echo')",
        "os.spawnl(os.P_WAIT, '/bin/echo', 'echo')",
        "os.posix_spawn('/bin/echo', ['echo'], os.environ)",
        "os.execv('/bin/echo', ['echo'])",
        "pty.spawn('echo')",
    ):
        assert "use `!command`" in await fails(strict, code)
    assert approver.seen() == []
    assert (await strict.execute("!echo a\nx = !echo b\nprint(x)", WAIT)).text == "a\n['b']"
    assert (await strict.execute("%%bash\necho c", WAIT)).text == "c"
    assert [arguments["cmd"] for *_, arguments in approver.seen()] == ["echo a", "echo b", "echo c\n"]


async def test_a_policy_decides_on_commands_as_on_tool_calls(tmp_path: Path, mode: Mode):
    rules = "rules:\n- {effect: allow, server: ipybox, tool: shell, args: {cmd: {pattern: '^echo '}}}\n"
    policy = ApprovalPolicy(rules, tmp_path)
    async with CodeExecutor(
        working_dir=tmp_path, sandbox=mode.sandbox, approval_policy=policy, approve_shell_cmds=True, audit="full"
    ) as executor:
        assert (await executor.execute("!echo a", WAIT)).text == "a"
        assert "the approval policy requires approval" in await fails(executor, "!true")
    log = (tmp_path / ".ipybox" / "audit.jsonl").read_text()
    assert '"tool_name":"shell","arguments":{"cmd":"echo a"}' in log
    assert '"by":"rule"' in log
