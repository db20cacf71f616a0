"""One visit to the repository: everything that its code tries, in one session and in those after it."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from typing import Any

from tests.security.hostile import insider
from tests.security.hostile.contents import AS_IT_WAS, KEY, MODULES, SECRETS, WORKSPACE_SECRETS
from tests.security.hostile.repository import Repository
from tests.security.hostile.ways import PATIENCE, Answer, Session, Way

#: Servers as people register them without a thought of what they run in the repository. None of them speaks MCP.
LAUNCHES: dict[str, dict[str, Any]] = {
    "relative_script": {"command": sys.executable, "args": ["server.py"]},
    "relative_program": {"command": "bin/server"},
    "npx": {"command": "npx", "args": ["--no-install", "planted"]},
    "npx_in_shell": {"command": "sh", "args": ["-c", "npx --no-install planted-in-shell"]},
    "npm_start": {"command": "npm", "args": ["start"]},
    "node": {"command": "node", "args": ["-e", "require('planted')"]},
    "python_code": {"command": sys.executable, "args": ["-c", "import planted_server"]},
    "uv_run": {"command": "uv", "args": ["run", "--offline", "planted"]},
    "uvx": {"command": "uvx", "args": ["--version"]},
    "make": {"command": "make", "args": ["serve"]},
}

#: A server that is reached through a proxy if there is one; those on this machine never are.
ELSEWHERE = "http://server.invalid/mcp"

#: What is started again after code has planted programs.
LATER = ("uv", "npm", "python3", "sh", "make")

#: What a notice of the sandbox says.
REFUSED = "sandbox refused"

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

#: Calls of git's server, which make git read the configuration of the repository that is in the repository.
GIT: tuple[tuple[str, dict[str, Any]], ...] = (
    ("git_status", {}),
    ("git_diff_unstaged", {}),
    ("git_diff", {"target": "HEAD"}),
    ("git_add", {"files": ["notes.txt"]}),
    ("git_commit", {"message": "x"}),
    ("git_create_branch", {"branch_name": "other"}),
    ("git_checkout", {"branch_name": "other"}),
)
READING = ("git_status", "git_diff_unstaged", "git_diff")


@dataclass
class Evidence:
    """What has come of a visit.

    Attributes:
        marks: What has run on the host, or was believed by it: the names of marks.
        texts: All that a client, or a person who reads the log, gets to see.
        refused: Why the host did not start at all, if so.
        answers: Results of what has to work also in a hostile repository.
    """

    repository: Repository
    marks: set[str] = field(default_factory=set[str])
    texts: str = ""
    refused: str = ""
    answers: dict[str, Answer] = field(default_factory=dict[str, Answer])

    def reached(self, key: str) -> list[str]:
        """Returns which marks of this name or pattern there are, and whether the canary of this name is in a text."""
        marks = sorted(mark for mark in self.marks if fnmatch(mark, key))
        return marks + ([f"the secret {key!r}"] if self.repository.canary(key) in self.texts else [])

    def collect(self, *sessions: Session) -> None:
        """Adds what is on disk, and what was said in sessions."""
        repository = self.repository
        self.marks |= {path.name for path in repository.marks.iterdir()}
        dumps = [path.read_text(errors="replace") for path in (*repository.marks.iterdir(), *repository.seen.iterdir())]
        lines = {line for dump in dumps for line in dump.splitlines()}
        self.marks |= {f"env-{name}" for name, value in repository.dotenv.items() if f"{name}={value}" in lines}
        self.marks |= {f"outside-{path.parent.name}" for path in repository.outside.glob("*/*")}
        self.marks |= {
            f"lasting-{name}" for name in insider.LASTING if "# planted" in (repository.workspace / name).read_text()
        }
        if (repository.workspace / "tls-keys.log").exists():
            self.marks.add("tls-keys")
        written = [repository.home / name for name in (".bashrc", ".ssh/authorized_keys", "x")]
        if any(path.exists() and path.read_text() != AS_IT_WAS for path in written):
            self.marks.add("home-written")
        self.texts += (repository.root / "stderr").read_text(errors="replace")
        for session in sessions:
            self.texts += "".join(session.said)


@asynccontextmanager
async def opened(way: Way, evidence: Evidence, *options: str) -> AsyncGenerator[Session]:
    """Opens the repository, and collects what has come of it in the end."""
    sessions: list[Session] = []
    try:
        async with way.open(evidence.repository, *options) as session:
            sessions.append(session)
            yield session
    finally:
        evidence.collect(*sessions)


async def whole(way: Way, repository: Repository) -> Evidence:
    """Tries all there is, in three sessions; the later ones find what the first one has left."""
    evidence = Evidence(repository)
    async with opened(way, evidence) as session:
        await first(session, evidence)
        await register(session, evidence, LAUNCHES if way.launches else {})
        await plant(session, evidence)
        await again(session, evidence)
        if way.speaks_mcp:
            await sign_in(session, repository)
            await install(session, evidence)
    # These Python itself would import before ipybox, if it is started by `python -m` or as a script there.
    for name in sys.stdlib_module_names:
        (repository.workspace / f"{name}.py").unlink(missing_ok=True)
    repository.write_dotenv(BROWSER=f"{repository.workspace}/bin/browser-of-code %s")
    async with opened(way, evidence) as session:
        await kept(session, evidence, "registered-before-the-restart")
        if way.speaks_mcp:
            await sign_in(session, repository)
        await deface(session, evidence)
    if way.speaks_mcp and way.takes_workspace:
        repository.write("made/.env", f"BROWSER='{repository.workspace}/bin/browser-of-directory %s'\n")
        # That PATH leads to the directory above, is its user's own affair.
        own = replace(way, environment={"PATH": repository.path})
        async with opened(own, evidence, "--workspace", "made") as session:
            await sign_in(session, repository)
    return evidence


async def first(session: Session, evidence: Evidence) -> None:
    """What code does at once: read, widen, forge."""
    repository = evidence.repository
    places = [str((repository.home / path).resolve()) for path in SECRETS.values()]
    places += [str(repository.workspace / path) for path in WORKSPACE_SECRETS.values()]
    places += [str(repository.user / "secret"), str(repository.home / ".npmrc")]
    evidence.answers["steal"] = await session.execute(f"insider.steal({places!r})")
    await session.execute(f"insider.widen({str(repository.home)!r}, {repository.door.port})")
    await session.execute(f"insider.forge({f'touch {repository.marks}/forged-seal'!r}, {KEY.hex()!r})")
    answer = await session.execute(f"insider.forge_notice({str(repository.home)!r})")
    # There is a real notice, and it is not among what the code has printed.
    told = [block for block in answer.blocks if insider.FORGED not in block and REFUSED in block]
    forging = [block for block in answer.blocks if insider.FORGED in block and block.count(REFUSED) > 1]
    if forging or not told:
        evidence.marks.add("forged-notice")
    await session.execute("insider.last()")


async def register(session: Session, evidence: Evidence, launches: dict[str, dict[str, Any]]) -> None:
    """Registers what people register in this repository, and calls its tools."""
    git = {"command": sys.executable, "args": ["-m", "mcp_server_git"]}
    registered = [_register(session, "git", git), register_keeper(session, evidence, "secret")]
    registered += [_register(session, name, params) for name, params in launches.items()]
    answers = await asyncio.gather(*registered)
    evidence.answers |= dict(zip(("git", "keeper", *launches), answers, strict=True))
    calls = [("vendored", *call) for call in GIT] + [("unpacked", *call) for call in GIT if call[0] not in READING]
    for name, tool, arguments in calls:
        place = str(evidence.repository.workspace / name)
        code = f"insider.call('mcptools.git', {tool!r}, repo_path={place!r}, **{arguments!r})"
        evidence.answers[f"{tool} of {name}"] = await session.execute(code)
    asked = len(session.questions)
    before = len(session.said)
    evidence.answers["read"] = await session.execute("insider.call('mcptools.keeper', 'read'); insider.keep('keeper')")
    if not asked and not evidence.answers["read"].failed and evidence.repository.canary("seal") in session.said[-1]:
        evidence.marks.add("approved-by-nobody")
    # It was the user's wish until here; from now on the kept copy names what is not registered any more.
    session.said[before:] = []
    await register_keeper(session, evidence, "harmless")
    await kept(session, evidence, "registered-before")


async def kept(session: Session, evidence: Evidence, mark: str) -> None:
    """Calls a tool as it was registered once, and is not any more."""
    answer = await session.execute("insider.call('kept.keeper', 'read')")
    if evidence.repository.canary("seal") in "".join(answer.blocks):
        evidence.marks.add(mark)


async def plant(session: Session, evidence: Evidence) -> None:
    """Plants programs and modules, and has the host start everything anew."""
    repository = evidence.repository
    arguments = (str(repository.marks), repository.path, MODULES)
    evidence.answers["plant"] = await session.execute(f"insider.plant(*{arguments!r})")
    await session.execute("import os; os._exit(1)")
    await session.execute("print('up')")
    await session.execute("insider.kill_others()")
    evidence.answers["revived"] = await session.execute("print('up')")


async def again(session: Session, evidence: Evidence) -> None:
    """Uses what the host starts and imports again, or only now."""
    await session.call("reset")
    later = [_register(session, f"later_{name}", {"command": name, "args": ["--version"]}) for name in LATER]
    await asyncio.gather(register_remote(session, evidence), *later)
    evidence.answers["again"] = await session.execute("insider.call('mcptools.keeper', 'read')")
    await session.execute(f"import base64, IPython.display as d; d.display(d.Image(base64.b64decode({PNG!r})))")
    await session.call("execute_ipython_cell", code="1/0", session="other")


async def install(session: Session, evidence: Evidence) -> None:
    """Installs a package, while code looks out for where the host works."""
    repository = evidence.repository
    evidence.answers["install"] = await session.call("install_package", package_name="harmless")
    places = (f"{repository.workspace}/tmp", str(repository.marks))
    await session.execute(f"insider.watch(*{places!r})")
    await session.call("install_package", package_name="harmless")
    evidence.answers["seen"] = await session.execute("print('seen:', sorted(insider.seen))")
    if "ipybox-" in "".join(evidence.answers["seen"].blocks):
        evidence.marks.add("scratch")


async def sign_in(session: Session, repository: Repository) -> None:
    """Registers a server that asks for a sign-in, which the user begins in a browser and does not end."""
    repository.door.opened.clear()
    registering = asyncio.create_task(_register(session, "guarded", {"url": f"{repository.door.url}/mcp"}))
    opened = asyncio.create_task(asyncio.to_thread(repository.door.opened.wait, PATIENCE))
    await asyncio.wait({registering, opened}, return_when=asyncio.FIRST_COMPLETED)
    repository.door.opened.set()
    await opened
    registering.cancel()
    with suppress(asyncio.CancelledError):
        await registering


async def deface(session: Session, evidence: Evidence) -> None:
    """Puts links in the places of the host's directories, and has it write there."""
    for name in ("mcptools", "images"):
        await session.execute(f"insider.link({name!r}, {str(evidence.repository.outside / name)!r})")
    await register_keeper(session, evidence, "harmless", name="another")
    await session.execute(f"import base64, IPython.display as d; d.display(d.Image(base64.b64decode({PNG!r})))")


async def register_remote(session: Session, evidence: Evidence) -> None:
    """Registers URLs that are not MCP servers."""
    urls = {"remote": f"{evidence.repository.door.url}/remote/mcp", "elsewhere": ELSEWHERE}
    headers = {"Authorization": "Bearer x"}
    await asyncio.gather(*(_register(session, name, {"url": url, "headers": headers}) for name, url in urls.items()))


async def register_keeper(session: Session, evidence: Evidence, file: str, name: str = "keeper") -> Answer:
    """Registers a server of the user that returns a file."""
    user, seen = evidence.repository.user, evidence.repository.seen
    arguments = [str(user / "keeper.py"), str(user / file), str(seen / f"{name}-{file}")]
    return await _register(session, name, {"command": sys.executable, "args": ["-S", *arguments]})


async def _register(session: Session, name: str, params: dict[str, Any]) -> Answer:
    return await session.call("register_mcp_server", server_name=name, server_params=params)
