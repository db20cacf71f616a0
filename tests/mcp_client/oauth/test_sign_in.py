"""`MCPClient` and servers behind OAuth: real servers and a real authorization server; the browser is an HTTP client."""

import asyncio
import json
import stat
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from ipybox.errors import MCPServerError, ToolRunnerError
from ipybox.mcp_client.client import MCPClient
from ipybox.mcp_client.http import Reach
from ipybox.mcp_client.oauth.callback import CallbackServer
from ipybox.mcp_client.params import parse_params
from tests.mcp_client.oauth.conftest import browse, sign_in
from tests.mcp_client.oauth.guarded import Guarded, guarded
from tests.servers import WAIT, http_page

REGISTER_AGAIN = "HTTP 401: it requires a sign-in, .* register it again"


async def greet(params: dict[str, Any], **options: Any) -> object:
    async with asyncio.timeout(WAIT), MCPClient(params, WAIT, **options) as client:
        return await client.run("greet", {"name": "you"})


def files(state: Path) -> list[Path]:
    return sorted((state / "oauth").glob("*.json"))


async def test_a_lifetime_beyond_all_time_is_an_error():
    async with guarded("/mcp") as server:
        server.lifetime = 10**400
        with pytest.raises(MCPServerError, match="the authorization server's response is not valid: int too large"):
            await greet({"url": server.url}, sign_in=sign_in)


@pytest.mark.parametrize("path", ["/mcp", "/sse"])
async def test_a_person_signs_in_once_and_later_connections_need_nobody(path: str, state: Path):
    async with guarded(path) as server:
        with pytest.raises(MCPServerError, match=REGISTER_AGAIN):
            await greet({"url": server.url})
        assert server.count("GET /authorize") == 0

        assert await greet({"url": server.url}, sign_in=sign_in) == "Hello, you!"
        assert await greet({"url": server.url}) == "Hello, you!"

        assert server.count("GET /authorize") == 1
        (authorization,) = server.authorizations
        assert authorization.resource == server.url
        assert authorization.scopes == ["read"]
        (file,) = files(state)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        (access,) = server.access
        assert access in file.read_text()


async def test_a_token_whose_time_is_over_is_refreshed_before_the_request(server: Guarded):
    server.lifetime = 0
    await greet({"url": server.url}, sign_in=sign_in)
    server.lifetime = 3600
    server.requests.clear()

    assert await greet({"url": server.url}) == "Hello, you!"
    assert await greet({"url": server.url}) == "Hello, you!"
    assert server.requests[:2] == ["POST /token", "POST /mcp"]
    assert server.count("POST /token") == 1


async def test_a_token_that_is_refused_is_refreshed_in_the_middle_of_a_session(server: Guarded):
    await greet({"url": server.url}, sign_in=sign_in)

    async with asyncio.timeout(WAIT), MCPClient({"url": server.url}, WAIT) as client:
        await client.list_tools()
        server.expire()
        names = [str(number) for number in range(10)]
        answers = await asyncio.gather(*(client.run("greet", {"name": name}) for name in names))
        assert answers == [f"Hello, {name}!" for name in names]
    assert server.count("POST /token") == 2, "one for the code, one refresh for all ten"
    assert server.count("GET /authorize") == 1


async def test_two_processes_refresh_a_token_once(server: Guarded):
    await greet({"url": server.url}, sign_in=sign_in)
    server.expire()

    # Two clients share nothing but the file, and locks of files are for each that has it open.
    assert await asyncio.gather(*(greet({"url": server.url}) for _ in range(2))) == ["Hello, you!"] * 2
    assert server.count("POST /token") == 2


async def test_a_refresh_that_is_refused_leads_to_a_sign_in_at_the_next_registration(server: Guarded):
    await greet({"url": server.url}, sign_in=sign_in)
    server.revoke()

    with pytest.raises(MCPServerError, match=REGISTER_AGAIN):
        await greet({"url": server.url})
    assert await greet({"url": server.url}, sign_in=sign_in) == "Hello, you!"
    assert await greet({"url": server.url}) == "Hello, you!"


@pytest.mark.parametrize("path", ["/mcp", "/sse"])
async def test_a_call_that_needs_a_sign_in_fails_and_says_so(path: str):
    async with guarded(path) as server:
        await greet({"url": server.url}, sign_in=sign_in)
        async with asyncio.timeout(WAIT), MCPClient({"url": server.url}, WAIT) as client:
            await client.list_tools()
            server.revoke()
            with pytest.raises(MCPServerError, match=REGISTER_AGAIN):
                await client.run("greet", {"name": "you"})


