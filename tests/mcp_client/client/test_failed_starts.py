"""What can be wrong with a server is said when it is started."""

import asyncio
import logging
import re
import time
from pathlib import Path
from typing import Any

import pytest

from ipybox.errors import MCPServerError, MissingVariableError
from ipybox.mcp_client.client import MCPClient
from tests import servers
from tests.servers import WAIT


async def failure(params: dict[str, Any], connect_timeout: float = WAIT) -> str:
    """Return the message of the error with which connecting fails."""
    with pytest.raises(MCPServerError) as error:
        await MCPClient(params, connect_timeout).__aenter__()
    assert not isinstance(error.value.__cause__, BaseExceptionGroup)
    return str(error.value)


async def test_a_command_that_does_not_exist_is_not_found():
    assert await failure({"command": "no-such-command", "args": ["x"]}) == (
        "can't start `no-such-command x`: command not found: no-such-command; install it, or give its absolute path"
    )
    nowhere = {"env": {"PATH": "/nonexistent"}}
    assert "not found: uvx; install uv, or give its " in await failure({"command": "uvx", **nowhere})
    assert (await failure({"command": "/no/such/command"})).endswith("command not found: /no/such/command")
    assert (await failure({"command": "no-such-command x"})).endswith(
        "command not found: no-such-command x; put the program's arguments in `args`"
    )


async def test_a_command_is_looked_up_on_the_path_of_the_server(tmp_path: Path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "my-server").symlink_to("/bin/true")

    assert "not found" in await failure({"command": "my-server"})
    assert "exited with code 0" in await failure({"command": "my-server", "env": {"PATH": str(tmp_path / "bin")}})
    assert "exited with code 0" in await failure({"command": "bin/my-server", "cwd": str(tmp_path)})


async def test_a_directory_that_does_not_exist_is_named(tmp_path: Path):
    assert "no such directory: " in await failure({**servers.scripted(), "cwd": str(tmp_path / "nope")})


async def test_a_command_that_is_no_program_says_why(tmp_path: Path):
    (tmp_path / "server").write_text("#!/no/such/interpreter\n")
    (tmp_path / "server").chmod(0o755)

    message = await failure({"command": str(tmp_path / "server")})

    assert "can't be started: No such file or directory" in message


async def test_a_server_that_dies_at_its_start_gives_exit_code_and_stderr():
    message = await failure(servers.python("import sys; sys.exit('no configuration')"))

    assert "it exited with code 1 before responding; last lines on stderr:\n    no configuration" in message


NODE = "function f(n) { if (n) f(n - 1); throw new Error('API_KEY is not set', {cause: new TypeError('none')}); } f(9)"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["-e", NODE], ["Error: API_KEY is not set", "[cause]: TypeError: none"]),
        (["--input-type=module", "-e", NODE], ["Error: API_KEY is not set"]),
    ],
)
async def test_a_server_that_fails_shows_its_error_and_no_frames(args: list[str], said: list[str]):
    message = await failure({"command": "node", "args": args})

    for text in said:
        assert text in message
    assert "  at " not in message


async def test_a_server_that_is_killed_at_its_start_gives_the_signal():
    assert "it was killed by signal 9 before" in await failure({"command": "sh", "args": ["-c", "kill -9 $$"]})


async def test_a_program_that_is_no_mcp_server_shows_what_it_wrote():
    assert "it wrote 'usage' instead of an MCP message" in await failure(servers.python("print('usage')"))


async def test_a_server_that_hangs_is_given_up_and_stopped_in_time():
    started = time.monotonic()

    message = await failure(servers.python("import time; time.sleep(1000)"), 0.5)

    assert "no response within 0.5 s" in message
    assert time.monotonic() - started < 3


async def test_a_url_of_an_unknown_host_says_so():
    assert "unknown host" in await failure({"url": "http://no-such-host.invalid/mcp"})


async def test_a_url_that_nobody_serves_is_refused():
    async with servers.http_page() as url:
        pass

    for path in ("mcp", "sse"):
        assert await failure({"url": f"{url}/{path}"}) == f"can't connect to {url}/{path}: connection refused"


