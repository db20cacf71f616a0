"""Runs each program of `examples/` with its command, in a workspace of its own.

In one mode: the programs choose it. They run no sandbox, since their code is their own.
"""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.audit.lines import log_of
from tests.servers import NODE_MODULES, ROOT
from tests.warm import WarmPython, warm_python

pytestmark = pytest.mark.kernel

EXAMPLES = ROOT / "examples"
TIMEOUT = 60


def environment(home: Path) -> dict[str, str]:
    """Returns the variables of a shell in which the virtual environment is active and npm's server is installed."""
    path = [str(Path(sys.executable).parent), str(NODE_MODULES / ".bin"), os.environ["PATH"]]
    return {"PATH": os.pathsep.join(path), "HOME": str(home), "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"]}


@pytest.fixture(scope="module")
def python(shared: None) -> Iterator[WarmPython]:
    """What runs programs that import little else."""
    with warm_python(sys.executable, os.environ) as running:
        yield running


def run_program(python: WarmPython, cwd: Path, path: str, *arguments: str) -> str:
    """Returns what a program of `examples/` prints that succeeds."""
    argv = [str(EXAMPLES / path), *arguments]
    program = f"import runpy, sys; sys.argv = {argv!r}; runpy.run_path(sys.argv[0], run_name='__main__')"
    done = python.run(program, cwd, environment(cwd), TIMEOUT)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def run(command: list[str], cwd: Path) -> str:
    """Returns what a command that succeeds prints."""
    done = subprocess.run(
        command, cwd=cwd, env=environment(cwd), capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_report_reads_through_the_server_and_plots(python: WarmPython, tmp_path: Path):
    *table, plots = run_program(python, tmp_path, "csv_report/run.py", str(tmp_path)).splitlines()

    assert [line.split() for line in table] == [["North", "5,711.30"], ["South", "5,655.00"], ["West", "5,088.00"]]
    (image,) = plots.removeprefix("plots: ").split()
    assert Path(image).read_bytes().startswith(b"\x89PNG")


def test_saved_action_chains_the_tools_of_github(python: WarmPython, tmp_path: Path):
    command = ("github_commits/run.py", "torvalds", str(tmp_path))

    first, again = run_program(python, tmp_path, *command), run_program(python, tmp_path, *command)

    repositories = [line for line in first.splitlines() if not line.startswith(" ")]
    assert first == again
    assert repositories[0].startswith("linux (1")
    assert len(first.splitlines()) == len(repositories) + 2 * 3 == 8


def test_agent_loop_runs_without_a_key_and_orders_what_the_user_accepts(tmp_path: Path):
    command = [sys.executable, str(EXAMPLES / "frameworks" / "pydantic_ai_agent.py")]

    accepted, declined = (run(["sh", "-c", f'echo {answer} | "$0" "$1"', *command], tmp_path) for answer in "yn")

    for printed in (accepted, declined):
        assert "NameError: name 'stock' is not defined" in printed
        assert "{'paper': 40, 'toner': 2, 'pens': 17}" in printed
        assert printed.count("? [y/n] ") == 1
    assert accepted.endswith("The last cell ended with: ordered 10 x toner\n")
    assert declined.rstrip().endswith("the user declined")


async def test_service_streams_output_and_errors_and_its_clients_decide(tmp_path: Path):
    pay = "from mcptools.app import pay\nprint(pay.run(pay.Params(customer='ada', amount={})))"
    async with service(tmp_path) as url, httpx2.AsyncClient(base_url=url, timeout=TIMEOUT) as http:
        state, error, paid, rejected = [
            await events_of(http, code) for code in ("x = 41\nprint(x)\nx + 1", "1 / 0", pay.format(5), pay.format(500))
        ]
        unknown = await http.post("/approvals/unknown", json={"accept": True})

    assert "".join(event.get("text", "") for event in state).split() == ["41", "42"]
    assert state[-1] == {"done": True, "notices": []}
    assert error[-1]["error"].endswith("ZeroDivisionError: division by zero")
    assert paid[0]["approve"] == "app.pay(customer='ada', amount=5)"
    assert "".join(event.get("text", "") for event in paid) == "paid 5 to ada\n"
    assert rejected[0]["approve"] == "app.pay(customer='ada', amount=500)"
    assert "the user declined" in rejected[-1]["error"]
    assert unknown.status_code == 404


@asynccontextmanager
async def service(workspace: Path) -> AsyncGenerator[str]:
    """Runs the service, and yields its address."""
    command = ["-m", "uvicorn", "--app-dir", str(EXAMPLES / "fastapi_service"), "service:app", "--port", "0"]
    running = await asyncio.create_subprocess_exec(
        sys.executable, *command, cwd=workspace, env=environment(workspace), stderr=asyncio.subprocess.PIPE
    )
    assert running.stderr is not None
    try:
        async with asyncio.timeout(TIMEOUT):
            async for line in running.stderr:
                if found := re.search(r"running on (http://[\d.:]+)", line.decode()):
                    break
            else:
                raise AssertionError("the service ended")
        yield found[1]
    finally:
        running.terminate()
        await running.communicate()


async def events_of(http: httpx2.AsyncClient, code: str) -> list[dict[str, Any]]:
    """Executes a cell as a browser does: it reads line by line, and accepts what costs less than 100."""
    events: list[dict[str, Any]] = []
    async with http.stream("POST", "/cells", json={"code": code}) as response:
        async for line in response.aiter_lines():
            events.append(event := json.loads(line))
            if "id" in event:
                decision = {"accept": "amount=5)" in event["approve"]}
                (await http.post(f"/approvals/{event['id']}", json=decision)).raise_for_status()
    return events


async def test_bot_asks_in_the_chat_and_does_what_people_answer(tmp_path: Path):
    bot = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLES / "approval_bot" / "bot.py"),
        cwd=tmp_path,
        env=environment(tmp_path) | {"TMPDIR": str(tmp_path)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert bot.stdin is not None
    assert bot.stdout is not None
    answers = iter(["why?\n", "yes 1\n", "no 2 too expensive\n"])
    posts: list[str] = []
    try:
        async with asyncio.timeout(TIMEOUT):
            async for line in bot.stdout:
                posts.append(line.decode().strip())
                if posts[-1].endswith(("?", "`no 1 reason`.")):
                    bot.stdin.write(next(answers).encode())
            assert await bot.wait() == 0
    finally:
        if bot.returncode is None:
            bot.kill()
            await bot.wait()

    assert posts[:4] == [
        "1: may I call app.order(item='paper', quantity=5)?",
        "I wait for 1. Answer `yes 1` or `no 1 reason`.",
        "2: may I call app.order(item='printer', quantity=1)?",
        "ordered 5 x paper",
    ]
    assert posts[4].startswith("not ordered: ")
    assert "too expensive" in posts[4]


def test_calls_of_the_bot_are_rejected_when_nobody_can_answer(tmp_path: Path):
    command = [sys.executable, str(EXAMPLES / "approval_bot" / "bot.py")]

    printed = run(["sh", "-c", 'TMPDIR=$PWD "$0" "$1" < /dev/null', *command], tmp_path)

    assert printed.count("was rejected: nobody is in the chat") == 2


def test_rules_of_the_bank_allow_ask_and_deny(python: WarmPython, tmp_path: Path):
    printed = run_program(python, tmp_path, "bank_policy/run.py", str(tmp_path))

    asked = [line for line in printed.splitlines() if line.startswith("asked about")]
    results = dict(line.split(": ", 1) for line in printed.splitlines() if not line.startswith("asked about"))
    assert len(asked) == 2
    assert (results["balance"], results["rent"], results["large"]) == (
        "result=9000.0",
        "result=2100.0",
        "result=1200.0",
    )
    assert "I don't know this account" in results["stranger"]
    assert "denied" in results["savings"]
    assert "denied" in results["close"]


def test_command_of_the_crontab_reports_the_changes_of_the_day_and_prints_nothing(tmp_path: Path):
    (line,) = (line for line in (EXAMPLES / "nightly" / "crontab").read_text().splitlines() if line[0] != "#")
    command = line.split(maxsplit=5)[5]
    (tmp_path / "venv").symlink_to(Path(sys.executable).parent.parent)
    shutil.copytree(EXAMPLES / "nightly", tmp_path / "nightly", ignore=shutil.ignore_patterns("workspace"))
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    run(["git", "init", "--quiet", "project"], tmp_path)
    run(["git", *identity, "commit", "--quiet", "--allow-empty", "-m", "Parse nested lists"], tmp_path / "project")

    assert run(["sh", "-c", command], tmp_path) == ""

    workspace = tmp_path / "nightly" / "workspace"
    (report,) = (workspace / "reports").iterdir()
    assert "- Parse nested lists (Ada" in report.read_text()
    assert "tool_call" in {event["event"] for event in log_of(workspace)}
