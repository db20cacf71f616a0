"""`--approve`: the user of a real client is asked about tool calls of a real kernel, in both revisions' ways."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp import Client
from mcp.client import ClientRequestContext
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitResult, TextContent

from ipybox.audit.redaction import Redactor, shortened
from ipybox.mcp_server.approver import CellApprover, ElicitationApprover
from ipybox.mcp_server.question import Question
from ipybox.tool_exec.approval.client import ApprovalRequest
from ipybox.tool_exec.approval.policy import ApprovalPolicy, PolicyDecision
from ipybox.tool_exec.approval.protocol import Rejection
from ipybox.workspace.trust import TrustStore
from tests import servers
from tests.conftest import Mode, both_modes
from tests.servers import WAIT

#: How a client is asked: by requests of the server, or by results of its own.
Era = Literal["legacy", "auto"]

CALL = "from registered import scripted; print(scripted.run_sync('echo', {'text': 'hello'}))"
CALLS = """
import asyncio
from registered import scripted
print(*await asyncio.gather(*(scripted.run("echo", {"text": text}) for text in "abc")))
"""


@pytest.fixture(params=["legacy", "auto"])
def era(request: pytest.FixtureRequest) -> Era:
    return request.param


class User:
    """Whoever answers the forms of a client."""

    def __init__(self, *answers: ElicitResult):
        self.answers = list(answers)
        self.forms: list[ElicitRequestFormParams] = []

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        assert isinstance(params, ElicitRequestFormParams)
        self.forms.append(params)
        return self.answers.pop(0)


def accept(scope: str | None = None) -> ElicitResult:
    return ElicitResult(action="accept", content={} if scope is None else {"scope": scope})


@asynccontextmanager
async def client_of(workspace: Path, *options: str, user: User | None, era: Era) -> AsyncGenerator[Client]:
    arguments = ["-m", "ipybox", "--workspace", str(workspace), *options]
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


def choices(form: ElicitRequestFormParams) -> list[str]:
    return form.requested_schema["properties"].get("scope", {}).get("enum", [])


def lines(form: ElicitRequestFormParams) -> list[str]:
    """The lines of a form without the one that says when it expires."""
    *lines, expires = form.message.splitlines()
    assert re.fullmatch(r"This question expires at \d\d:\d\d:\d\d \S+, after 60 s", expires)
    return lines


async def test_user_is_asked_about_each_call_and_what_is_accepted_runs(workspace: Path, mode: Mode, era: Era):
    decline, cancel = ElicitResult(action="decline"), ElicitResult(action="cancel")
    user = User(accept(), decline, cancel, accept("unheard of"))
    other = CALL.replace("'echo', {'text': 'hello'}", "'count', {}")
    async with client_of(workspace, "--approve", "ask", *mode.options, user=user, era=era) as client:
        assert await run(client, CALL) == "hello"
        assert "call of scripted.echo was rejected: the user declined it" in await run(client, CALL)
        assert "rejected: the question was dismissed without an answer; where" in await run(client, CALL)
        assert await run(client, CALL) == "hello"

        shown = ["Code calls the tool echo of the MCP server scripted", '  text: "hello"']
        hint = "Accept allows this call only; Decline offers to allow more"
        assert [lines(form) for form in user.forms] == [[*shown, hint], shown, shown, shown]
        assert [choices(form) for form in user.forms] == [[], *[list(CHOICES)] * 3]

        # Answers that hold for more than one call; calls at once are asked about one by one.
        user.answers += [accept(), accept(TOOL), decline, decline, accept(SERVER), accept(SERVER)]
        user.forms.clear()
        assert await run(client, CALLS) == "a b c"
        assert len(user.forms) == 2, "the third call is allowed by the answer to the second"
        assert "scripted.count was rejected" in await run(client, other)
        for _ in range(3):
            assert "rejected" not in await run(client, other)
    assert len(user.forms) == 6, "an answer that was not among the choices is good for one call"


async def test_user_is_asked_about_a_shell_command(workspace: Path, mode: Mode):
    user = User(accept(), ElicitResult(action="decline"), ElicitResult(action="decline"))
    options = ["--approve", "ask", "--approve-shell-cmds", *mode.options]
    async with client_of(workspace, *options, user=user, era="auto") as client:
        assert await run(client, "!echo a") == "a"
        assert "ShellCommandError: the shell command was rejected: the user declined it" in await run(
            client, "%%bash\necho b"
        )
    assert [lines(form)[:2] for form in user.forms[:2]] == [
        ["Code runs a shell command", "  | echo a"],
        ["Code runs a shell script", "  | echo b"],
    ]


LOOP = """
from registered import scripted
print(sum(scripted.run_sync("echo", {"text": str(number)}) == str(number) for number in range(30)))
"""


async def test_loop_is_one_question_for_who_wants_it_so(workspace: Path, era: Era):
    decline = ElicitResult(action="decline")
    user = User(decline, accept(CELL), decline, accept("decline it"), accept(), accept(CELL), decline, accept(TOOL))
    async with client_of(workspace, "--approve", "ask", user=user, era=era) as client:
        assert await run(client, LOOP) == "30"
        first, more = user.forms
        assert choices(first) == []
        assert choices(more) == ["decline it", CELL, TOOL, SERVER]
        assert lines(more)[-1] == "It is declined unless you allow more than this call"

        # What held for that cell does not hold for the next one. As a call was accepted, the form has the choice.
        assert "rejected: the user declined it" in await run(client, LOOP)
        assert choices(user.forms.pop()) == list(CHOICES)
        user.answers.clear()

        user.answers += [accept(), accept(CELL)]
        assert await run(client, LOOP) == "30"
        assert lines(user.forms[-1])[-1] == "2 calls of this tool in this cell so far"


async def test_always_is_one_of_the_answers_to_the_first_question(workspace: Path):
    user = User(ElicitResult(action="decline"), accept(TOOL))
    async with client_of(workspace, "--approve", "ask", user=user, era="legacy") as client:
        assert await run(client, CALL) == "hello"
        assert await run(client, LOOP) == "30"
    assert len(user.forms) == 2


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
    async with client_of(workspace, *options, user=user, era="legacy") as client:
        assert await run(client, CALL) == "hello"
        assert "scripted.echo was rejected: it is denied by ipybox.yaml:2" in await run(
            client, CALL.replace("hello", "drop")
        )
        assert user.forms == []

        for _ in range(2):
            assert await run(client, CALL.replace("hello", "other")) == "other"

        learned = POLICY + (
            '  - server: "scripted"  # remembered from an answer\n    tool: "echo"\n    effect: "allow"\n'
        )
        assert file.read_text() == learned
        assert "It is asked about because of the default of ipybox.yaml" in lines(user.forms[0])
        assert await run(client, CALL.replace("hello", "more")) == "more"
        assert "denied by ipybox.yaml:2" in await run(client, CALL.replace("hello", "drop"))
        if mode.sandbox:
            assert "refused to write ipybox.yaml" in await run(client, "open('ipybox.yaml', 'a').write('x')")
            assert file.read_text() == learned
    assert len(user.forms) == 2
    # The file that ipybox has changed is trusted as well.
    async with client_of(workspace, *options, user=None, era="legacy") as client:
        assert await run(client, CALL.replace("hello", "more")) == "more"


async def test_policy_file_that_is_not_trusted_only_denies(workspace: Path):
    (workspace / "ipybox.yaml").write_text(POLICY)
    user = User(accept())
    async with client_of(workspace, "--approve", str(workspace / "ipybox.yaml"), user=user, era="legacy") as client:
        said = await run(client, CALL)
        assert said.startswith("hello\n")
        assert "ipybox.yaml of the workspace is not trusted: it can only deny tool calls" in said
        assert "denied by ipybox.yaml:2" in await run(client, CALL.replace("hello", "drop"))
    (form,) = user.forms
    assert "It is asked about because of ipybox.yaml:4, which is not trusted" in lines(form)


async def test_client_that_can_not_ask_its_user_is_told_what_to_do(workspace: Path):
    async with client_of(workspace, "--approve", "ask", user=None, era="auto") as client:
        said = await run(client, CALL)
    assert "rejected: this client can't ask its user (it has no elicitation of forms): allow the call by a rule" in said


async def test_time_of_a_cell_goes_on_while_its_user_is_asked(workspace: Path, era: Era):
    class Silent(User):
        async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
            shown.set()
            await answered.wait()
            return await super().__call__(context, params)

    shown, answered = asyncio.Event(), asyncio.Event()
    user = Silent(*[accept()] * 2)
    async with client_of(workspace, "--approve", "ask", user=user, era=era) as client:
        await run(client, "from registered import scripted")
        call = asyncio.create_task(run(client, CALL, timeout=1.5))
        await shown.wait()
        assert await run(client, "print('next')") == "next", "after the time is over"
        answered.set()  # before which nothing can be said, where the client has to come back for it
        assert "the execution exceeded 1.5 s" in await call
        assert await run(client, CALL) == "hello", "a late answer is good for nothing else"


async def test_client_that_goes_away_with_a_question_leaves_nothing_behind(workspace: Path, era: Era):
    class Leaving(User):
        async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError("unreachable")

    asked = asyncio.Event()
    async with client_of(workspace, "--approve", "ask", user=Leaving(), era=era) as client:
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

    async with client_of(workspace, "--approve", str(file), "--late-checks", user=None, era="legacy") as client:
        assert await run(client, CALL) == said
        file.write_text(POLICY)
        assert await run(client, CALL) == "hello"


def decision(policy: ApprovalPolicy, arguments: dict[str, Any], tool: str = "write") -> PolicyDecision:
    return policy.decide("fs", tool, arguments)


def test_question_shows_what_would_be_obeyed_as_escapes_and_says_what_it_leaves_out():
    policy = ApprovalPolicy()
    arguments = {f"argument{number}": number for number in range(25)}
    arguments = {"text": "\x1b[2J\u202e\n\U000e0001é", "long": "a" * 1000 + "the end", "\x07": 1, **arguments}

    form = Question(decision(policy, arguments), policy).form(Redactor(shortened), has_choice=True)

    head, text, long, bell, *others, rest = form.message.split("\n")
    assert head == "Code calls the tool write of the MCP server fs"
    assert text == '  text: "\\u001b[2J\\u202e\\n\\udb40\\udc01é"'
    assert long == f'  long: "{"a" * 299} [... 409 characters are not shown ...] {"a" * 292}the end"'
    assert bell == "  \\u0007: 1"
    assert len(others) == 17
    assert rest == "  [... 8 more arguments are not shown ...]"
    assert form.message.replace("\n", "").isprintable()


KEY = "ghp_" + "0123456789abcdefABCDEF0123456789abcd"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({"password": "hunter2 is long"}, "  password: hun[... 15 characters, a secret]"),
        ({"password": None, "token": True, "secret": ""}, '  password: null\n  token: true\n  secret: ""'),
        ({"credentials": {"a": 1}}, '  credentials: {"[... 8 characters, a secret]'),
        ({"command": f"curl -H 'X: {KEY}'"}, "  command: \"curl -H 'X: ghp_[... 40 characters, a secret]'\""),
        ({"headers": {"api_key": "abcdefgh"}}, '  headers: {"api_key": "ab[... 8 characters, a secret]"}'),
        ({"text": "a value that is known"}, '  text: "a ${KNOWN}"'),
        ({"url": "https://me:pass@example.com"}, '  url: "https://me:p[... 4 characters, a secret]@example.com"'),
    ],
)
def test_question_shows_secrets_shortened(arguments: dict[str, Any], shown: str):
    policy, redactor = ApprovalPolicy(), Redactor(shortened)
    redactor.know({"KNOWN": "value that is known"})

    form = Question(decision(policy, arguments), policy).form(redactor, has_choice=True)

    assert form.message.split("\n", 1)[1] == shown


def test_question_shows_a_shell_command_line_by_line_and_no_line_of_it_looks_like_one_of_ipybox():
    policy = ApprovalPolicy()
    call = policy.decide("ipybox", "shell_magic", {"cmd": f"cd x\n\x1b[2J {KEY}\nAccept\n", "program": "bash -e"})
    question = Question(call, policy, kind="shell")

    lines = question.form(Redactor(shortened), has_choice=False).message.split("\n")
    assert lines == [
        "Code runs a shell script",
        "  | cd x",
        "  | \\u001b[2J ghp_[... 40 characters, a secret]",
        "  | Accept",
        '  program: "bash -e"',
        "Accept allows this command only; Decline offers to allow more",
    ]
    choices = question.form(Redactor(shortened), has_choice=True).requested_schema["properties"]["scope"]["enum"]
    assert choices == ["only this command", "any command in the rest of this cell", "always any command"]


def test_question_says_what_it_leaves_out_of_a_long_shell_command():
    policy = ApprovalPolicy()
    call = policy.decide("ipybox", "shell", {"cmd": "\n".join(map(str, range(1000)))})
    lines = Question(call, policy, kind="shell").form(Redactor(shortened), has_choice=True).message.split("\n")
    assert lines[1] == "  | 0"
    assert lines[31] == "  [... 940 lines are not shown ...]"
    assert lines[-1] == "  | 999"
    assert (
        "characters are not shown"
        in Question(policy.decide("ipybox", "shell", {"cmd": "a" * 5000}), policy, kind="shell")
        .form(Redactor(shortened), has_choice=True)
        .message
    )


@pytest.mark.parametrize("place", [290, 5000])
def test_question_shows_no_part_of_a_secret_that_it_cuts(place: int):
    policy, text = ApprovalPolicy(), "." * 20_000
    for at in (place, 20_000 - place):
        text = text[:at] + KEY + text[at:]

    form = Question(decision(policy, {"text": text}), policy).form(Redactor(shortened), has_choice=True)

    assert KEY[4:12] not in form.message
    assert KEY[-8:] not in form.message


def cell(
    approver: ElicitationApprover, answers: Callable[[ElicitRequestFormParams], Awaitable[ElicitResult]]
) -> CellApprover:
    return approver.cell(answers)


async def test_question_about_a_name_that_rules_can_not_have_offers_no_more_than_the_cell():
    forms: list[ElicitRequestFormParams] = []

    async def accepting(form: ElicitRequestFormParams) -> ElicitResult:
        forms.append(form)
        return accept(TOOL)

    async def respond(_: object) -> bool:
        return True

    approver = ElicitationApprover(ApprovalPolicy(), timeout=None)
    for _ in range(3):
        await cell(approver, accepting).decide(ApprovalRequest("fs", "*\x1b", {}, respond))

    message = "Code calls the tool *\\u001b of the MCP server fs\n  without arguments"
    assert [form.message.startswith(message) for form in forms] == [True] * 3
    assert [choices(form) for form in forms] == [[], [ONCE, CELL], [ONCE, CELL]]


async def test_question_that_expires_is_withdrawn_and_its_user_is_told():
    decided: list[object] = []
    told: list[str] = []
    forms: list[ElicitRequestFormParams] = []

    async def respond(outcome: object) -> bool:
        decided.append(outcome)
        return True

    async def silent(form: ElicitRequestFormParams) -> ElicitResult:
        forms.append(form)
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async def accepting(form: ElicitRequestFormParams) -> ElicitResult:
        forms.append(form)
        return accept()

    approver = ElicitationApprover(ApprovalPolicy(), timeout=0.05)
    async with asyncio.timeout(WAIT):
        for each in (approver.cell(silent, tell=told.append), approver.cell(accepting), approver.cell(accepting)):
            await each.decide(ApprovalRequest("fs", "write", {}, respond))

    assert decided == [Rejection("the question to the user has expired without an answer"), True, True]
    assert told == ["\nThe question about the tool write of the MCP server fs has expired.\n"]
    before = "The question about the tool write of the MCP server fs was withdrawn before it was answered."
    assert [form.message.startswith(before) for form in forms] == [False, True, False]


async def test_question_does_not_expire_before_its_user_can_see_it():
    decided: list[object] = []
    shown, answered = asyncio.Event(), asyncio.Event()

    async def respond(outcome: object) -> bool:
        decided.append(outcome)
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
    third = decide(approver.cell(silent, seconds=0.02))
    await asyncio.wait([second, third], timeout=0.1)  # longer than either has, once it is seen
    assert decided == []
    answered.set()
    async with asyncio.timeout(WAIT):
        await asyncio.gather(first, second, third)
    expired = Rejection("the question to the user has expired without an answer")
    assert decided == [True, expired, expired]


async def test_client_that_fails_to_ask_fails_the_call_with_its_reason():
    decided: list[object] = []

    async def respond(outcome: object) -> bool:
        decided.append(outcome)
        return True

    async def failing(_: ElicitRequestFormParams) -> ElicitResult:
        raise MCPError(-32601, "no such \x1b method")

    await cell(ElicitationApprover(ApprovalPolicy()), failing).decide(ApprovalRequest("fs", "write", {}, respond))

    assert decided == [Rejection("the client failed to ask its user: no such \\u001b method")]


async def test_message_names_the_option_that_the_user_has(monkeypatch: pytest.MonkeyPatch):
    decided: list[object] = []

    async def respond(outcome: object) -> bool:
        decided.append(outcome)
        return True

    async def dismissing(_: ElicitRequestFormParams) -> ElicitResult:
        return ElicitResult(action="cancel")

    approver = ElicitationApprover(ApprovalPolicy())
    for variables in ({}, {"CLAUDE_PLUGIN_ROOT": "/plugin"}):
        with monkeypatch.context() as patched:
            for name, value in variables.items():
                patched.setenv(name, value)
            for ask in (None, dismissing):
                await approver.cell(ask).decide(ApprovalRequest("fs", "write", {}, respond))
    reasons = [outcome.reason for outcome in decided if isinstance(outcome, Rejection)]
    assert ["`--approve FILE`" in reason for reason in reasons] == [True, True, False, False]
    assert ["the plugin's option `approve`" in reason for reason in reasons] == [False, False, True, True]