@pytest.mark.parametrize("kind", ["http", "sse"])
@pytest.mark.parametrize(
    ("status", "problem"), [(200, "not an MCP server: .*text/html"), (404, "HTTP 404"), (501, "HTTP 501")]
)
async def test_a_url_of_something_else_says_what_it_got(kind: str, status: int, problem: str):
    async with servers.http_page(status) as url:
        message = await failure({"url": url, "type": kind})

    assert re.search(problem, message)


async def test_a_url_that_never_answers_is_given_up():
    async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(ignore, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for kind in ("http", "sse"):
            assert "no response within 0.5 s" in await failure({"url": url, "type": kind}, 0.5)


async def test_a_missing_variable_is_named_and_nothing_is_started(tmp_path: Path):
    params = servers.scripted("--log", str(tmp_path / "log"), "${NO_SUCH_VARIABLE}")

    with pytest.raises(MissingVariableError, match=r"\$\{NO_SUCH_VARIABLE\}"):
        await MCPClient(params).__aenter__()

    assert not (tmp_path / "log").exists()


async def test_messages_show_placeholders_and_never_their_values(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setenv("SECRET_TOKEN", "s3cret-value")
    caplog.set_level(logging.DEBUG, "ipybox")
    code = "import sys; print(sys.argv[1]); sys.exit('bad token: ' + sys.argv[1])"
    params = servers.python(code)
    params["args"].append("${SECRET_TOKEN}")

    message = await failure(params)

    assert "bad token: ${SECRET_TOKEN}" in message
    assert "it wrote '${SECRET_TOKEN}'" in message
    assert "s3cret-value" not in message + "".join(caplog.messages)


async def test_credentials_of_a_url_are_not_shown():
    message = await failure({"url": "http://user:password@127.0.0.1:1/mcp?key=s3cret"})

    assert message == "can't connect to http://127.0.0.1:1/mcp: connection refused"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        pytest.param({}, "contain only", id="nothing"),
        pytest.param({"command": "a", "url": "http://b/mcp"}, "not both", id="command_and_url"),
        pytest.param({"command": 1}, "'command'", id="command_is_no_string"),
        pytest.param({"command": ""}, "'command'", id="command_is_empty"),
        pytest.param({"command": "a", "args": "b"}, "'args'", id="args_is_no_list"),
        pytest.param({"command": "a", "args": [1]}, "'args'", id="args_with_a_number"),
        pytest.param({"command": "a", "env": {"X": 1}}, r"'env'\]\['X'", id="env_with_a_number"),
        pytest.param({"command": "a", "env": []}, "'env'", id="env_is_no_dict"),
        pytest.param({"command": "a", "cwd": 1}, "'cwd'", id="cwd_is_no_string"),
        pytest.param({"command": "a", "tools": 1}, "'tools'", id="unknown_key"),
        pytest.param({"command": "a", "headers": {}}, "'headers'", id="headers_of_a_command"),
        pytest.param({"command": "a", "type": "http"}, "'type'", id="type_of_a_url"),
        pytest.param({"url": "http://a/mcp", "type": "stdio"}, "'type'", id="type_of_a_command"),
        pytest.param({"url": "http://a/mcp", "type": "websocket"}, "'type'", id="unknown_type"),
        pytest.param({"url": "http://a/mcp", "headers": {"X": 1}}, "'headers'", id="header_is_a_number"),
        pytest.param({"url": "http://mcp.example.org/"}, "set 'type'", id="url_without_a_hint"),
        pytest.param({"url": "ftp://a/mcp"}, "http://", id="url_of_another_scheme"),
        pytest.param({"url": "http://[a/mcp"}, "'url'", id="url_is_none"),
        pytest.param([], "dict", id="no_dict"),
    ],
)
def test_parameters_of_a_wrong_shape_are_refused_by_key(params: Any, message: str):
    with pytest.raises(ValueError, match=message):
        MCPClient(params)
