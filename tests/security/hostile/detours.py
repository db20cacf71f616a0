"""Shorter visits: commands, HTTP, a plugin without a sandbox, an environment behind a link, links for directories."""

import asyncio
import re
import shutil
import signal
import sys
import unicodedata
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

from tests.security.hostile import ways
from tests.security.hostile.contents import TOKEN
from tests.security.hostile.repository import Repository
from tests.security.hostile.visit import Evidence, opened, register_keeper, register_remote, sign_in
from tests.servers import WAIT

#: What people run in a repository to see what is there.
COMMANDS = (["doctor", "--sandbox"], ["tools"], ["tools", "evil"], ["tools", "evil.odd"])

#: Characters that a terminal obeys, or by which a text shows as another one: ESC, CSI as one byte, backspace, bidi.
CONTROLS = "\x1b]0;x\x07\x9b31m\b\u202e\u2066"

#: Links that the repository has in the places of directories and files which the host makes.
LINKS = (".ipybox", ".ipybox/packages", ".ipybox/audit.jsonl")


async def plain(repository: Repository) -> Evidence:
    """The plugin without a sandbox, whose kernel may do anything: only what the host does before any code counts."""
    evidence = Evidence(repository)
    async with opened(ways.plugin(repository, "plain"), evidence) as session:
        await session.request("tools/list")
        await register_keeper(session, evidence, "harmless")
        await register_remote(session, evidence)
        await sign_in(session, repository)
    return evidence


async def environment_behind_link(repository: Repository) -> Evidence:
    """The host's Python is that of a link in the repository, which leads elsewhere while it runs."""
    evidence = Evidence(repository)
    try:
        async with opened(ways.linked_environment(repository), evidence) as session:
            arguments = (str(repository.marks), ".venv")
            evidence.answers["plant"] = await session.execute(f"insider.plant_environment(*{arguments!r})")
            await session.execute("insider.kill_others()")
            await session.execute("print('up')")
            await register_keeper(session, evidence, "harmless")
            await register_remote(session, evidence)
    except EOFError:
        evidence.refused = evidence.texts
    return evidence


async def over_http(repository: Repository) -> Evidence:
    """The server that serves HTTP, to which a stranger comes with the token that the repository has set."""
    evidence = Evidence(repository)
    command = [sys.executable, "-m", "ipybox", "--sandbox", "--transport", "http", "--port", "0"]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=repository.workspace, env=repository.environment, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(WAIT):
            while (url := re.search(r"serving on (http\S+);", evidence.texts)) is None:
                line = await process.stderr.readline()
                assert line, evidence.texts
                evidence.texts += line.decode()
        if await asyncio.to_thread(_status, url[1]) != 401:
            evidence.marks.add("known-token")
    finally:
        process.send_signal(signal.SIGTERM)
        await process.communicate()
    (repository.root / "stderr").touch()
    evidence.collect()
    return evidence


def _status(url: str) -> int:
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, b"{}", headers), timeout=WAIT) as answer:
            return answer.status
    except urllib.error.HTTPError as exc:
        return exc.code


async def commands(repository: Repository) -> Evidence:
    """Commands that show things, of which nothing is to run what is there, or to control the terminal."""
    evidence = Evidence(repository)
    repository.write("mcptools/evil/__init__.py", f'"""{CONTROLS}A server."""\n')
    repository.write(
        "mcptools/evil/odd.py", f'"""{CONTROLS}"""\n\ndef run(params: "{CONTROLS}") -> str:\n    """{CONTROLS}"""\n'
    )
    repository.write(f"mcptools/{CONTROLS[-1]}.py", "")
    repository.write("gentools/evil/odd/api.py", f'def run() -> str:\n    """{CONTROLS}A code action."""\n')
    program = str(Path(sys.executable).with_name("ipybox"))
    with (repository.root / "stderr").open("ab") as stderr:
        for arguments in COMMANDS:
            process = await asyncio.create_subprocess_exec(
                program,
                *arguments,
                cwd=repository.workspace,
                env=repository.environment,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
            )
            output, _ = await process.communicate()
            evidence.texts += output.decode(errors="replace")
    if any(unicodedata.category(char) in ("Cc", "Cf") and char != "\n" for char in evidence.texts):
        evidence.marks.add("control-characters")
    evidence.collect()
    return evidence


async def links(repository: Repository) -> Evidence:
    """Links to elsewhere are in the places of what the host makes in a workspace; it may refuse to start."""
    evidence = Evidence(repository)
    for name in LINKS:
        shutil.rmtree(repository.workspace / ".ipybox", ignore_errors=True)
        link = repository.workspace / name
        link.parent.mkdir(exist_ok=True)
        target = repository.outside / f"link-{link.name}"
        target.mkdir()
        link.symlink_to(target / "new" if link.suffix == ".jsonl" else target)
        with suppress(EOFError):
            async with opened(ways.console(), evidence) as session:
                await session.call("install_package", package_name="harmless")
        link.unlink()
    return evidence
