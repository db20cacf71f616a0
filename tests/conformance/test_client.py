"""`MCPClient` in the client scenarios of npm's `@modelcontextprotocol/conformance`, whose servers check what they get.

The release is run as a whole, and of the version to come what the release has not. The suite starts a program as its
client, which hands the scenario on to the test: that takes two seconds less each time.
"""

import asyncio
import json
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.conformance import client
from tests.conformance.suite import NEXT, RELEASE, program
from tests.servers import ROOT, WAIT

FORWARD = ROOT / "tests" / "conformance" / "forward.py"
SCENARIOS = {
    RELEASE: (
        "initialize",
        "tools_call",
        "sse-retry",
        "auth/metadata-default",
        "auth/metadata-var1",
        "auth/metadata-var2",
        "auth/metadata-var3",
        "auth/basic-cimd",
        "auth/scope-from-www-authenticate",
        "auth/scope-from-scopes-supported",
        "auth/scope-omitted-when-undefined",
        "auth/scope-step-up",
        "auth/scope-retry-limit",
        "auth/token-endpoint-auth-basic",
        "auth/token-endpoint-auth-post",
        "auth/token-endpoint-auth-none",
        "auth/pre-registration",
        "auth/2025-03-26-oauth-endpoint-fallback",
        "auth/resource-mismatch",
        "auth/offline-access-scope",
        "auth/offline-access-not-supported",
        "auth/client-credentials-jwt",
        "auth/client-credentials-basic",
    ),
    NEXT: (
        "request-metadata",
        "http-standard-headers",
        "http-custom-headers",
        "http-invalid-tool-headers",
        "json-schema-ref-no-deref",
        "json-schema-2020-12-preservation",
        "auth/2025-03-26-oauth-metadata-backcompat",
        "auth/authorization-server-migration",
        "auth/iss-supported",
        "auth/iss-not-advertised",
        "auth/iss-supported-missing",
        "auth/iss-wrong-issuer",
        "auth/iss-unexpected",
        "auth/iss-normalized",
        "auth/metadata-issuer-mismatch",
    ),
}

_QUESTIONS = "questions of servers, which ipybox does not answer"
_ENTERPRISE = "an extension for companies' identity providers, which ipybox has no part in"
_DPOP = "an extension (RFC 9449) that the SDK's client has not"
_SKILLS = "an extension for skills as resources, of which ipybox's client reads none"

#: Why the others are not run.
NOT_APPLICABLE = {
    (RELEASE, "elicitation-sep1034-client-defaults"): _QUESTIONS,
    (NEXT, "elicitation-sep1034-client-defaults"): _QUESTIONS,
    (RELEASE, "auth/2025-03-26-oauth-metadata-backcompat"): (
        "its metadata name another issuer than that where they are, which RFC 8414 (3.3) has refused; mended in "
        "the version to come, of which it is run"
    ),
    (RELEASE, "auth/cross-app-access-complete-flow"): _ENTERPRISE,
    (NEXT, "auth/enterprise-managed-authorization"): _ENTERPRISE,
    (NEXT, "auth/wif-jwt-bearer"): _ENTERPRISE,
    (NEXT, "auth/dpop"): _DPOP,
    (NEXT, "auth/dpop-nonce"): _DPOP,
    (NEXT, "sep-2322-client-request-state"): (
        "its server leaves out `resultType`, which the revision 2026-07-28 demands of servers: the SDK refuses that "
        "result, and the suite wants it taken for complete"
    ),
    (NEXT, "sep-2640-client-no-prefetch"): _SKILLS,
    (NEXT, "sep-2640-client-verify-digest"): _SKILLS,
    (NEXT, "sep-2640-client-verify-size"): _SKILLS,
    (NEXT, "sep-2640-client-verify-frontmatter"): _SKILLS,
}


@pytest.mark.parametrize(
    ("suite", "scenario"),
    [pytest.param(suite, name, id=name) for suite, names in SCENARIOS.items() for name in names],
)
async def test_scenario_passes(suite: str, scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # Servers get the same ports again, and would find a sign-in to another one.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    async with clients(tmp_path / "socket") as failures:
        command = f"{sys.executable} -I -S {FORWARD} {tmp_path / 'socket'}"
        status, output = await run(suite, "client", "--command", command, "--scenario", scenario, cwd=tmp_path)
    assert status == 0, f"{output}\n{failures}"


@pytest.mark.parametrize("suite", [RELEASE, NEXT])
async def test_every_scenario_is_run_or_listed_with_a_reason(suite: str, tmp_path: Path):
    _, output = await run(suite, "list", "--client", cwd=tmp_path)
    listed = set(re.findall(r"^  - (\S+)", output, re.MULTILINE))
    others = {name for of, name in NOT_APPLICABLE if of == suite}
    of_release: set[str] = set() if suite == RELEASE else listed & set(SCENARIOS[RELEASE])

    assert len(listed) > 20
    assert listed == set(SCENARIOS[suite]) | others | of_release
    assert not others & set(SCENARIOS[suite])


async def run(suite: str, *arguments: str, cwd: Path) -> tuple[int | None, str]:
    """Runs a suite, and returns its exit status and what it printed."""
    process = await asyncio.create_subprocess_exec(
        *(*program(suite), *arguments),
        cwd=cwd,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode()


@asynccontextmanager
async def clients(path: Path) -> AsyncGenerator[list[str]]:
    """Runs the scenarios that come to a socket, and yields the list of what went wrong in them.

    Some are meant to: the suite says so.
    """
    failures: list[str] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        scenario, context, url = json.loads(await reader.readline())
        try:
            async with asyncio.timeout(WAIT):
                await client.run(scenario, context, url)
        except Exception as exc:
            failures.append(f"{type(exc).__name__}: {exc}")
            writer.write(failures[-1].encode())
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_unix_server(take, path):
        yield failures
