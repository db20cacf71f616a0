"""An application that uses `MCPClient` for what the scenarios of the conformance suite are about."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import httpx2

from ipybox import generate_mcp_sources
from ipybox.mcp_client.client import MCPClient
from ipybox.workspace.registrations import ToolSpec
from tests.servers import WAIT

#: Where the suite expects that the client's metadata are published.
CLIENT_METADATA = "https://conformance-test.local/client-metadata.json"


async def run(scenario: str, context: dict[str, Any], url: str) -> None:
    """Connects to a server of the suite, and uses its tools."""
    params = {"url": url, "type": "http", **await agreement(scenario, context, url)}
    if scenario == "json-schema-ref-no-deref":
        with TemporaryDirectory() as directory:
            assert await generate_mcp_sources("suite", params, Path(directory))
        return
    async with MCPClient(params, WAIT, sign_in=sign_in) as client:
        for name, arguments in calls(context, await client.list_tools()):
            await client.call(name, arguments)


def calls(context: dict[str, Any], tools: list[ToolSpec]) -> list[tuple[str, dict[str, Any]]]:
    """The calls that the suite asks for; if it does not, one of each tool."""
    schemas = {tool.name: tool.input_schema for tool in tools}
    if "toolCalls" in context:
        return [(call["name"], call["arguments"]) for call in context["toolCalls"]]
    if "json_schema_echo" in schemas:
        del schemas["json_schema_echo"]
        return [("json_schema_echo", {"schema": schema}) for schema in schemas.values()]
    return [(name, dict.fromkeys(schema.get("properties", {}), 5)) for name, schema in schemas.items()]


async def sign_in(url: str) -> None:
    """A person whom the suite's authorization server signs in at once."""
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        (await browser.get(url)).raise_for_status()


async def agreement(scenario: str, context: dict[str, Any], url: str) -> dict[str, Any]:
    """What a user has agreed with the authorization server beforehand, in the parameters of the server."""
    if scenario == "auth/basic-cimd":
        return {"oauth": {"client_metadata_url": CLIENT_METADATA}}
    if "client_id" not in context:
        return {}
    oauth = {"client_id": context["client_id"], "issuer": await issuer(url)}
    if "client_secret" in context:
        oauth["client_secret"] = context["client_secret"]
    if "private_key_pem" in context:
        oauth |= {"private_key": context["private_key_pem"], "signing_algorithm": context["signing_algorithm"]}
    if "client-credentials" in scenario:
        oauth["grant"] = "client_credentials"
    return {"oauth": oauth}


async def issuer(url: str) -> str:
    """The authorization server, which its users know, and the suite does not tell."""
    parts = urlsplit(url)
    metadata = f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path}"
    async with httpx2.AsyncClient() as client:
        return str((await client.get(metadata)).json()["authorization_servers"][0])
