"""Where the metadata of a remote server can send the host: no nearer to this machine than the server itself is.

Here, 127.0.0.2 counts as an address on the internet.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from ipybox.errors import MCPServerError
from ipybox.mcp_client import http, params
from ipybox.mcp_client.client import MCPClient
from ipybox.mcp_client.http import OutOfReachError, Reach, Zone, bounded
from tests.servers import WAIT

FAR = "127.0.0.2"


@dataclass
class Site:
    """A web server of a few documents; anything else is not found."""

    origin: str = ""
    documents: dict[str, tuple[int, dict[str, str], Any]] = field(
        default_factory=dict[str, tuple[int, dict[str, str], Any]]
    )
    #: What has arrived, by connection.
    received: list[bytes] = field(default_factory=list[bytes])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = await reader.read(65536)
        self.received.append(data)
        path = data.split(b" ")[1].decode().partition("?")[0] if data.startswith((b"GET ", b"POST ")) else ""
        status, headers, document = self.documents.get(path, (404, {}, None))
        body = json.dumps(document).encode()
        lines = [f"{name}: {value}" for name, value in headers.items()]
        head = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close", *lines, "", ""]
        writer.write("\r\n".join(head).encode() + body)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def site(address: str) -> AsyncGenerator[Site]:
    found = Site()
    async with await asyncio.start_server(found.serve, address, 0) as server:
        found.origin = f"http://{address}:{server.sockets[0].getsockname()[1]}"
        yield found


@pytest.fixture
async def near() -> AsyncIterator[Site]:
    """A service of this machine that a server has no business with."""
    async with site("127.0.0.1") as found:
        yield found


@pytest.fixture
async def far(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    """A server on the internet, which asks for a sign-in, and is its own authorization server."""
    real = http.zone_of

    def zone_of(address: str) -> Zone:
        return Zone.INTERNET if address == FAR else real(address)

    monkeypatch.setattr(http, "zone_of", zone_of)
    monkeypatch.setattr(params, "_LOOPBACK", (*params._LOOPBACK, FAR))  # pyright: ignore[reportPrivateUsage] - no TLS
    async with site(FAR) as found:
        yield asking(found)


def asking(server: Site, **endpoints: str) -> Site:
    """Has a server ask for a sign-in, with these differences in the metadata."""
    resource = endpoints.pop("resource_metadata", f"{server.origin}/resource")
    authorization = endpoints.pop("authorization_servers", server.origin)
    metadata = {
        "issuer": server.origin,
        "authorization_endpoint": f"{server.origin}/authorize",
        "token_endpoint": f"{server.origin}/token",
        "registration_endpoint": f"{server.origin}/register",
        "response_types_supported": ["code"],
        **endpoints,
    }
    client = {"client_id": "c", "redirect_uris": ["http://127.0.0.1:1/"], "token_endpoint_auth_method": "none"}
    server.documents = {
        "/mcp": (401, {"WWW-Authenticate": f'Bearer resource_metadata="{resource}"'}, None),
        "/resource": (200, {}, {"resource": f"{server.origin}/mcp", "authorization_servers": [authorization]}),
        "/.well-known/oauth-authorization-server": (200, {}, metadata),
        "/register": (201, {}, client),
        "/token": (200, {}, {"access_token": "t", "token_type": "Bearer"}),
    }
    return server


async def agree(url: str) -> None:
    """A person who signs in at an authorization page that is not there."""
    query = parse_qs(urlsplit(url).query)
    async with httpx2.AsyncClient() as browser:
        await browser.get(query["redirect_uri"][0], params={"code": "x", "state": query["state"][0]})


async def refused(server: Site) -> str:
    """Returns why a sign-in fails."""
    with pytest.raises(MCPServerError) as error:
        async with asyncio.timeout(WAIT), MCPClient({"url": f"{server.origin}/mcp"}, WAIT, sign_in=agree):
            pass
    return str(error.value)


ENDPOINTS = [
    "resource_metadata", "authorization_servers", "registration_endpoint", "token_endpoint", "authorization_endpoint",
]  # fmt: skip


@pytest.mark.parametrize(
    ("endpoint", "host"),
    [
        *((endpoint, host) for endpoint in ENDPOINTS for host in ("http://127.0.0.1", "http://localhost")),
        # A browser looks names up by itself.
        *((endpoint, host) for endpoint in ENDPOINTS[:-1] for host in ("https://127.1", "https://2130706433")),
    ],
)
async def test_no_metadata_of_a_far_server_lead_to_this_machine(far: Site, near: Site, endpoint: str, host: str):
    asking(far, **{endpoint: f"{host}:{near.origin.rpartition(':')[2]}/x"})

    message = await refused(far)

    assert "is on this machine, but the MCP server is on the internet" in message
    assert b"".join(near.received) == b""


@pytest.mark.parametrize("address", ["http://a.b/" + "a" * 50_000, f"https://{'a.' * 20_000}localhost/"])
async def test_an_address_does_not_fill_an_error(far: Site, address: str):
    asking(far, authorization_endpoint=address)

    assert len(await refused(far)) < 1000


@pytest.mark.parametrize(
    ("host", "zone"),
    [
        ("169.254.169.254", "at a link-local address"),
        ("10.0.0.1", "on a private network"),
        ("[fd00::1]", "on a private network"),
    ],
)
async def test_no_metadata_of_a_far_server_lead_to_a_network_of_this_machine(far: Site, host: str, zone: str):
    asking(far, token_endpoint=f"https://{host}/x")

    assert f"{host.strip('[]')} is {zone}, but the MCP server is on the internet" in await refused(far)


@pytest.mark.parametrize("endpoint", ["authorization_servers", "registration_endpoint", "token_endpoint"])
async def test_the_metadata_of_a_server_on_this_machine_lead_where_they_like(near: Site, endpoint: str):
    async with site("127.0.0.1") as server:
        await refused(asking(server, **{endpoint: f"{near.origin}/x"}))

    assert near.received


async def test_the_authorization_server_that_the_user_has_named_may_be_near(far: Site, near: Site):
    asking(far, authorization_servers=near.origin)
    asking(near)
    oauth = {"client_id": "c", "issuer": near.origin}

    with pytest.raises(MCPServerError):
        async with asyncio.timeout(WAIT):
            await MCPClient({"url": f"{far.origin}/mcp", "oauth": oauth}, WAIT, sign_in=agree).__aenter__()

    assert any(b"POST /token " in data for data in near.received)


async def test_a_name_that_leads_nearer_than_before_is_not_followed(near: Site):
    reach = Reach("http://127.1/mcp")
    reach.learn(Zone.INTERNET)
    async with httpx2.AsyncClient(event_hooks=bounded(reach, is_server=True)) as client:
        with pytest.raises(OutOfReachError, match=r"127\.1 is on this machine"):
            await client.get(near.origin.replace("127.0.0.1", "127.1"))

    assert near.received in ([], [b""])


@pytest.mark.parametrize(
    ("address", "zone"),
    [
        ("127.0.0.1", Zone.LOOPBACK),
        ("127.255.0.1", Zone.LOOPBACK),
        ("::1", Zone.LOOPBACK),
        ("0.0.0.0", Zone.LOOPBACK),
        ("::", Zone.LOOPBACK),
        ("::ffff:127.0.0.1", Zone.LOOPBACK),
        ("169.254.169.254", Zone.LINK_LOCAL),
        ("fe80::1%eth0", Zone.LINK_LOCAL),
        ("::ffff:169.254.169.254", Zone.LINK_LOCAL),
        ("10.0.0.1", Zone.PRIVATE),
        ("172.16.0.1", Zone.PRIVATE),
        ("192.168.0.1", Zone.PRIVATE),
        ("100.64.0.1", Zone.PRIVATE),
        ("fd00::1", Zone.PRIVATE),
        ("fec0::1", Zone.PRIVATE),
        ("64:ff9b::a00:1", Zone.PRIVATE),
        ("64:ff9b::808:808", Zone.INTERNET),
        ("2002:7f00:1::", Zone.LOOPBACK),
        ("8.8.8.8", Zone.INTERNET),
        ("2606:4700::1", Zone.INTERNET),
    ],
)
def test_addresses_are_in_zones(address: str, zone: Zone):
    assert http.zone_of(address) is zone


@pytest.mark.parametrize("host", ["127.1", "0x7f.1", "2130706433", "017700000001", "127.0.0.1.", "localhost.", "0"])
async def test_other_spellings_of_this_machine_are_out_of_reach_even_behind_a_proxy(host: str):
    reach = Reach("https://8.8.8.8" if host != "0" else "https://name.invalid")
    with pytest.raises(OutOfReachError, match="on this machine, but the MCP server is on the internet"):
        await reach.check(httpx2.URL(f"http://{host}/"))
