"""npm's conformance suite, its scenarios for servers: against ipybox, and against ipybox with the suite's own tools.

A scenario has to be in one of the tables, also one that a new version of the suite brings.
"""

import asyncio
import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conformance import fixture_server, suite
from tests.http_server import serving
from tests.proxy import forwarding

#: What ipybox does by itself.
OF_IPYBOX = (
    "dns-rebinding-protection",
    "ping",
    "resources-list",
    "server-initialize",
    "server-sse-multiple-streams",
    "tools-list",
)

#: What needs tools of certain names: these say that ipybox passes on what goes through it.
OF_FIXTURE = (
    *OF_IPYBOX,
    "elicitation-sep1034-defaults",
    "elicitation-sep1330-enums",
    "json-schema-2020-12",
    "tools-call-audio",
    "tools-call-elicitation",
    "tools-call-embedded-resource",
    "tools-call-error",
    "tools-call-image",
    "tools-call-mixed-content",
    "tools-call-sampling",
    "tools-call-simple-text",
    "tools-call-with-progress",
)

_NO_PROMPTS = "ipybox has no prompts, and does not announce any"
_NO_SUBSCRIPTIONS = "outputs never change, and their addresses come with results: there is nothing to subscribe to"
_OTHER_RESOURCES = (
    "it reads `test://` addresses, and ipybox's resources are outputs alone: see tests/mcp_server/test_server.py"
)
NOT_APPLICABLE = {
    "completion-complete": "ipybox has neither prompts nor templates with values to complete",
    "logging-set-level": "ipybox logs on stderr; MCP's logging is deprecated as of 2026-07-28",
    "tools-call-with-logging": "ipybox logs on stderr; MCP's logging is deprecated as of 2026-07-28",
    "prompts-list": _NO_PROMPTS,
    "prompts-get-simple": _NO_PROMPTS,
    "prompts-get-with-args": _NO_PROMPTS,
    "prompts-get-embedded-resource": _NO_PROMPTS,
    "prompts-get-with-image": _NO_PROMPTS,
    "resources-read-text": _OTHER_RESOURCES,
    "resources-read-binary": _OTHER_RESOURCES,
    "resources-templates-read": _OTHER_RESOURCES,
    "resources-subscribe": _NO_SUBSCRIPTIONS,
    "resources-unsubscribe": _NO_SUBSCRIPTIONS,
    "server-sse-polling": "the server never closes a stream to have the client come back, so it keeps no events",
}


@dataclass(frozen=True)
class Report:
    """What the suite found in one run over all scenarios."""

    directory: Path

    def failures(self, scenario: str) -> list[str]:
        """Returns what failed in a scenario, which has to have been tried."""
        (checks,) = self.directory.glob(f"server-{scenario}-20*/checks.json")
        found = json.loads(checks.read_text())
        assert found
        return [f"{check['name']}: {check.get('errorMessage')}" for check in found if check["status"] != "SUCCESS"]


async def report(workspace: Path, *program: str) -> Report:
    """Runs the suite against a server, through a proxy as it can't send a token."""
    with serving(workspace, program=program) as server:
        async with forwarding(server.url, server.token) as url:
            options = ["--url", url, "--suite", "all", "-o", str(workspace / "report")]
            command = [*suite.program(suite.RELEASE), "server", *options]
            await asyncio.to_thread(subprocess.run, command, capture_output=True, timeout=60, check=False)
    return Report(workspace / "report")


@pytest.fixture(scope="module")
def of_ipybox(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return asyncio.run(report(tmp_path_factory.mktemp("ipybox"), "-m", "ipybox"))


@pytest.fixture(scope="module")
def of_fixture(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return asyncio.run(report(tmp_path_factory.mktemp("fixture"), fixture_server.__file__))


@pytest.mark.parametrize("scenario", OF_IPYBOX)
def test_ipybox_passes(scenario: str, of_ipybox: Report):
    assert of_ipybox.failures(scenario) == []


@pytest.mark.parametrize("scenario", OF_FIXTURE)
def test_ipybox_with_the_tools_of_the_suite_passes(scenario: str, of_fixture: Report):
    assert of_fixture.failures(scenario) == []


def test_each_scenario_of_the_suite_is_in_a_table():
    listed = subprocess.run(
        [*suite.program(suite.RELEASE), "list", "--server"], capture_output=True, text=True, timeout=60, check=True
    )
    scenarios = re.findall(r"^  - ([\w-]+)", listed.stdout, re.MULTILINE)

    assert sorted(scenarios) == sorted({*OF_FIXTURE, *NOT_APPLICABLE})
    assert not set(OF_FIXTURE) & NOT_APPLICABLE.keys()