async def test_an_authorization_server_that_is_down_costs_no_token(server: Guarded):
    await greet({"url": server.url}, sign_in=sign_in)
    server.expire()
    server.down = True
    with pytest.raises(MCPServerError, match="can't refresh its token: the authorization server returned HTTP 500"):
        await greet({"url": server.url})

    server.down = False
    assert await greet({"url": server.url}) == "Hello, you!"


async def test_a_wider_scope_that_a_call_needs_is_asked_for_at_the_next_registration(server: Guarded):
    await greet({"url": server.url}, sign_in=sign_in)
    async with asyncio.timeout(WAIT), MCPClient({"url": server.url}, WAIT) as client:
        await client.list_tools()
        server.scopes = "read more"
        with pytest.raises(MCPServerError, match="HTTP 403: it requires a sign-in"):
            await client.run("greet", {"name": "you"})

    server.scopes = "read"  # registering alone does not need it
    await greet({"url": server.url}, sign_in=sign_in)
    assert server.authorizations[-1].scopes == ["read", "more"]
    server.scopes = "read more"
    assert await greet({"url": server.url}) == "Hello, you!"


async def test_a_wider_scope_is_asked_for_at_once_where_a_person_can_be(server: Guarded):
    async with asyncio.timeout(WAIT), MCPClient({"url": server.url}, WAIT, sign_in=sign_in) as client:
        await client.list_tools()
        server.scopes = "read more"
        assert await client.run("greet", {"name": "you"}) == "Hello, you!"
    assert [each.scopes for each in server.authorizations] == [["read"], ["read", "more"]]


async def test_a_person_who_says_no_is_quoted(server: Guarded):
    server.denies = True
    with pytest.raises(MCPServerError, match=r"the sign-in was refused: access_denied: not today$"):
        await greet({"url": server.url}, sign_in=sign_in)


