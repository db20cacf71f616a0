"""Sessions of the real client with the plugins, in which a script is the model."""

import json
import re
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ipybox.mcp_server.outputs import PAGE_BYTES
from tests.claude.api import Block, Request, text, tool
from tests.claude.conftest import Installed, in_sandbox, sandbox_and_docker
from tests.claude.example import TOKEN, Example
from tests.servers import ROOT, WAIT

#: Tools of the client that sessions here use.
TOOLS = ("Skill", "Read", "Write", "Edit", "Bash")


@pytest.fixture
def github() -> Iterator[str]:
    """The URL of the stand-in of GitHub's MCP server."""
    command = [sys.executable, str(ROOT / "tests" / "github_server.py"), "--http", "--token", TOKEN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        try:
            assert select.select([server.stdout], [], [], WAIT)[0], "the server does not start"
            yield server.stdout.readline().strip()
        finally:
            server.kill()


@sandbox_and_docker
def test_documented_example(installed: Installed, workspace: Path, github: str):
    example = Example(installed, workspace, github)
    allowed = [installed.tools, *TOOLS]
    first = installed.home.session(
        "Use the codeact skill to register GitHub's server and …", example.first_session(), workspace, allowed=allowed
    )
    assert first.servers == {f"plugin:{installed.plugin}:ipybox": "connected"}
    assert first.answer == "Saved."

    second = installed.home.session("Commits of octocat", example.second_session(), workspace, allowed=allowed)
    assert second.answer == "Here they are."

    for request in [*first.requests, *second.requests]:
        assert TOKEN not in json.dumps(request.body)
        assert "SessionStart" not in request.text, "there is nothing to notice"


@in_sandbox
def test_package_picture_and_long_output(installed: Installed, workspace: Path):
    picture = "import cowsay\nfrom PIL import Image\ndisplay(Image.new('RGB', (8, 8), 'red'))"

    def package_is_there(request: Request) -> list[Block]:
        assert not request.results[0].is_error, request.results
        return [
            tool("execute_ipython_cell", code=picture),
            tool("execute_ipython_cell", code="print('x' * 1000 + 'end')", max_output_chars=100),
        ]

    def is_shown(request: Request) -> list[Block]:
        shown, printed = request.results
        assert shown.images == 1
        (file,) = re.findall(r"^- (\S+\.png)$", shown.text, re.MULTILINE)
        assert (workspace / file).read_bytes().startswith(b"\x89PNG")
        assert "xend" in printed.text
        assert len(printed.text) < 220 + len(str(workspace))
        assert "ipybox://" not in printed.text
        (file,) = re.findall(r"Full output: (\S+)", printed.text)
        return [tool("Read", file_path=file)]

    def is_read(request: Request) -> list[Block]:
        assert request.result.endswith(f"{'x' * 1000}end")
        return [text("Done.")]

    script = [[tool("install_package", package_name="cowsay==6.1")], package_is_there, is_shown, is_read]
    installed.home.session("Show", script, workspace, allowed=[installed.tools, "Read"])


@in_sandbox
def test_output_of_a_megabyte_is_paged_through_by_resource(installed: Installed, workspace: Path):
    expected = "".join(f"line {i}\n" for i in range(100_000)).removesuffix("\n")
    assert len(expected) > 1_000_000
    pages: list[str] = []

    def is_cut(request: Request) -> list[Block]:
        (address,) = re.findall(r"Full output: (ipybox://\S+),", request.result)
        return [tool("ReadMcpResourceTool", server=f"plugin:{installed.plugin}:ipybox", uri=address)]

    def is_page(request: Request) -> list[Block]:
        page, *line = json.loads(request.result)["contents"]
        pages.append(page["text"])
        if not line:
            return [text("Done.")]
        (following,) = re.findall(r"Next: (\S+)$", line[0]["text"])
        return [tool("ReadMcpResourceTool", server=f"plugin:{installed.plugin}:ipybox", uri=following)]

    prints = tool("execute_ipython_cell", code="for i in range(100_000): print('line', i)")
    script = [[prints], is_cut, *[is_page] * -(-len(expected) // PAGE_BYTES)]
    with installed.home.other_config(installed.plugin, resources="true"):
        installed.home.session("Print", script, workspace, allowed=[installed.tools, "ReadMcpResourceTool"])
    assert "".join(pages) == expected


@in_sandbox
def test_what_is_missing_is_told_to_the_model(installed: Installed, workspace: Path):
    def is_told(request: Request) -> list[Block]:
        assert "SessionStart" in request.text
        assert "codeact-sandbox can't run code here: srt is missing.\nTell the user what to do: " in request.text
        assert "npm install -g @anthropic-ai/sandbox-runtime" in request.text
        return [tool("execute_ipython_cell", code="open('ran', 'w')")]

    def is_refused(request: Request) -> list[Block]:
        (result,) = request.results
        assert result.is_error
        assert "the sandbox can't start, so no code ran:\n  srt is not on PATH: install it" in result.text
        return [text("You lack srt.")]

    home = installed.home.without("srt")
    home.session("Hello", [is_told, is_refused], workspace, allowed=[installed.tools])
    assert not (workspace / "ran").exists()

    # The client would leave a server alone for a quarter of an hour that did not start.
    def is_there(request: Request) -> list[Block]:
        return [text(request.result)]

    script = [[tool("execute_ipython_cell", code="print('srt is there')")], is_there]
    session = installed.home.session("Again", script, workspace, allowed=[installed.tools])
    assert session.answer == "srt is there"
