"""Executes the Python of `docs/`, and checks that its examples are what the text shows.

`docs/quickstart.md` and `docs/sdk.md` are tested with the README, as a new user follows them. A text
block after a script is its output; at most one line is between them. `test_generated_docs.py` runs the cells of
`docs/claude-code.md`, and `make clients` those of `docs/examples/`.
"""

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from ipybox import ExecutorConfig
from ipybox.cli.command import ipybox
from ipybox.kernel_mgr.transfer.file_transfer import FileTransfer
from ipybox.mcp_client.params import OAuthParams, parse_params
from ipybox.mcp_server.services import WorkspaceServices
from ipybox.mcp_server.tools import ToolHandlers
from ipybox.sandbox.settings import load_settings
from ipybox.tool_exec.approval.policy import ApprovalPolicy
from tests.audit.lines import log_of, steady
from tests.cli.parsed import parsed
from tests.servers import ROOT
from tests.warm import WarmPython, warm_python

#: As in an activated environment.
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
DOCS = ROOT / "docs"
#: Pages whose scripts other tests run.
ELSEWHERE = {DOCS / f"{name}.md" for name in ("audit", "quickstart", "sdk", "claude-code")}
#: Options of other programs that sentences name.
OPTIONS_OF_OTHERS = {
    *("--build-arg", "--force-reinstall", "--index-url", "--job-name", "--label", "--mem", "--ntasks", "--target"),
    "--time",
}
#: A script, and the output that the page shows for it.
SCRIPT = re.compile(
    r"^```python\n(.*?)^```$(?:\n+(?:[^`#\n][^\n]*\n\n)?^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL
)
#: A tab, and what is in it.
TAB = re.compile(r"^===+? .*\n((?:(?: {4}.*)?\n)*)", re.MULTILINE)


def text_of(page: Path) -> str:
    """Returns the Markdown of a page, without the indentation of what is in tabs."""
    return TAB.sub(lambda tab: textwrap.dedent(tab[1]), page.read_text())


SCRIPTS = [
    pytest.param(*match.groups(), id=f"{page.stem}_{number}")
    for page in sorted({*DOCS.glob("*.md")} - ELSEWHERE)
    for number, match in enumerate(SCRIPT.finditer(text_of(page)))
    if "import " in match[1] and "def test_" not in match[1]  # the others are fragments, or tests
]


@pytest.fixture(scope="module")
def python(shared: None) -> Iterator[WarmPython]:
    """What runs the scripts."""
    with warm_python(sys.executable, os.environ) as running:
        yield running


@pytest.mark.parametrize(("script", "shown"), SCRIPTS)
def test_script_of_the_documentation_runs(script: str, shown: str | None, python: WarmPython, tmp_path: Path):
    shutil.copytree(DOCS / "examples", tmp_path / "examples")
    (tmp_path / "README.md").touch()
    (tmp_path / ".env").write_text("TOKEN=secret")

    env = {"PATH": PATH, "HOME": str(tmp_path.parent), "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"]}
    done = python.run(script, tmp_path, env, timeout=60)

    assert done.returncode == 0, done.stderr
    assert "INFO" not in done.stderr, "the application's logging was changed"
    assert "secret" not in done.stdout + done.stderr
    assert done.stdout == shown, "the page shows what each program prints"


OF_ANOTHER_USER = """
from pathlib import Path
from ipybox import CodeExecutionError, Executor

for user in ("ada", "bob"):
    (Path.home() / "users" / user).mkdir(parents=True)
    (Path.home() / "users" / user / "notes.txt").write_text(user)
options = {"sandbox": True, "sandbox_config": "workspace", "working_dir": Path.home() / "users" / "ada"}
with Executor(**options) as executor:
    print(executor.run("print(open('notes.txt').read())").text)
    try:
        executor.run("open('../bob/notes.txt')")
    except CodeExecutionError as error:
        print(error.name)
"""


def test_users_of_a_service_below_its_home_directory_read_only_their_own_files(python: WarmPython, tmp_path: Path):
    env = {"PATH": PATH, "HOME": str(tmp_path), "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"]}

    done = python.run(OF_ANOTHER_USER, tmp_path, env, timeout=60)

    assert done.stdout == "ada\nFileNotFoundError\n", done.stderr