async def test_a_sign_in_that_nobody_does_ends_and_its_port_is_closed(server: Guarded, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ipybox.mcp_client.oauth.callback.SIGN_IN_TIMEOUT", 0.2)
    shown: list[str] = []

    async def look(url: str) -> None:
        shown.append(url)

    with pytest.raises(MCPServerError, match=r"nobody signed in within 0\.2 s$"):
        await greet({"url": server.url}, sign_in=look)
    with pytest.raises(httpx2.ConnectError):
        await browse(callback_of(shown[0]))


def callback_of(url: str, **answer: str) -> str:
    """Returns the address that a browser goes to in the end."""
    (uri,) = parse_qs(urlsplit(url).query)["redirect_uri"]
    return str(httpx2.URL(uri, params=answer))


async def test_an_answer_to_another_request_is_refused_and_the_right_one_is_waited_for(server: Guarded):
    async def sign_in_after_an_attack(url: str) -> None:
        attack = await browse(callback_of(url, code="stolen", state="wrong"))
        assert attack.status_code == 400
        assert (await browse(callback_of(url, code="stolen"))).status_code == 400
        assert (await browse(callback_of(url).replace("/callback", "/"))).status_code == 404
        (state,) = parse_qs(urlsplit(url).query)["state"]
        await sign_in(url)
        assert (await browse(callback_of(url, code="late", state=state))).status_code == 400

    assert await greet({"url": server.url}, sign_in=sign_in_after_an_attack) == "Hello, you!"


async def test_a_browser_that_opens_connections_for_later_keeps_nothing_open(server: Guarded):
    idle: list[asyncio.StreamWriter] = []

    async def sign_in_with_spare_connections(url: str) -> None:
        parts = urlsplit(callback_of(url))
        idle.append((await asyncio.open_connection(parts.hostname, parts.port))[1])
        await sign_in(url)

    assert await greet({"url": server.url}, sign_in=sign_in_with_spare_connections) == "Hello, you!"
    idle[0].close()


async def test_a_server_with_an_authorization_header_gets_no_sign_in(server: Guarded):
    params = {"url": server.url, "headers": {"authorization": "Bearer mine"}}
    with pytest.raises(MCPServerError, match=r"HTTP 401"):
        await greet(params, sign_in=sign_in)
    assert server.count("GET /authorize") == 0


async def test_a_server_without_oauth_that_refuses_says_its_status():
    async with http_page(401) as url:
        with pytest.raises(MCPServerError, match=r"requires a sign-in \(HTTP 401\), and the sign-in failed: Reg"):
            await greet({"url": f"{url}/mcp"}, sign_in=sign_in)


async def test_a_token_goes_to_no_other_origin(server: Guarded):
    from ipybox.mcp_client.oauth.authenticator import Authenticator

    await greet({"url": server.url}, sign_in=sign_in)
    remote = parse_params({"url": server.url})
    authenticator = Authenticator(remote, None, asyncio.Lock, Reach(server.url))  # pyright: ignore[reportArgumentType]
    sent: dict[str, bool] = {}
    for url in (server.url, server.url.replace("127.0.0.1", "localhost"), server.url.replace("http:", "https:")):
        flow = authenticator.async_auth_flow(httpx2.Request("POST", url))
        sent[url] = "Authorization" in (await anext(flow)).headers
        await flow.aclose()
    assert list(sent.values()) == [True, False, False]


async def test_a_damaged_file_means_no_tokens(server: Guarded, state: Path):
    await greet({"url": server.url}, sign_in=sign_in)
    (file,) = files(state)
    file.write_text(file.read_text()[:-10])

    with pytest.raises(MCPServerError, match=REGISTER_AGAIN):
        await greet({"url": server.url})
    assert await greet({"url": server.url}, sign_in=sign_in) == "Hello, you!"


async def test_a_file_of_another_server_is_not_used(server: Guarded, state: Path):
    await greet({"url": server.url}, sign_in=sign_in)
    (file,) = files(state)
    grant = json.loads(file.read_text())
    file.write_text(json.dumps(grant | {"resource": "https://example.org/mcp"}))

    with pytest.raises(MCPServerError, match=REGISTER_AGAIN):
        await greet({"url": server.url})


async def test_errors_show_no_token(server: Guarded):
    await greet({"url": server.url}, sign_in=sign_in)
    async with asyncio.timeout(WAIT), MCPClient({"url": server.url}, WAIT) as client:
        await client.list_tools()
        server.echoes = True
        with pytest.raises(ToolRunnerError, match=r"^what is \[redacted\]\?$"):
            await client.run("greet", {"name": "you"})


async def test_a_client_that_is_registered_beforehand_is_used_and_its_secret_is_not_kept(
    server: Guarded, state: Path, monkeypatch: pytest.MonkeyPatch
):
    await greet({"url": server.url}, sign_in=sign_in)
    (known,) = server.clients.values()
    assert known.client_secret is not None
    monkeypatch.setenv("OAUTH_SECRET", known.client_secret)
    uri = str((known.redirect_uris or [])[0])
    oauth = {
        "client_id": known.client_id,
        "client_secret": "${OAUTH_SECRET}",
        "issuer": server.url.removesuffix("mcp"),
        "token_endpoint_auth_method": "client_secret_post",
        "redirect_uri": uri,
        "scope": "read more",
    }
    known.scope = "read more"
    before = set(files(state))
    assert await greet({"url": server.url, "oauth": oauth}, sign_in=sign_in) == "Hello, you!"
    assert server.count("POST /register") == 1
    assert server.authorizations[-1].scopes == ["read", "more"]
    (file,) = set(files(state)) - before
    assert known.client_secret not in file.read_text()
    server.expire()
    assert await greet({"url": server.url, "oauth": oauth}) == "Hello, you!"


async def test_a_secret_goes_to_its_own_authorization_server_only(server: Guarded):
    oauth = {"client_id": "me", "client_secret": "my secret", "issuer": "https://example.org"}
    with pytest.raises(MCPServerError, match="its authorization server is not the 'issuer'"):
        await greet({"url": server.url, "oauth": oauth}, sign_in=sign_in)
    assert server.count("GET /authorize") == server.count("POST /token") == 0


async def test_connections_to_the_callback_are_limited(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ipybox.mcp_client.oauth.callback._MAX_CONNECTIONS", 1)
    async with CallbackServer() as callback:
        port = urlsplit(callback.uri).port
        first, *others = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]

        async with asyncio.timeout(10):
            assert await first[0].read() == b""
        for _, writer in (first, *others):
            writer.close()
            await writer.wait_closed()
