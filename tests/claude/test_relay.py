"""What answers a client before there is a server, and connects the two then, with servers that do as a test wants."""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from plugins import manifests
from tests.claude.cli import no_process_left
from tests.claude.launcher import Client
from tests.servers import ROOT, WAIT

LAUNCH = ROOT / "plugins" / "launch"
STATIC = json.loads((LAUNCH / "server.json").read_text())

#: A server that begins when the file `go` has content, and does what a test asks of it.
SERVER = """
import json, os, sys
def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
{begin}
for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    if method == "initialize":
        hello = message["params"]
        send(id=number, result={"capabilities": {}})
    elif method == "tools/list":
        send(id=number, result=TOOLS)
    elif method == "tools/call":
        what = message["params"]["arguments"]["code"]
        if what == "hello":
            send(id=number, result=hello)
        elif what == "ask":
            send(id="question", method="elicitation/create", params={})
            asked = number
        elif what == "end":
            sys.exit(7)
        else:
            send(id=number, result={"content": [{"type": "text", "text": str(len(what))}]})
    elif number == "question":
        send(id=asked, result={"content": [{"type": "text", "text": message["result"]["action"]}]})
"""

WAITS = """
open(sys.argv[1]).read()
TOOLS = json.load(open(sys.argv[2]))["tools"]
"""


@contextmanager
def relayed(directory: Path, begin: str = WAITS, **env: str) -> Generator[tuple[Client, Path]]:
    """Yields a client of a server that waits for the other end of the pipe at the path."""
    go = directory / "go"
    os.mkfifo(go)
    script = directory / "server.py"
    script.write_text(SERVER.replace("{begin}", begin))
    command = [sys.executable, "-I", "-S", str(LAUNCH / "relay.py"), sys.executable, str(script), str(go)]
    with (
        no_process_left(),
        subprocess.Popen(
            [*command, str(LAUNCH / "server.json")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **env},
        ) as process,
    ):
        try:
            yield Client(process), go
            assert process.stdin is not None
            process.stdin.close()
            process.wait(WAIT)
        except BaseException:
            process.kill()
            raise


def text(client: Client, number: int) -> str:
    return client.answer(number)["result"]["content"][0]["text"]


def test_the_static_answers_are_those_of_the_server():
    assert (LAUNCH / "server.json").read_text() == manifests.server_answers()


def test_the_packages_are_those_that_ipybox_requires():
    assert (LAUNCH / "requirements.txt").read_text() == manifests.requirements()


def test_it_has_the_syntax_of_python_3_8():
    source = (LAUNCH / "relay.py").read_text()
    ast.parse(source, feature_version=(3, 8))
    assert "from __future__ import annotations" in source


def test_each_message_has_its_answer_while_there_is_no_server(tmp_path: Path):
    with relayed(tmp_path) as (client, go):
        assert client.answer(client.ask("server/discover"))["error"]["code"] == -32601
        hello = client.initialize(elicitation={})
        assert hello == {"protocolVersion": "2025-11-25", **STATIC["initialize"]}
        assert client.request("tools/list") == STATIC["tools"]
        assert client.request("ping") == {}
        for line in ("{", "[]", "5", "[" * 100_000):
            client.write(line)

        calls = [client.call("x" * size) for size in (1, 3_000_000, 70_000)]
        cancelled = client.call("hello")
        client.send(method="notifications/cancelled", params={"requestId": cancelled})
        last = client.call("hello")
        assert client.request("ping") == {}, "it has read all of this"
        go.write_text("go")

        assert [text(client, call) for call in calls] == ["1", "3000000", "70000"]
        params = client.answer(last)["result"]
        assert params["clientInfo"]["name"] == "claude-code"
        assert params["capabilities"] == {"elicitation": {}}
        assert client.notifications == [], "the cancelled call has no answer, and the list has not changed"


def test_the_versions_of_the_protocol_are_negotiated(tmp_path: Path):
    with relayed(tmp_path) as (client, _):
        for asked, answered in (("2024-11-05", "2024-11-05"), ("1999-01-01", "2025-11-25"), (None, "2025-11-25")):
            assert client.request("initialize", protocolVersion=asked)["protocolVersion"] == answered
        other = client.request("initialize", clientInfo={"name": "other"})
        assert other["capabilities"] == {"tools": {"listChanged": True}, "resources": {}}


def test_requests_of_the_server_and_their_answers_pass(tmp_path: Path):
    with relayed(tmp_path) as (client, go):
        client.initialize()
        call = client.call("ask")
        go.write_text("go")
        question = client.read()
        assert (question["id"], question["method"]) == ("question", "elicitation/create")
        client.send(id="question", result={"action": "accept"})
        assert text(client, call) == "accept"


def test_a_list_that_differs_is_told(tmp_path: Path):
    with relayed(tmp_path, WAITS + "TOOLS = {'tools': [{'name': 'other'}]}") as (client, go):
        client.initialize()
        call = client.call("x")
        go.write_text("go")
        assert text(client, call) == "1"
        assert [message["method"] for message in client.notifications] == ["notifications/tools/list_changed"]
        assert client.request("tools/list") == {"tools": [{"name": "other"}]}


def test_calls_end_before_the_client_gives_up(tmp_path: Path):
    with relayed(tmp_path, MCP_TOOL_TIMEOUT="5000") as (client, go):
        client.initialize()
        said = client.failure()
        assert said == "ipybox is not ready yet: the server is starting. This continues in the background; call again"
        go.write_text("go")
        assert text(client, client.call("12")) == "2"


@pytest.mark.parametrize(
    ("begin", "said"),
    [
        ("sys.exit('ipybox: there is no space left')", "ipybox: there is no space left"),
        ("sys.exit('ipybox: no such option\\nSee --help')", "ipybox: no such option"),
        ("sys.exit(3)", "ipybox: the server exited with status 3"),
        (
            "sys.stdin.readline(); send(id='ipybox-initialize', error={'code': 1, 'message': 'no image'})",
            "ipybox: no image",
        ),
        ("print('no message'); os.kill(os.getpid(), 9)", "ipybox: the server exited with status 137"),
    ],
    ids=["message", "hint", "status", "answer", "signal"],
)
def test_a_server_that_fails_is_said_by_each_call_and_started_again(tmp_path: Path, begin: str, said: str):
    again = "import pathlib\nif not pathlib.Path(sys.argv[1] + '2').exists():\n    " + begin + "\n"
    with relayed(tmp_path, again + "TOOLS = json.load(open(sys.argv[2]))['tools']") as (client, go):
        client.initialize()
        assert client.failure() == said
        assert client.failure() == said
        assert client.answer(client.ask("resources/list"))["error"]["message"] == said
        go.with_name("go2").touch()
        assert text(client, client.call("12")) == "2"


def test_it_ends_as_the_server_does(tmp_path: Path):
    begin = "TOOLS = json.load(open(sys.argv[2]))['tools']"
    with relayed(tmp_path, begin) as (client, _):
        client.initialize()
        assert text(client, client.call("12")) == "2"
        client.call("end")
        process = client._process  # pyright: ignore[reportPrivateUsage]
        assert process.wait(WAIT) == 7


def test_what_the_server_writes_to_stderr_is_passed_on(tmp_path: Path):
    begin = "sys.stderr.write('a warning'); sys.stderr.flush(); TOOLS = json.load(open(sys.argv[2]))['tools']"
    with relayed(tmp_path, begin) as (client, _):
        client.initialize()
        assert text(client, client.call("12")) == "2"
        process = client._process  # pyright: ignore[reportPrivateUsage]
        assert process.stderr is not None
        assert re.match("a warning", process.stderr.read(9))