def test_fixtures_that_are_shown_work(tmp_path: Path):
    (tests,) = (match[1] for match in SCRIPT.finditer((DOCS / "service.md").read_text()) if "def test_" in match[1])
    (tmp_path / "test_shown.py").write_text(tests)
    env = {"PATH": PATH, "HOME": str(tmp_path), "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"]}
    # A directory of its own: in the shared one, pytest would remove those of earlier runs at its exit, for a minute.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp=temp", "test_shown.py"]

    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)

    assert "1 passed" in done.stdout, done.stdout


def test_each_program_of_the_documentation_shows_what_it_prints():
    programs = [
        (page.name, script, shown)
        for page in DOCS.glob("*.md")
        for script, shown in SCRIPT.findall(page.read_text())
        if re.search(r"^asyncio\.run\(|^with Executor\(", script, re.MULTILINE)
    ]

    assert len(programs) > 10
    assert [(name, script) for name, script, shown in programs if not shown] == []


def commands_of(page: str) -> list[list[str]]:
    """Returns the arguments of each `ipybox` that a page shows, in a shell or in an MCP client's configuration."""
    shell = re.findall(r"^```bash\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    lines = [line for block in shell for line in block.splitlines() if line.startswith("ipybox")]
    configured = [json.loads(block) for block in re.findall(r"^```json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)]
    servers = [server for each in configured for server in each.get("mcpServers", {}).values() if "command" in server]
    assert {server["command"] for server in servers} <= {"ipybox"}
    return [*(shlex.split(line, comments=True)[1:] for line in lines), *(server["args"] for server in servers)]


def test_commands_that_are_shown_have_options_that_exist(tmp_path: Path):
    commands = [command for page in (ROOT / "README.md", *DOCS.glob("*.md")) for command in commands_of(text_of(page))]

    assert len(commands) > 20
    for command in commands:
        parsed([re.sub(r"^(--workspace=)?(/|~/)[^=]*$", rf"\g<1>{tmp_path}", word) for word in command])


def test_options_that_sentences_name_exist():
    pages = [page.read_text() for page in (ROOT / "README.md", *DOCS.glob("*.md"))]
    named = {option for page in pages for option in re.findall(r"`(--[a-z-]+)", page)}
    with ipybox.make_context("ipybox", ["serve"]) as context:
        commands = [ipybox.get_command(context, name) for name in ipybox.list_commands(context)]
    known = {name for command in commands if command for option in command.params for name in option.opts}

    assert len(named) > 30
    assert named - known - OPTIONS_OF_OTHERS == set()


def test_mcp_tools_have_the_parameters_that_are_shown(tmp_path: Path):
    config = ExecutorConfig(working_dir=tmp_path)
    services = WorkspaceServices(config, max_sessions=1, approve="auto", audit="off")
    tools = asyncio.run(ToolHandlers(services, files=FileTransfer(tmp_path, [tmp_path])).server.list_tools())
    shown = re.findall(r"^\| `(\w+)\((.*?)\)` \|", (DOCS / "mcp-server.md").read_text(), re.MULTILINE)

    assert dict(shown) == {
        tool.name: ", ".join(
            name if "default" not in schema else f"{name}={json.dumps(schema['default'])}"
            for name, schema in tool.input_schema["properties"].items()
        )
        for tool in tools
    }


def test_readme_names_the_commands_that_exist():
    readme = (ROOT / "README.md").read_text()
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^make ([a-z]+)", readme, re.MULTILINE)) <= targets


def test_settings_of_plugins_that_are_shown_exist():
    pages = "".join(page.read_text() for page in DOCS.glob("*.md"))
    shown = re.findall(r"plugin install (codeact-\w+)@ipybox((?: --config [^ `\n]+)*)", pages)
    settings = [(plugin, name) for plugin, options in shown for name in re.findall(r"--config (\w+)=", options)]

    assert len(settings) > 2
    for plugin, name in settings:
        manifest = json.loads((ROOT / "plugins" / plugin / ".claude-plugin" / "plugin.json").read_text())
        assert name in manifest["userConfig"]


def test_settings_that_are_shown_are_those_of_the_example():
    shown = re.findall(r"^```json\n(.*?)^```$", (DOCS / "sandbox.md").read_text(), re.MULTILINE | re.DOTALL)

    assert [json.loads(block) for block in shown] == [json.loads((DOCS / "examples/sandbox-kernel.json").read_text())]
    assert load_settings(DOCS / "examples" / "sandbox-kernel.json").allowed_domains == (
        "example.org",
        "*.example.org:443",
    )
    assert load_settings(DOCS / "examples" / "sandbox-mcp.json").deny_read[0] == ".env"


def test_imports_and_settings_that_replace_those_of_an_earlier_ipybox_work(tmp_path: Path):
    page = (DOCS / "migration.md").read_text()
    after = re.findall(r"^\| `from [^|]*\|([^|]*)\|$", page, re.MULTILINE)
    imports = [line for cell in after for line in re.findall(r"`(from ipybox[\w.]* import [\w, ]+)`", cell)]
    (settings,) = re.findall(r"^```json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "sandbox.json").write_text(settings)

    assert len(imports) > 5
    for line in imports:
        exec(line, {})
    assert load_settings(tmp_path / "sandbox.json").allow_write == (".", "~/data")


def test_rules_that_are_shown_are_a_policy(tmp_path: Path):
    (rules,) = re.findall(r"^```yaml\n(.*?)^```$", (DOCS / "approvals.md").read_text(), re.MULTILINE | re.DOTALL)
    policy = ApprovalPolicy(rules, tmp_path)

    assert policy.decide("bank", "transfer", {"amount": 1000}).effect == "ask"
    assert policy.decide("bank", "transfer", {"amount": 999}).effect == "allow"
    assert policy.decide("filesystem", "read_file", {"path": "secrets/x"}).effect == "deny"


def test_every_key_of_oauth_is_documented_and_the_example_is_right():
    page = (DOCS / "remote-servers.md").read_text()
    (example,) = re.findall(r"^```json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\|(.*?)\|", page, re.MULTILINE)

    assert parse_params(json.loads(example))
    assert {key for row in rows for key in re.findall(r"`(\w+)`", row)} == {field.name for field in fields(OAuthParams)}


def test_events_that_are_shown_are_those_of_the_script(python: WarmPython, tmp_path: Path):
    page = (DOCS / "audit.md").read_text()
    ((script, output),) = SCRIPT.findall(page)
    (shown,) = re.findall(r"^```jsonl\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    env = {"PATH": PATH, "HOME": str(tmp_path), "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"]}

    assert python.run(script, tmp_path, env, timeout=60).stdout == output

    hashes = {"code_hash": "", "arguments_hash": ""}  # which the user's own key makes different
    written = [steady(line) | hashes for line in log_of(tmp_path)[1:-1]]
    assert written == [steady(json.loads(line)) | hashes for line in shown.splitlines()]


PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md")),
    *sorted(DOCS.glob("*.md")),
    *sorted((ROOT / "dev").rglob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_link_to_a_file_leads_to_it(page: Path):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())

    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_class_of_the_architecture_is_there():
    page = (DOCS / "architecture.md").read_text()
    code = "\n".join(path.read_text() for path in (ROOT / "ipybox").rglob("*.py"))
    classes = set(re.findall(r"`([A-Z]\w*[a-z]\w*)(?:\.\w+)?(?:\(\))?`", page))

    assert len(classes) > 5
    assert [name for name in sorted(classes) if f"class {name}" not in code] == []


def test_decisions_are_numbered_and_dated():
    pages = sorted((ROOT / "dev" / "decisions").iterdir())

    assert [page.name[:4] for page in pages] == [f"{number:03}-" for number in range(1, len(pages) + 1)]
    assert [page.name for page in pages if not re.match(r"# .+\n\n20\d\d-\d\d · ", page.read_text())] == []


def test_every_test_that_promises_name_is_there():
    named = re.findall(r"`(tests/[\w/]+(?:\.py)?)`", (DOCS / "security.md").read_text())

    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []
