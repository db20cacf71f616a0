"""`--approve`: the user of a real client is asked about tool calls of a real kernel, in both revisions' ways."""

import asyncio
import os
import re
import socket
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp import Client
from mcp.client import ClientRequestContext
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitResult, TextContent

from ipybox import ExecutorConfig
from ipybox.audit.records import ApprovalDecision
from ipybox.mcp_server import MCPServer
from ipybox.mcp_server import approver as approver_module
from ipybox.mcp_server.approver import CellApprover, ElicitationApprover
from ipybox.tool_exec.approval.client import ApprovalRequest
from ipybox.tool_exec.approval.policy import ApprovalPolicy
from ipybox.tool_exec.approval.request import NoDecision
from ipybox.workspace.trust import TrustStore
from tests import servers
from tests.conftest import Mode, both_modes
from tests.mcp_server.in_process import connected
from tests.servers import WAIT

#: How a client is asked: by requests of the server, or by results of its own.
Era = Literal["legacy", "auto"]

#: Runs the server, which takes even answers at once for a person's.
AT_ONCE = """
from ipybox.cli.command import main
from ipybox.mcp_server import approver
approver.READING_TIME = 0
main()
"""

CALL = "from registered import scripted; print(scripted.run_sync('echo', {'text': 'hello'}))"
CALLS = """
import asyncio
from registered import scripted
print(*await asyncio.gather(*(scripted.run("echo", {"text": text}) for text in "abc")))
"""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the approvers of this process take even answers at once for a person's."""
    monkeypatch.setattr(approver_module, "READING_TIME", 0)


@pytest.fixture(params=["legacy", "auto"])
def era(request: pytest.FixtureRequest) -> Era:
    return request.param


class User:
    """Whoever answers the forms of a client. The servers of these tests take even answers at once for a person's."""

    def __init__(self, *answers: ElicitResult):
        self.answers = list(answers)
        self.forms: list[ElicitRequestFormParams] = []

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        assert isinstance(params, ElicitRequestFormParams)
        self.forms.append(params)
        return self.answers.pop(0)


def accept(scope: str = "only this call") -> ElicitResult:
    return ElicitResult(action="accept", content={"scope": scope})


def client_of(workspace: Path, *, user: User | None, era: Era, **options: Any) -> AbstractAsyncContextManager[Client]:
    """Connects to a server that asks its client, in this process."""
    server = MCPServer(ExecutorConfig(working_dir=workspace, **options), approve="ask")
    return connected(server, elicitation_callback=user, mode=era)


@asynccontextmanager
async def client_of_process(workspace: Path, *options: str, user: User | None, era: Era) -> AsyncGenerator[Client]:
    arguments = ["-c", AT_ONCE, "--workspace", str(workspace), *options]
    env = {"PATH": os.environ["PATH"], "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"]}
    server = StdioServerParameters(command=sys.executable, args=arguments, env=env)
    async with Client(server, elicitation_callback=user, mode=era) as client:
        yield client


async def run(client: Client, code: str, **arguments: Any) -> str:
    async with asyncio.timeout(2 * WAIT):
        result = await client.call_tool("execute_ipython_cell", {"code": code, **arguments})
    assert all(isinstance(block, TextContent) for block in result.content)
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    directory = tmp_path / "workspace"
    directory.mkdir()
    servers.register(directory, scripted=servers.scripted())
    return directory


ONCE, CELL, TOOL, SERVER = CHOICES = (
    "only this call",
    "the rest of this cell",
    "always for this tool",
    "always for this server",
)


SEVERAL = "only these calls"


def choices(form: ElicitRequestFormParams) -> list[str]:
    return form.requested_schema["properties"]["scope"]["enum"]


def hints(form: ElicitRequestFormParams) -> str:
    """The hints of a form without the one that says when it expires."""
    hints = form.requested_schema["properties"]["scope"]["description"]
    expires = re.match(r"Expires at \d\d:\d\d:\d\d \S+ \(60 s\)(?:\. )?", hints)
    assert expires is not None
    return hints[expires.end() :]


