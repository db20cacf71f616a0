"""`--approve writes`: a person agrees to a server's reading tools once, and is asked again about whatever changes."""

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp_types import ElicitRequestParams, ElicitResult

from ipybox import ExecutorConfig
from ipybox.code_exec import registration
from ipybox.mcp_server import MCPServer, approver
from ipybox.tool_exec import server_connections
from ipybox.tool_exec.approval.policy import ApprovalPolicy
from ipybox.workspace.registrations import Registration, record_file
from tests import servers
from tests.conftest import Mode
from tests.mcp_client.remote_server import remote_server
from tests.mcp_server.in_process import connected
from tests.mcp_server.test_approver import Era, User, run
from tests.servers import WAIT

READS, FETCHES = {"readOnlyHint": True, "openWorldHint": False}, {"readOnlyHint": True}
DECLINE = ElicitResult(action="decline")
THE_ONE = "read-only tools that stay offline (1)"
PLACE = Path("mcptools", "scripted")


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(approver, "READING_TIME", 0)
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"


@pytest.fixture(params=["legacy", "auto"])
def era(request: pytest.FixtureRequest) -> Era:
    return request.param


class Server:
    """A server whose tools a test can change."""

    def __init__(self, directory: Path):
        self.file = directory / "tools.json"
        self.params = servers.scripted("--tools", str(self.file))
        self.lists(echo=READS, env=FETCHES, pid=None)

    def lists(self, **hints: Any) -> None:
        tools = [{"name": name, "inputSchema": {"type": "object"}, "annotations": each} for name, each in hints.items()]
        self.file.write_text(json.dumps(tools))

    async def register(self, client: Client, *flags: str) -> str:
        params = {**self.params, "args": [*self.params["args"], *flags]}
        result = await client.call_tool("register_mcp_server", {"server_name": "scripted", "server_params": params})
        return result.content[0].text  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType, reportUnknownMemberType]


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


def serving(workspace: Path, user: Any, era: Era = "legacy", approve: Any = "writes", **options: Any) -> Any:
    server = MCPServer(ExecutorConfig(working_dir=workspace, **options), approve=approve)
    return connected(server, elicitation_callback=user, mode=era)


def chosen(choice: str) -> ElicitResult:
    return ElicitResult(action="accept", content={"unasked": choice})


def named(names: str) -> ElicitResult:
    return ElicitResult(action="accept", content={"tools": names})


def unasked(workspace: Path) -> dict[str, bool | None]:
    record = Registration.read(record_file(workspace.resolve() / PLACE))
    return {name: tool.unasked for name, tool in record.tools.items()}


def calling(tool: str, **arguments: Any) -> str:
    return f"from mcptools.scripted import CLIENT; print('ran', CLIENT.run_sync({tool!r}, {arguments!r}))"


async def test_one_answer_lets_reads_run_until_the_server_changes(
    workspace: Path, server: Server, mode: Mode, era: Era
):
    user = User(chosen(THE_ONE))
    async with serving(workspace, user, era, sandbox=mode.sandbox) as client:
        told = await server.register(client)
        assert told.startswith("2 of 3 tools only read, 1 of them reaches the internet; 1 runs without asking\n")
        [form] = user.forms
        assert form.message.startswith("MCP server scripted: let read-only tools run without asking?\n| ")
        assert form.requested_schema["properties"]["unasked"]["description"] == (
            "It says: 2 of 3 tools only read, 1 of them reaches the internet. ipybox can't check that. "
            "Stay offline: echo"
        )

        assert await run(client, calling("echo", text="a")) == "ran a"
        user.answers += [DECLINE, DECLINE]
        assert "call to scripted.env was rejected: the user declined it" in await run(client, calling("env"))
        assert "call to scripted.pid was rejected: the user declined it" in await run(client, calling("pid"))
        # The server admits that the tool writes.
        server.lists(echo={"readOnlyHint": False}, env=FETCHES, pid=None)
        told = await server.register(client)
        assert "changed: echo (read before you trust)" in told
        assert "1 of 3 tools only read, 1 of them reaches the internet; 0 run without asking" in told
        user.answers += [DECLINE]
        assert "call to scripted.echo was rejected: the user declined it" in await run(client, calling("echo"))
        assert user.answers == []


async def test_a_tool_that_has_changed_since_its_registration_asks(workspace: Path, server: Server, era: Era):
    user = User(chosen(THE_ONE))
    async with serving(workspace, user, era) as client:
        await server.register(client)
        server.lists(echo={"readOnlyHint": False}, env=FETCHES, pid=None)  # before its next start
        user.answers += [DECLINE]
        assert "call to scripted.echo was rejected: the user declined it" in await run(
            client, calling("echo", text="a")
        )
        server.lists(echo=READS, env=FETCHES, pid=None)
        await client.call_tool("reset", {})
        assert await run(client, calling("echo", text="a")) == "ran a"
        assert user.answers == []


async def test_a_tool_whose_change_the_running_server_announces_asks(workspace: Path, server: Server):
    user = User(chosen(THE_ONE))
    async with serving(workspace, user) as client:
        await server.register(client)
        assert await run(client, calling("echo", text="a")) == "ran a"
        server.lists(echo={"readOnlyHint": False}, env=FETCHES, pid=None)
        assert await run(client, calling("echo", text="a", announces=True)) == "ran a"
        user.answers += [DECLINE]
        assert "call to scripted.echo was rejected: the user declined it" in await run(
            client, calling("echo", text="a")
        )
        assert user.answers == []


async def test_each_call_of_a_batch_asks_once_its_tool_has_changed(workspace: Path, server: Server):
    user = User(chosen(THE_ONE))
    async with serving(workspace, user) as client:
        await server.register(client)
        assert await run(client, calling("echo", text="a")) == "ran a"
        server.lists(echo={"readOnlyHint": False}, env=FETCHES, pid=None)
        user.answers += [DECLINE]
        calls = [{"text": "a", "announces": True}, {"text": "b"}]
        told = await run(client, f"from mcptools.scripted import CLIENT; print(*CLIENT.run_many('echo', {calls}, 1))")
        assert "'text': 'a'" in told
        assert "call to scripted.echo was rejected: the user declined it" in told
        assert user.answers == []


async def test_a_server_that_a_changed_variable_puts_in_the_place_of_an_accepted_one_asks(
    workspace: Path, server: Server, tmp_path: Path
):
    other = tmp_path / "other.py"
    other.write_bytes(Path(servers.SCRIPTED_SERVER).read_bytes())
    variables = workspace / ".env"
    variables.write_text(f"PROGRAM={servers.SCRIPTED_SERVER}\nKEY=sk-0123456789abcdef")
    server.params["args"] = ["-S", "${PROGRAM}", *server.params["args"][2:], "${KEY}"]
    user = User(chosen(THE_ONE))
    async with serving(workspace, user) as client:
        await server.register(client)
        variables.write_text(f"PROGRAM={servers.SCRIPTED_SERVER}\nKEY=sk-another9012abcdef")
        assert await run(client, calling("echo", text="a")) == "ran a"
        variables.write_text(f"PROGRAM={other}\nKEY=sk-0123456789abcdef")
        await client.call_tool("reset", {})
        user.answers += [DECLINE]
        assert "call to scripted.echo was rejected" in await run(client, calling("echo", text="a"))
        user.answers += [chosen(THE_ONE)]
        assert "changed: echo, env, pid (read before you trust)" in await server.register(client)
        assert await run(client, calling("echo", text="a")) == "ran a"
        assert user.answers == []


async def test_a_changed_variable_in_a_servers_environment_asks_and_is_shown(workspace: Path, server: Server):
    variables = workspace / ".env"
    variables.write_text("BASE=https://a:b@good.example\nTOKEN=hunter2")
    server.params["env"] = {"API_BASE": "${BASE}", "API_TOKEN": "${TOKEN}"}
    user = User(chosen(THE_ONE))
    async with serving(workspace, user) as client:
        await server.register(client)
        variables.write_text("BASE=https://a:b@good.example\nTOKEN=hunter3")
        assert await run(client, calling("echo", text="a")) == "ran a"
        variables.write_text("BASE=https://evil.example\nTOKEN=hunter2")
        await client.call_tool("reset", {})
        user.answers += [DECLINE]
        assert "call to scripted.echo was rejected" in await run(client, calling("echo", text="a"))
        user.answers += [DECLINE]
        await server.register(client)
    assert user.forms[-1].message.splitlines()[1].startswith("| API_BASE=https://evil.example API_TOKEN=…")


async def test_hints_of_a_tool_that_is_listed_twice_with_differences_do_not_count(workspace: Path, server: Server):
    user = User()
    async with serving(workspace, user) as client:
        listed = [{"name": "echo", "inputSchema": {"type": "object"}, "annotations": each} for each in (READS, {})]
        Path(server.params["args"][-1]).write_text(json.dumps(listed))
        assert "0 of 1 tools only read; 0 run without asking" in await server.register(client)


@pytest.mark.parametrize("sessions", [True, False])
async def test_a_changed_tool_of_a_remote_server_asks_although_nothing_announces_the_change(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, sessions: bool
):
    user = User(chosen(THE_ONE))
    monkeypatch.setattr(server_connections, "LISTED_FOR", 1e9 if sessions else 0)
    async with remote_server() as remote, serving(workspace, user) as client:
        remote.released.set()
        remote.sessions = sessions
        remote.tools = [{"name": "echo", "inputSchema": {"type": "object"}, "annotations": READS}]
        params = {"server_name": "scripted", "server_params": {"url": f"{remote.url}/mcp"}}
        await client.call_tool("register_mcp_server", params)
        assert await run(client, calling("echo", text="a")) == "ran a"
        # Another version of it runs, which does not know the session.
        remote.tools = [{"name": "echo", "inputSchema": {"type": "object"}}]
        remote.session += 1
        if sessions:
            told = await run(client, calling("echo", text="b"))
            assert "MCP server 'scripted' changed 'echo' meanwhile: repeat the call" in told
        user.answers += [DECLINE]
        assert "call to scripted.echo was rejected" in await run(client, calling("echo", text="c"))
        assert (user.answers, remote.executed) == ([], ["a"])


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("run_sync('echo', {'text': 'a'})", "not approved: its cell has ended"),
        ("run_many('echo', [{'text': 'a'}])[0]", "call to scripted.echo was not made"),
    ],
)
async def test_a_rule_allows_no_call_whose_cell_ends_while_the_server_lists_its_tools(
    workspace: Path, server: Server, tmp_path: Path, call: str, reason: str
):
    async with serving(workspace, User(chosen(THE_ONE))) as client:
        await server.register(client)
        file = tmp_path / "tools.json"
        tools = file.read_text()
        file.unlink()
        os.mkfifo(file)
        await run(
            client,
            f"""
import threading
from mcptools.scripted import CLIENT
said = []
def call():
    try:
        said.append(CLIENT.{call})
    except Exception as error:
        said.append(error)
thread = threading.Thread(target=call)
thread.start()
pipe = open({str(file)!r}, "w")  # returns when the server lists its tools, which takes until the next cell
""",
        )
        said = await run(client, f"pipe.write({tools!r}); pipe.close(); thread.join(); print(said[0])")
        assert reason in said


async def test_an_application_may_name_a_file_of_rules(workspace: Path, server: Server, tmp_path: Path):
    rules = tmp_path / "rules.yaml"
    rules.write_text("default: deny\nrules:\n- {effect: allow, tool: echo}\n")
    async with serving(workspace, User(), approve=rules) as client:
        await server.register(client)
        assert await run(client, calling("echo", text="a")) == "ran a"
        assert "was rejected: denied by the default of rules.yaml" in await run(client, calling("pid"))


async def test_a_person_agrees_to_all_that_read_only_if_the_form_names_all(workspace: Path, server: Server):
    user = User(DECLINE, DECLINE)
    async with serving(workspace, user) as client:
        for number in (49, 1000):
            server.lists(**{f"tool_{each}": READS for each in range(number)})
            await server.register(client)
    some, many = (form.requested_schema["properties"]["unasked"] for form in user.forms)
    assert some["enum"] == ["read-only tools that stay offline (49)", "choose", "none"]
    assert "tool_48" in some["description"]
    assert many["enum"] == ["choose", "none"]
    assert "`ipybox trust` shows the others" in many["description"]


@pytest.mark.parametrize("approve", ["writes", "ask"])
async def test_a_form_marks_arguments_that_the_server_does_not_list(workspace: Path, server: Server, approve: str):
    schema: Any = {"type": "object", "properties": {"text": {}}}
    server.file.write_text(json.dumps([{"name": "echo", "inputSchema": schema}]))
    user = User(DECLINE, DECLINE)
    many = "from mcptools.scripted import CLIENT; CLIENT.run_many('echo', [{'text': 'a', 'dry_run': True}] * 2)"
    async with serving(workspace, user, approve=approve) as client:
        await server.register(client)
        await run(client, calling("echo", text="a", dry_run=True))
        await run(client, many)
    assert [form.message.splitlines()[1:] for form in user.forms] == [['| text: "a"', "| dry_run (unknown): true"]] * 2


async def test_an_argument_that_the_server_does_not_list_meets_no_rule_for_certain(workspace: Path, server: Server):
    schema: Any = {"type": "object", "properties": {"text": {}}}
    server.file.write_text(json.dumps([{"name": "echo", "inputSchema": schema}]))
    many = (
        "from mcptools.scripted import CLIENT; print(*CLIENT.run_many('echo', [{'text': 'secret', 'path': 'a'}] * 2))"
    )
    for rules, expected in (
        ("default: allow\nrules:\n- {effect: deny, args: {path: secret}}", "denied by policy:3, as it's unclear"),
        ("rules:\n- {effect: allow, args: {path: a}}", "the user declined it"),
    ):
        user = User(DECLINE, DECLINE)
        async with serving(workspace, user, approve=lambda: ApprovalPolicy(rules, workspace)) as client:  # noqa: B023
            await server.register(client)
            for code in (calling("echo", text="secret", path="a"), many):
                assert expected in await run(client, code)


async def test_a_wildcard_names_no_tool_that_the_form_does_not_list(workspace: Path, server: Server):
    user = User(chosen("choose"), named("ech?, *"))
    server.lists(**{"echo": READS, "*": None, "ech?": None})
    async with serving(workspace, user) as client:
        await server.register(client)
    assert unasked(workspace) == {"echo": True, "*": False, "ech?": False}


async def test_a_form_about_a_server_waits_for_one_about_a_call(
    workspace: Path, server: Server, monkeypatch: pytest.MonkeyPatch
):
    """A client shows one form after the other: what a person answers must not have replaced another form just now."""
    monkeypatch.setattr(approver, "READING_TIME", 1)
    waiting, screen = asyncio.Event(), asyncio.Lock()
    forms: list[str] = []

    async def user(_: object, form: ElicitRequestParams) -> ElicitResult:
        async with screen:
            forms.append(form.message)
            waiting.set()
            if len(forms) == 1:
                await asyncio.sleep(WAIT)  # until the cell withdraws its call
            return chosen(THE_ONE)

    call = "scripted.run_sync('echo', {'text': 'a'})"
    withdrawn = (
        f"import threading, time; from registered import scripted\nthreading.Thread(target=lambda: {call}).start()"
    )
    servers.register(workspace, scripted=servers.scripted())
    async with serving(workspace, user) as client:
        cell = asyncio.create_task(run(client, f"{withdrawn}; time.sleep(3)"))
        await waiting.wait()
        assert "0 run without asking" in await server.register(client)
        await cell
    assert [form.split(":")[0] for form in forms] == ["Code calls scripted.echo\n| text", "MCP server scripted"]


async def test_a_pattern_covers_only_tools_that_fit_into_the_form(workspace: Path, server: Server):
    user = User(chosen("choose"), named("*"))
    server.lists(**{f"tool_{each}": READS for each in range(1000)}, **{f"get_{each}": FETCHES for each in range(1000)})
    async with serving(workspace, user) as client:
        await server.register(client)
    allowed = {name for name, decision in unasked(workspace).items() if decision}
    assert {"tool_0", "get_0"} < allowed
    assert allowed.isdisjoint({"tool_999", "get_999"})
    assert allowed == {*re.findall(r"\w+_\d+", user.forms[1].message)}


#: Answers to the forms of a registration, and which of three tools run without asking afterwards.
ANSWERS: dict[str, tuple[list[ElicitResult], list[bool | None]]] = {
    "those that read": ([chosen(THE_ONE)], [True, False, False]),
    "none": ([chosen("none")], [False] * 3),
    "chosen": ([chosen("choose"), named("e*, pid")], [True, True, True]),
    "chosen by a name of nothing": ([chosen("choose"), named("ech")], [False] * 3),
    "chosen by a pattern, which covers what the form lists": ([chosen("choose"), named("*")], [True, True, False]),
    "chosen nothing": ([chosen("choose"), named("")], [False] * 3),
    "chosen not": ([chosen("choose"), DECLINE], [None] * 3),
    "chosen in no field of the form": ([chosen("choose"), chosen("e*")], [None] * 3),
    "declined": ([DECLINE], [None] * 3),
    "dismissed": ([ElicitResult(action="cancel")], [None] * 3),
    "accepted empty": ([ElicitResult(action="accept", content={})], [None] * 3),
    "a choice that was not offered": ([chosen("read-only tools that stay offline (2)")], [None] * 3),
    "the second form first": ([named("*")], [None] * 3),
}


async def test_only_a_choice_agrees(workspace: Path, server: Server, era: Era):
    user = User()
    found: dict[str, tuple[list[ElicitResult], list[bool | None]]] = {}
    async with serving(workspace, user, era) as client:
        for name, (answers, _) in ANSWERS.items():
            record_file(workspace.resolve() / PLACE).unlink(missing_ok=True)
            user.answers = [*answers]
            await server.register(client)
            found[name] = (user.answers, [*unasked(workspace).values()])
    assert found == {name: ([], expected) for name, (_, expected) in ANSWERS.items()}


async def test_a_client_that_answers_at_once_agrees_to_nothing(
    workspace: Path, server: Server, era: Era, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(approver, "READING_TIME", 1e9)
    async with serving(workspace, User(chosen(THE_ONE)), era) as client:
        assert "0 run without asking" in await server.register(client)
    assert {*unasked(workspace).values()} == {None}


@pytest.mark.parametrize(
    ("approve", "asked"),
    [
        pytest.param("writes", 1, id="writes"),
        pytest.param("ask", 0, id="ask"),
        pytest.param("auto", 0, id="auto"),
        pytest.param(lambda: ApprovalPolicy("rules:\n- {effect: allow, hint: read_only}\n"), 1, id="rules-with-hints"),
        pytest.param(lambda: ApprovalPolicy("rules:\n- {effect: allow, tool: echo}\n"), 0, id="other-rules"),
    ],
)
async def test_a_person_is_asked_only_where_hints_matter(workspace: Path, server: Server, approve: Any, asked: int):
    user = User(*[chosen("none")] * asked)
    async with serving(workspace, user, approve=approve) as client:
        told = await server.register(client)
    assert (len(user.forms), "only read" in told) == (asked, bool(asked))


async def test_without_forms_only_earlier_agreement_counts(workspace: Path, server: Server):
    async with serving(workspace, None) as client:
        assert "0 run without asking" in await server.register(client)
        Registration.read(record_file(workspace.resolve() / PLACE)).agree(["echo"])
        assert "1 runs without asking" in await server.register(client)
        assert await run(client, calling("echo", text="a")) == "ran a"
        assert "call to scripted.pid was rejected: this client can't ask" in await run(client, calling("pid"))


async def test_decisions_lapse_with_other_parameters_and_not_otherwise(workspace: Path, server: Server):
    user = User(chosen("none"))
    async with serving(workspace, user) as client:
        await server.register(client)
        await server.register(client)
        assert len(user.forms) == 1
        user.answers.append(chosen(THE_ONE))
        await server.register(client, "--noisy")
    assert len(user.forms) == 2
    assert f"| {server.params['command']}" in user.forms[1].message


async def test_a_person_sees_what_decides_which_program_starts(workspace: Path, server: Server, tmp_path: Path):
    user = User(chosen("none"))
    (tmp_path / "a b").mkdir()
    key = "sk-0123456789abcdef"
    (workspace / ".env").write_text(f"PROGRAM={servers.SCRIPTED_SERVER}\nKEY={key}\n")
    args = ["-S", "${PROGRAM}", "--tools", str(tmp_path / "tools.json"), f"curl evil; {key}", "${KEY}"]
    env = {"npx good #": "a b", "API_KEY": "${KEY}"}
    async with serving(workspace, user) as client:
        server.params |= {"args": args, "cwd": str(tmp_path / "a b"), "env": env}
        await server.register(client)
    launch = Registration.read(record_file(workspace.resolve() / PLACE)).launch
    assert launch.startswith(
        f"cd '{tmp_path}/a b'; 'npx good #'='a b' API_KEY=… {server.params['command']} -S {servers.SCRIPTED_SERVER} "
    )
    assert launch.endswith(" 'curl evil; …' …")


async def test_a_person_agrees_to_no_server_without_seeing_all_of_how_it_is_started(
    workspace: Path, server: Server, tmp_path: Path
):
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S {servers.SCRIPTED_SERVER} --tools {server.file}\n')
    docker.chmod(0o755)
    run = "run -i --rm -e GITHUB_PERSONAL_ACCESS_TOKEN"
    user = User(DECLINE, DECLINE)
    async with serving(workspace, user) as client:
        for image in ("ghcr.io", "-v /:/host evil.example", f"{'-e X ' * 40} evil.example"):
            server.params = {"command": str(docker), "args": f"{run} {image}/github-mcp-server".split()}
            await server.register(client)
    shown = ["".join(line.removeprefix("| ") for line in form.message.splitlines()[1:]) for form in user.forms]
    assert shown == [
        f"{docker} {run} ghcr.io/github-mcp-server",
        f"{docker} {run} -v /:/host evil.example/github-mcp-server",
    ]


async def test_no_host_of_a_remote_server_looks_like_another_one(
    workspace: Path, server: Server, monkeypatch: pytest.MonkeyPatch
):
    described: list[str] = []

    async def described_only(*arguments: Any) -> None:
        described.append(arguments[-1])
        raise ValueError("not reached")

    monkeypatch.setattr(registration, "_generate", described_only)
    server.params = {"url": "https://g\u0456thub.com/mcp?team=evil"}
    async with serving(workspace, None) as client:
        params = {"server_name": "scripted", "server_params": server.params}
        await client.call_tool("register_mcp_server", params)
    assert described == ["https://g\\u0456thub.com/mcp?…"]


async def test_a_client_that_fails_to_ask_agrees_to_nothing_and_the_registration_counts(
    workspace: Path, server: Server
):
    async def failing(*_: object) -> ElicitResult:
        raise ValueError("no screen")

    async with serving(workspace, failing) as client:  # pyright: ignore[reportArgumentType]
        assert "0 run without asking\n" in await server.register(client)
    assert {*unasked(workspace).values()} == {None}
