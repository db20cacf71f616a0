"""Code can't widen what a person lets run without asking: every way to another tool, server or definition asks."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ipybox import ApprovalRequest, CodeExecutionError, CodeExecutor, generate_mcp_sources
from ipybox.support.state import state_dir
from ipybox.tool_exec.approval.policy import WRITES, ApprovalPolicy
from tests import servers
from tests.conftest import Mode, both_modes

READS = {"readOnlyHint": True, "openWorldHint": False}

#: What code calls, after `agreed, other = CLIENT, CLIENT` of both servers.
ATTACKS = {
    "another tool": "agreed.run_sync('record', {'text': 'x'})",
    "a read that reaches the internet": "agreed.run_sync('env', {})",
    "another spelling": "agreed.run_sync('Echo', {'text': 'x'})",
    "an invisible character": "agreed.run_sync('echo\\u200b', {'text': 'x'})",
    "another server with the same tool": "other.run_sync('echo', {'text': 'x'})",
    "the seal of the agreed server": "runner('other', OTHER, agreed_seal).run_sync('echo', {'text': 'x'})",
    "the name of the agreed server": "runner('agreed', OTHER, other_seal).run_sync('echo', {'text': 'x'})",
    "parameters of its own": "runner('agreed', {**AGREED, 'cwd': '/'}, agreed_seal).run_sync('echo', {'text': 'x'})",
    "no seal": "runner('agreed', AGREED, None).run_sync('echo', {'text': 'x'})",
    "the application's functions": "runner('app', {}, agreed_seal).run_sync('echo', {'text': 'x'})",
    "ipybox itself": "runner('ipybox', {}, agreed_seal).run_sync('echo', {'text': 'x'})",
}
SETUP = """
import re
from ipybox.tool_exec.client import ToolRunner
from mcptools.agreed import CLIENT as agreed
from mcptools.other import CLIENT as other
agreed_seal, other_seal = (
    re.search(r"seal=['\\"](.*?)['\\"]", open(f"mcptools/{name}/__init__.py").read())[1] for name in ("agreed", "other")
)
def runner(name, params, seal):
    return ToolRunner.from_env(name, params, seal=seal)
"""


class Person:
    """Declines whatever is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, request: ApprovalRequest) -> None:
        self.asked.append(f"{request.server_name}.{request.tool_name}")
        await request.reject("no")


@asynccontextmanager
async def running(directory: Path, mode: Mode) -> AsyncGenerator[tuple[CodeExecutor, Person]]:
    """An executor with two servers that offer the same tools; `echo` of one of them runs without asking."""
    listed = directory / "tools.json"
    hints: dict[str, dict[str, bool]] = {"echo": READS, "env": {"readOnlyHint": True}, "record": {}}
    listed.write_text(json.dumps([{"name": name, "annotations": each} for name, each in hints.items()]))
    workspace = directory / "workspace"
    params = {name: servers.scripted("--tools", str(listed), f"--{name}") for name in ("agreed", "other")}
    for name, each in params.items():
        modules = await generate_mcp_sources(name, each, workspace / "mcptools")
        if name == "agreed":
            modules.registration.agree(["echo"])
    person = Person()
    policy = ApprovalPolicy(WRITES, workspace)
    options: dict[str, Any] = {"working_dir": workspace, "approval_policy": policy, "approver": person}
    async with CodeExecutor(sandbox=mode.sandbox, **options) as executor:
        await executor.execute(f"AGREED, OTHER = {params['agreed']!r}, {params['other']!r}\n{SETUP}")
        yield executor, person


@both_modes
async def test_code_reaches_no_tool_beyond_those_that_were_agreed_to(tmp_path: Path, mode: Mode):
    async with running(tmp_path, mode) as (executor, person):
        assert (await executor.execute("print(agreed.run_sync('echo', {'text': 'x'}))")).text == "x"
        assert person.asked == []

        ran = {}
        for attack, code in ATTACKS.items():
            with pytest.raises(CodeExecutionError):
                ran[attack] = await executor.execute(code)
        assert ran == {}
        # In the sandbox, the tool server refuses invalid seals before anybody is asked.
        assert len(person.asked) == (5 if mode.sandbox else len(ATTACKS))


@pytest.mark.kernel  # only the sandbox protects the record
async def test_code_can_not_agree_for_a_person(tmp_path: Path):
    async with running(tmp_path, Mode.SANDBOX) as (executor, person):
        records = sorted((state_dir() / "packages").iterdir())
        code = f"""
for file in {[*map(str, records)]!r}:
    for act in (lambda: open(file, "r+b").write(b""), lambda: open(file).read()):
        try:
            act()
        except OSError:
            pass
        else:
            print("done")
"""
        assert (await executor.execute(code)).text is None
        for file in ("mcptools/agreed/.ipybox.json", "mcptools/agreed/__init__.py"):
            change = "text = open(file).read().replace('record', 'echo'); open(file, 'w').write(text)"
            await executor.execute(f"file = {file!r}; {change}")
        with pytest.raises(CodeExecutionError, match=r"agreed\.record was rejected: no"):
            await executor.execute(ATTACKS["another tool"])
        assert person.asked == ["agreed.record"]