async def test_user_is_asked_about_each_call_and_what_is_accepted_runs(
    workspace: Path, mode: Mode, era: Era, monkeypatch: pytest.MonkeyPatch
):
    decline, cancel = ElicitResult(action="decline"), ElicitResult(action="cancel")
    user = User(accept(), decline, cancel, accept("unheard of"), ElicitResult(action="accept", content={}), accept())
    other = CALL.replace("'echo', {'text': 'hello'}", "'count', {}")
    async with client_of(workspace, sandbox=mode.sandbox, user=user, era=era) as client:
        assert await run(client, CALL) == "hello"
        assert "call to scripted.echo was rejected: the user declined it\n" in f"{await run(client, CALL)}\n"
        dismissed = "rejected: the form was dismissed without an answer\n"
        assert dismissed in f"{await run(client, CALL)}\n"
        for _ in range(2):
            assert "rejected: the user declined it" in await run(client, CALL), "no field has one of our values"
        assert await run(client, CALL) == "hello"

        assert {form.message for form in user.forms} == {'Code calls scripted.echo\n| text: "hello"'}
        assert [choices(form) for form in user.forms] == [list(CHOICES)] * 6
        assert {hints(form) for form in user.forms} == {"'Always' lasts until ipybox stops"}

        # Calls at once are one question, also if other calls came first, and however busy the machine is.
        monkeypatch.setattr(approver_module, "COLLECTING_TIME", 1)
        several = [SEVERAL, *CHOICES[1:]]
        user.answers += [accept(SEVERAL), decline, accept("only this call"), accept(TOOL), decline, accept(SERVER)]
        user.forms.clear()
        assert await run(client, CALLS) == "a b c"
        title, *rows = user.forms[0].message.splitlines()
        assert title == "Code calls scripted.echo 3 times"
        assert [row.rpartition(" ")[0] for row in rows] == [f"| #{number} text:" for number in (1, 2, 3)]
        # They arrive in any order.
        assert sorted(row[-3:] for row in rows) == ['"a"', '"b"', '"c"']
        for _ in range(2):
            assert "rejected: the user declined it" in await run(client, CALLS)
        assert await run(client, CALLS) == "a b c"
        assert [choices(form) for form in user.forms] == [several] * 4
        assert await run(client, CALLS) == "a b c"
        assert len(user.forms) == 4

        assert "scripted.count was rejected" in await run(client, other)
        for _ in range(3):
            assert "rejected" not in await run(client, other)
    assert len(user.forms) == 6


BATCH = """
from registered import scripted
for reply in scripted.run_many("echo", [{{"to": "all", "text": text}} for text in {}]):
    print(reply.get("error") or reply["content"][0]["text"])
"""


async def test_batch_is_one_form_for_what_the_rules_leave(workspace: Path, mode: Mode, era: Era):
    rules = ApprovalPolicy("rules:\n- {effect: deny, args: {text: [drop]}}\n- {effect: allow, args: {text: [free]}}\n")
    user = User(accept(SEVERAL), ElicitResult(action="decline"), accept(ONCE), accept(CELL))
    server = MCPServer(ExecutorConfig(working_dir=workspace, sandbox=mode.sandbox), approve=lambda: rules)
    async with connected(server, elicitation_callback=user, mode=era) as client:
        said = await run(client, BATCH.format(["a", "drop", "free", "b"]))
        assert said == "a\ncall to scripted.echo was rejected: denied by policy:2\nfree\nb"
        assert user.forms[0].message == 'Code calls scripted.echo 2 times\n| to: "all"\n| #1 text: "a"\n| #2 text: "b"'
        assert hints(user.forms[0]) == "'Always' lasts until ipybox stops"

        declined = "call to scripted.echo was rejected: the user declined it"
        assert await run(client, BATCH.format(["a", "free", "b"])) == f"{declined}\nfree\n{declined}"
        assert await run(client, BATCH.format(["a", "b"])) == f"{declined}\n{declined}", "an answer to a single call"
        assert await run(client, BATCH.format(["a", "b"]) * 2) == "a\nb\na\nb"
    assert len(user.forms) == 4


async def test_an_answer_about_calls_with_several_reasons_to_ask_covers_these_calls_only(workspace: Path):
    rules = ApprovalPolicy("rules:\n- {effect: ask, args: {text: [many]}}\n")
    user = User(*[accept(scope) for scope in (CELL, TOOL, SERVER, SEVERAL)], ElicitResult(action="decline"))
    server = MCPServer(ExecutorConfig(working_dir=workspace), approve=lambda: rules)
    async with connected(server, elicitation_callback=user, mode="legacy") as client:
        for _ in range(3):
            assert "rejected: the user declined it" in await run(client, BATCH.format(["few", "many"]))
        said = await run(client, BATCH.format(["few", "many"]) + CALL.replace("hello", "many"))
        assert said.startswith("few\nmany\n")
        assert "call to scripted.echo was rejected: the user declined it" in said
    assert [choices(form) for form in user.forms] == [[SEVERAL]] * 4 + [list(CHOICES)]


async def test_batch_too_long_for_a_form_is_in_its_file(workspace: Path):
    class Reading(User):
        async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
            assert isinstance(params, ElicitRequestFormParams)
            place = params.message.partition("Full text: ")[2].partition("\nCode")[0].replace("\n| ", "")
            files.append(Path(place).expanduser().read_text().splitlines())
            return await super().__call__(context, params)

    files: list[list[str]] = []
    user = Reading(accept(SEVERAL))
    async with client_of(workspace, user=user, era="auto") as client:
        said = await run(client, BATCH.format("map(str, range(300))"), max_output_chars=10_000)
    assert said.split() == [str(number) for number in range(300)]
    assert files == [
        ["Code calls scripted.echo 300 times", '  to: "all"', *(f'  #{n + 1} text: "{n}"' for n in range(300))]
    ]
    assert "Code calls scripted.echo 300 times (" in user.forms[0].message
    assert "  [... 241 lines not shown ...]\n" in user.forms[0].message


async def test_client_that_answers_itself_decides_on_each_call(workspace: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(approver_module, "READING_TIME", WAIT)
    user = User(*[accept()] * 4, accept(), accept(SEVERAL))
    async with client_of(workspace, user=user, era="legacy") as client:
        assert await run(client, CALLS) == "a b c"
        assert [len(form.message.splitlines()) for form in user.forms] == [4, 2, 2, 2]
        refused = "call to scripted.echo was rejected: the client declined it on its own"
        assert refused in await run(client, BATCH.format(["a", "b"]))
        assert await run(client, BATCH.format(["a", "b"])) == "a\nb"
    assert user.answers == []


async def test_user_is_asked_about_a_shell_command(workspace: Path, mode: Mode):
    user = User(accept("only this command"), ElicitResult(action="decline"))
    options = {"approve_shell_cmds": True, "sandbox": mode.sandbox}
    async with client_of(workspace, user=user, era="auto", **options) as client:
        assert await run(client, "!echo a") == "a"
        assert "ShellCommandError: the shell command was rejected: the user declined it" in await run(
            client, "%%bash\necho b"
        )
    assert [form.message for form in user.forms] == [
        "Code runs a shell command\n| echo a",
        'Code runs a shell script\n| echo b\n| program: "bash"',
    ]


LOOP = """
from registered import scripted
print(sum(scripted.run_sync("echo", {"text": str(number)}) == str(number) for number in range(30)))
"""


async def test_loop_is_one_question_for_who_wants_it_so(workspace: Path, era: Era):
    user = User(accept(CELL), ElicitResult(action="decline"), accept(), accept(CELL), accept(TOOL))
    async with client_of(workspace, user=user, era=era) as client:
        assert await run(client, LOOP) == "30"
        assert len(user.forms) == 1

        # What held for that cell does not hold for the next one.
        assert "rejected: the user declined it" in await run(client, LOOP)

        assert await run(client, LOOP) == "30"
        assert hints(user.forms[-1]).startswith("2 calls to this tool in this cell so far. 'Always' lasts")

        assert await run(client, CALL) == "hello"
        assert await run(client, LOOP) == "30"
    assert len(user.forms) == 5


POLICY = """\
rules:
  - effect: deny
    args: {text: {pattern: drop}}
  - effect: allow
    server: scripted
    tool: echo
    args: {text: [hello]}
"""


@both_modes
async def test_policy_file_decides_and_learns_and_code_in_the_sandbox_can_not_change_it(workspace: Path, mode: Mode):
    file = workspace / "ipybox.yaml"
    file.write_text(POLICY)
    TrustStore(workspace).trust(file, file.read_bytes())
    user = User(accept(), accept("always for this tool"))
    options = ("--approve", str(file), *mode.options)
    async with client_of_process(workspace, *options, user=user, era="legacy") as client:
        assert await run(client, CALL) == "hello"
        assert "scripted.echo was rejected: denied by ipybox.yaml:2" in await run(client, CALL.replace("hello", "drop"))
        assert user.forms == []

        for _ in range(2):
            assert await run(client, CALL.replace("hello", "other")) == "other"

        learned = file.read_text()
        assert re.sub(r"\n    registration: \"[0-9a-f]{32}\"", "", learned) == POLICY + (
            '  - server: "scripted"  # remembered from an answer\n    tool: "echo"\n    effect: "allow"\n'
        )
        kept = "'Always' is saved in ipybox.yaml"
        assert hints(user.forms[0]) == f"Asked because of the default of ipybox.yaml. {kept}"
        assert await run(client, CALL.replace("hello", "more")) == "more"
        assert "denied by ipybox.yaml:2" in await run(client, CALL.replace("hello", "drop"))
        if mode.sandbox:
            assert "refused to write ipybox.yaml" in await run(client, "open('ipybox.yaml', 'a').write('x')")
            assert file.read_text() == learned
    assert len(user.forms) == 2
    # The file that ipybox has changed is trusted as well.
    policy = ApprovalPolicy.load(file, workspace, TrustStore(workspace))
    assert policy.decide("scripted", "echo", {"text": "more"}, servers.scripted()).effect == "allow"


async def test_policy_file_that_is_not_trusted_only_denies(workspace: Path):
    (workspace / "ipybox.yaml").write_text(POLICY)
    user = User(accept())
    async with client_of_process(
        workspace, "--approve", str(workspace / "ipybox.yaml"), user=user, era="legacy"
    ) as client:
        said = await run(client, CALL)
        assert said.startswith("hello\n")
        assert "The workspace's ipybox.yaml is not trusted: it can only deny tool calls" in said
        assert "denied by ipybox.yaml:2" in await run(client, CALL.replace("hello", "drop"))
    (form,) = user.forms
    assert hints(form).startswith("Asked because of ipybox.yaml:4, which is not trusted")


async def test_client_that_can_not_ask_its_user_is_told_what_to_do(workspace: Path):
    async with client_of(workspace, user=None, era="auto") as client:
        said = await run(client, CALL)
    assert (
        "rejected: this client can't ask its user (it doesn't support form elicitation), so no person was asked. Tell "
        "the user: only they can answer, with `ipybox approvals --watch` in a terminal, or change what needs approval"
    ) in said


async def test_time_of_a_cell_stands_still_while_its_user_is_asked(workspace: Path, era: Era):
    class Silent(User):
        async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
            shown.set()
            await answered.wait()
            return await super().__call__(context, params)

    shown, answered = asyncio.Event(), asyncio.Event()
    user = Silent(*[accept()] * 2)
    async with client_of(workspace, user=user, era=era) as client:
        await run(client, "from registered import scripted")
        call = asyncio.create_task(run(client, f"{CALL}\nwhile True: pass", timeout=3))
        await shown.wait()
        assert "exceeded 4 s" in await run(client, "while True: pass", timeout=4, session="clock")
        answered.set()
        said = await call
        assert said.startswith("hello\n"), "the time was not over"
        assert "the execution exceeded 3 s" in said, "it goes on"
        assert await run(client, CALL) == "hello"


async def test_client_that_goes_away_with_a_question_leaves_nothing_behind(workspace: Path, era: Era):
    class Leaving(User):
        async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError("unreachable")

    asked = asyncio.Event()
    async with client_of(workspace, user=Leaving(), era=era) as client:
        call = asyncio.create_task(run(client, CALL))
        async with asyncio.timeout(WAIT):
            await asked.wait()
        call.cancel()
        await asyncio.wait([call])


async def test_policy_that_is_wrong_is_said_at_the_start_or_by_each_call(
    workspace: Path, tmp_path_factory: pytest.TempPathFactory
):
    file = tmp_path_factory.mktemp("rules") / "ipybox.yaml"
    file.write_text("rules:\n- effect: permit\n  tool: x\n")
    said = "ipybox.yaml:2: 'effect' must be allow, ask or deny, not 'permit'"

    options = ("-m", "ipybox", "--workspace", str(workspace), "--approve", str(file))
    started = await asyncio.create_subprocess_exec(
        sys.executable, *options, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, stderr = await started.communicate()
    assert (started.returncode, stderr.decode().strip()) == (1, f"ipybox: {said}")

    async with client_of_process(workspace, "--approve", str(file), "--late-checks", user=None, era="legacy") as client:
        assert await run(client, CALL) == said
        file.write_text(POLICY)
        assert await run(client, CALL) == "hello"


def cell(
    approver: ElicitationApprover, answers: Callable[[ElicitRequestFormParams], Awaitable[ElicitResult]]
) -> CellApprover:
    return approver.cell(answers)


async def test_question_about_a_name_that_rules_can_not_have_offers_no_more_than_the_cell():
    forms: list[ElicitRequestFormParams] = []
    decided: list[object] = []

    async def accepting(form: ElicitRequestFormParams) -> ElicitResult:
        forms.append(form)
        return accept(TOOL)

    async def respond(decision: ApprovalDecision) -> bool:
        decided.append(decision.accepted or decision.reason)
        return True

    approver = ElicitationApprover(ApprovalPolicy(), timeout=None)
    for _ in range(3):
        await cell(approver, accepting).decide(ApprovalRequest("fs", "*\x1b", {}, respond))

    message = 'Code calls fs."*\\u001b"\n| without arguments'
    assert [form.message for form in forms] == [message] * 3
    assert [choices(form) for form in forms] == [[ONCE, CELL]] * 3
    assert decided == ["the user declined it"] * 3, "that was not offered"


async def test_an_answer_about_packages_covers_no_commands():
    forms: list[ElicitRequestFormParams] = []

    async def accepting(form: ElicitRequestFormParams) -> ElicitResult:
        forms.append(form)
        return accept(TOOL)

    approver = ElicitationApprover(ApprovalPolicy(), timeout=None)
    for tool, arguments in (("install_package", {"package_name": "a"}), ("shell", {"cmd": "a"})):
        kind = "shell" if tool == "shell" else "tool"
        await cell(approver, accepting).decide(ApprovalRequest("ipybox", tool, arguments, None, kind=kind))
    assert [choices(form) for form in forms] == [
        [ONCE, CELL, TOOL],
        ["only this command", "any command in the rest of this cell", "always for any command"],
    ]


async def test_an_answer_to_a_form_that_another_one_has_just_replaced_does_not_count(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(approver_module, "READING_TIME", 0.2)
    forms: list[str] = []
    shown = asyncio.Event()

    async def ask(form: ElicitRequestFormParams) -> ElicitResult:
        forms.append(form.message)
        shown.set()
        await asyncio.sleep((WAIT, 0, 0.3)[len(forms) - 1])
        return (accept(), accept(), ElicitResult(action="decline"))[len(forms) - 1]

    decide = ElicitationApprover(ApprovalPolicy()).cell(ask).decide
    harmless, other = (ApprovalRequest("s", tool, {}, None) for tool in ("harmless", "other"))
    first = asyncio.create_task(decide(harmless))
    await shown.wait()
    harmless.settle("cancelled", NoDecision(False, "nobody", "the call has ended"))
    await first
    await decide(other)
    assert (await other.decided()) == ApprovalDecision(False, "user", "the user declined it")
    assert [form.partition("\n")[0] for form in forms] == ["Code calls s.harmless", *["Code calls s.other"] * 2]


async def test_the_rest_of_a_cell_is_allowed_for_the_same_rule_although_answers_move_lines(tmp_path: Path):
    rules = """rules:
- {effect: ask, server: other}
- {effect: ask, server: s, args: {text: {pattern: "^danger"}}}
# After an answer about the other server, the rule above is in the line of the one below.
#
- {effect: ask, server: s}
"""
    approver = ElicitationApprover(ApprovalPolicy(rules, tmp_path))
    answers = [accept(CELL), accept(TOOL), ElicitResult(action="decline")]

    async def ask(_: ElicitRequestFormParams) -> ElicitResult:
        return answers.pop(0)

    decide = approver.cell(ask).decide
    found: list[bool] = []
    for server, text in (("s", "a"), ("other", ""), ("s", "danger"), ("s", "b")):
        request = ApprovalRequest(server, "echo", {"text": text}, None)
        await decide(request)
        found.append((await request.decided()).accepted)
    assert (found, answers) == ([True, True, False, True], [])


async def test_call_that_a_rule_denies_by_the_time_of_its_form_is_not_asked_about(tmp_path: Path):
    (tmp_path / "place").mkdir()
    rules = "default: ask\nrules:\n- {effect: deny, args: {path: {path: 'secrets/**'}}}\n"
    approver = ElicitationApprover(ApprovalPolicy(rules, tmp_path))
    asked: list[ElicitRequestFormParams] = []

    async def ask(form: ElicitRequestFormParams) -> ElicitResult:
        asked.append(form)
        return accept()

    (tmp_path / "link").symlink_to("place")
    request = ApprovalRequest("fs", "read", {"path": "link/x"}, None)
    assert approver.policy.decide_on(request)[0].effect == "ask"
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("secrets")
    await approver.cell(ask).decide(request)
    assert (await request.decided()).accepted is False
    assert asked == []


async def test_question_that_expires_is_withdrawn_and_its_user_is_told():
    decided: list[object] = []
    told: list[str] = []

    async def respond(decision: ApprovalDecision) -> bool:
        decided.append(decision.accepted or decision.reason)
        return True

    async def silent(_: ElicitRequestFormParams) -> ElicitResult:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async def accepting(_: ElicitRequestFormParams) -> ElicitResult:
        return accept()

    approver = ElicitationApprover(ApprovalPolicy(), timeout=0.05)
    async with asyncio.timeout(WAIT):
        for each in (approver.cell(silent, tell=told.append), approver.cell(accepting)):
            await each.decide(ApprovalRequest("fs", "write", {}, respond))

    assert decided == ["the user didn't answer the form before it expired", True]
    assert told == ["\nThe form about the tool write on MCP server fs has expired.\n"]


async def test_question_expires_only_after_the_last_terminal_stops_watching():
    async def silent(_: ElicitRequestFormParams) -> ElicitResult:
        shown.set()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async def respond(decision: ApprovalDecision) -> bool:
        decided.append(decision.reason)
        return True

    shown, decided = asyncio.Event(), list[object]()
    approver = ElicitationApprover(ApprovalPolicy(), timeout=0.2)
    near, far = socket.socketpair()
    async with asyncio.timeout(WAIT), asyncio.TaskGroup() as tasks:
        tasks.create_task(approver.cell(silent).decide(ApprovalRequest("fs", "write", {}, respond)))
        await shown.wait()
        reader, writer = await asyncio.open_unix_connection(sock=near)
        terminal = await asyncio.open_unix_connection(sock=far)
        watching = tasks.create_task(approver.desk.answer({"approvals": "watch"}, reader, writer))
        await terminal[0].readline()
        await asyncio.sleep(0.5)  # longer than the timeout
        assert decided == []
        terminal[1].close()
        await watching
        writer.close()

    assert decided == ["the user didn't answer the form before it expired"]


async def test_question_does_not_expire_before_its_user_can_see_it():
    decided: list[object] = []
    shown, answered = asyncio.Event(), asyncio.Event()

    async def respond(decision: ApprovalDecision) -> bool:
        decided.append(decision.accepted or decision.reason)
        return True

    async def slow(_: ElicitRequestFormParams) -> ElicitResult:
        shown.set()
        await answered.wait()
        return accept()

    async def silent(_: ElicitRequestFormParams) -> ElicitResult:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    def decide(cell: CellApprover) -> "asyncio.Task[None]":
        return asyncio.create_task(cell.decide(ApprovalRequest("fs", "write", {}, respond)))

    approver = ElicitationApprover(ApprovalPolicy(), timeout=None)
    first = decide(approver.cell(slow))
    await shown.wait()
    approver.timeout = 0.01
    second = decide(approver.cell(silent))
    third = decide(approver.cell(silent))
    await asyncio.wait([second, third], timeout=0.1)  # longer than either has, once it is seen
    assert decided == []
    answered.set()
    async with asyncio.timeout(WAIT):
        await asyncio.gather(first, second, third)
    expired = "the user didn't answer the form before it expired"
    assert decided == [True, expired, expired]


async def test_client_that_fails_to_ask_fails_the_call_with_its_reason():
    decided: list[object] = []

    async def respond(decision: ApprovalDecision) -> bool:
        decided.append(decision.accepted or decision.reason)
        return True

    async def failing(_: ElicitRequestFormParams) -> ElicitResult:
        raise MCPError(-32601, "no such \x1b method")

    await cell(ElicitationApprover(ApprovalPolicy()), failing).decide(ApprovalRequest("fs", "write", {}, respond))

    assert decided == ["the client failed to ask its user: no such \\u001b method"]


async def test_message_names_the_option_that_the_user_has_if_nobody_was_asked(monkeypatch: pytest.MonkeyPatch):
    decided: list[object] = []

    async def respond(decision: ApprovalDecision) -> bool:
        decided.append(decision.accepted or decision.reason)
        return True

    async def dismissing(_: ElicitRequestFormParams) -> ElicitResult:
        return ElicitResult(action="cancel")

    approver = ElicitationApprover(ApprovalPolicy())
    for variables in ({}, {"CLAUDE_PLUGIN_ROOT": "/plugin"}):
        with monkeypatch.context() as patched:
            for name, value in variables.items():
                patched.setenv(name, value)
            for ask, reading_time in ((None, 0), (dismissing, 60), (dismissing, 0)):
                patched.setattr(approver_module, "READING_TIME", reading_time)
                await approver.cell(ask).decide(ApprovalRequest("fs", "write", {}, respond))
    reasons = [*map(str, decided)]
    assert ["`--approve FILE`" in reason for reason in reasons] == [True, True, False] + [False] * 3
    assert ["the plugin's option `approve`" in reason for reason in reasons] == [False] * 3 + [True, True, False]


async def test_answer_of_the_client_itself_holds_for_one_call(
    monkeypatch: pytest.MonkeyPatch,
):
    forms: list[ElicitRequestFormParams] = []
    told: list[str] = []

    async def respond(_: object) -> bool:
        return True

    async def hook(form: ElicitRequestFormParams) -> ElicitResult:
        forms.append(form)
        return accept(SERVER)

    approver = ElicitationApprover(ApprovalPolicy())
    decisions: list[tuple[bool, str]] = []
    one_cell = approver.cell(hook, tell=told.append)
    for reading_time in (60, 60, 0, 0):
        monkeypatch.setattr(approver_module, "READING_TIME", reading_time)
        request = ApprovalRequest("fs", "write", {}, respond)
        await one_cell.decide(request)
        decision = await request.decided()
        decisions.append((decision.accepted, decision.by))
    assert decisions == [(True, "client"), (True, "client"), (True, "user"), (True, "rule")]
    assert len(forms) == 3
    assert len([line for line in told if "The client accepted the call to fs.write on its own" in line]) == 2


async def test_long_call_is_in_a_file_of_its_user_while_it_is_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    text = "all:\n" + "\tmake test\n" * 100 + "\tmake evil\n"
    kept: list[tuple[Path, int, str]] = []

    async def respond(_: object) -> bool:
        return True

    async def reading(form: ElicitRequestFormParams) -> ElicitResult:
        notice = form.message.partition("\nCode calls")[0].replace("\n| ", "")
        file = Path(notice.removeprefix("Shortened. Full text: "))
        kept.append((file, file.stat().st_mode & 0o777, file.read_text()))
        return accept()

    request = ApprovalRequest("fs", "write", {"text": text}, respond)
    await cell(ElicitationApprover(ApprovalPolicy()), reading).decide(request)

    ((file, mode, whole),) = kept
    assert file.is_relative_to(tmp_path / "state")
    assert mode == 0o600
    assert whole.endswith("  | \tmake test\n  | \tmake evil\n")
    assert not file.exists()


async def test_long_call_is_asked_about_where_no_file_can_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "state").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    forms: list[ElicitRequestFormParams] = []

    async def respond(_: object) -> bool:
        return True

    async def reading(form: ElicitRequestFormParams) -> ElicitResult:
        forms.append(form)
        return accept()

    request = ApprovalRequest("fs", "write", {"text": "x" * 1000}, respond)
    await cell(ElicitationApprover(ApprovalPolicy()), reading).decide(request)
    assert forms[0].message.startswith("Shortened\nCode calls fs.write(")
