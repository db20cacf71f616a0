"""What the other tests rely on: a script that fails ends a conversation, and no process escapes."""

import json
import subprocess
import urllib.request
from collections.abc import Sequence

import pytest

from tests.claude import cli
from tests.claude.api import Block, Request, Turn, serve, text, tool
from tests.servers import is_alive

PROMPT = {"role": "user", "content": "Hello"}


def ask(url: str, *messages: Block, tools: Sequence[str] = ("mcp__plugin_x_ipybox__reset",)) -> Block:
    body = {"model": "m", "tools": [{"name": name} for name in tools], "messages": messages}
    request = urllib.request.Request(f"{url}/v1/messages", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.load(response)


def test_tools_are_named_by_their_last_part():
    def looks(request: Request) -> list[Block]:
        assert request.result == "done"
        return [text("Good.")]

    with serve([[tool("reset")], looks]) as api:
        first = ask(api.url, PROMPT)
        (use,) = first["content"]
        assert (use["name"], first["stop_reason"]) == ("mcp__plugin_x_ipybox__reset", "tool_use")
        result = {"type": "tool_result", "tool_use_id": use["id"], "content": "done"}
        answers = {"role": "user", "content": [result]}
        last = ask(api.url, PROMPT, {"role": "assistant", "content": [use]}, answers)
        assert (last["content"], last["stop_reason"]) == ([text("Good.")], "end_turn")


def test_a_turn_whose_server_is_still_connecting_comes_again():
    with serve([[tool("reset")]]) as api:
        for tools, used in (
            (["WaitForMcpServers"], "WaitForMcpServers"),
            (["ToolSearch"], "ToolSearch"),
            (["ToolSearch", "mcp__ipybox__reset"], "mcp__ipybox__reset"),
        ):
            (use,) = ask(api.url, PROMPT, tools=tools)["content"]
            assert use["name"] == used
        assert len(api.requests) == 1


def fails(request: Request) -> list[Block]:
    raise ValueError("as the script says")


@pytest.mark.parametrize(
    ("script", "requests", "message"),
    [
        pytest.param([fails], 1, "as the script says", id="exception"),
        pytest.param([[tool("set")]], 1, "one tool set is expected among those offered", id="unknown tool"),
        pytest.param([[text("1")], [text("2")]], 1, "the client asked for 1 of the 2 turns", id="turn left"),
        pytest.param([[text("1")]], 2, "the client asks for more than the script has", id="turn missing"),
    ],
)
def test_script_that_fails_ends_the_conversation(script: Sequence[Turn], requests: int, message: str):
    def converse() -> None:
        with serve(script) as api:
            for _ in range(requests):
                assert ask(api.url, PROMPT)["stop_reason"] == "end_turn"

    with pytest.raises((ValueError, AssertionError), match=message):
        converse()


def test_process_that_has_lost_its_parent_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cli, "GRACE", 0.2)
    pids: list[int] = []

    def leave() -> None:
        with cli.no_process_left():
            started = subprocess.run(["sh", "-c", "sleep 100 >/dev/null & echo $!"], stdout=subprocess.PIPE, check=True)
            pids.append(int(started.stdout))

    with pytest.raises(AssertionError, match=r"processes were left: .*sleep 100"):
        leave()
    assert not is_alive(pids[0])
