"""Has the real client do tasks, and measures what it sends. A script is the model: see `clients.py`."""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.conversation import BYTES, Meter, Recorded
from benchmarks.economics.clients import SCHEMAS, TOOLS, Clients, Servers, github
from benchmarks.economics.results import Done, Part, Session, Size
from benchmarks.economics.saved import save_all
from benchmarks.economics.tasks import FILES, VARIANTS, WAYS, Task, Way
from benchmarks.example import SERVER
from tests.servers import NODE_MODULES, filesystem

#: What the parts of a conversation belong to; all others are results.
PART_OF: Mapping[str, Part] = {
    "definitions": "definitions",
    "the client's tools for resources": "definitions",
    "notices": "notices",
    "search": "discovery",
    "tool search": "discovery",
    "skill": "skill",
}


def measure(
    tasks: Sequence[Task], counts: Sequence[int], tokens: Meter, ways: Sequence[Way] = WAYS
) -> Iterator[Session]:
    """Yields what tasks take, session by session.

    Args:
        tasks: What is done.
        counts: How many tools GitHub's server has.
        tokens: Counts tokens.
        ways: By which ways.
    """
    # Paths are part of what is counted; their length is the same in each run.
    with tempfile.TemporaryDirectory(prefix="ipybox-economics-", ignore_cleanup_errors=True) as directory:
        run = _Run(Clients(Path(directory)), ways)
        for count in counts:
            for with_files in (False, True):
                chosen = [task for task in tasks if (task.make_files is not None) == with_files]
                for task, way, recorded in run.sessions(chosen, count):
                    yield Session(task=task, way=way, tools=count, requests=_requests(recorded, tokens))


def client() -> str:
    """Returns name and version of the client."""
    package = json.loads((NODE_MODULES / "@anthropic-ai" / "claude-code" / "package.json").read_text())
    return f"Claude Code {package['version']}"


def origin() -> str:
    """Returns where the definitions of tools come from."""
    return SCHEMAS.name if SCHEMAS.exists() else "tests/github_server.py"


class _Run:
    def __init__(self, clients: Clients, ways: Sequence[Way]):
        self._clients = clients
        self._ways = ways

    def sessions(self, tasks: Sequence[Task], count: int) -> Iterator[tuple[str, Done, Recorded]]:
        """Has tasks done that use the same servers, and yields task, way and the recorded session."""
        for task in tasks:
            for way in self._ways:
                if way in ("JSON tools", "tool search"):
                    yield task.name, way, self._with_json(task, way, count)
        if tasks and "code" in self._ways:
            yield from self._with_code(tasks, count)

    def _with_json(self, task: Task, way: Way, count: int) -> Recorded:
        workspace = self._workspace(f"{task.name}-{way.replace(' ', '-')}-{count}", [task])
        loaded = way == "JSON tools"
        servers = {
            name: {**server, "alwaysLoad": True} if loaded else server
            for name, server in self._servers([task], workspace, count).items()
        }
        home = self._clients.plain if loaded else self._clients.searching
        return self._clients.with_json(home, workspace, servers, task.prompt, task.scripts(workspace)[way])

    def _with_code(self, tasks: Sequence[Task], count: int) -> Iterator[tuple[str, Done, Recorded]]:
        """Saved actions come last, so that no search of the others finds them."""
        workspace = self._workspace(f"code-{tasks[0].name}-{count}", tasks)
        registered = self._clients.register(self._servers(tasks, workspace, count), workspace)
        yield tasks[0].name, "registration", registered
        for task in tasks:
            variants = VARIANTS.get(task.name, ()) if count == TOOLS else ()
            for way in ("code", *variants):
                script = task.scripts(workspace)[way]
                yield task.name, way, self._clients.with_code(workspace, task.prompt, script)
        save_all(workspace)
        for task in tasks:
            script = task.scripts(workspace)["saved action"]
            yield task.name, "saved action", self._clients.with_code(workspace, task.prompt, script)

    def _workspace(self, name: str, tasks: Sequence[Task]) -> Path:
        workspace = self._clients.workspace(name)
        for task in tasks:
            if task.make_files is not None:
                task.make_files(workspace)
        return workspace

    def _servers(self, tasks: Sequence[Task], workspace: Path, count: int) -> Servers:
        servers = {SERVER: github(count)}
        if tasks[0].make_files is not None:
            servers[FILES] = filesystem(workspace)
        return servers


def _requests(recorded: Recorded, tokens: Meter) -> list[dict[Part, Size]]:
    measured = recorded.measured(BYTES), recorded.measured(tokens)
    requests: list[dict[Part, Size]] = []
    for number in range(len(recorded.requests)):
        in_bytes, in_tokens = (each.requests[number] for each in measured)
        parts: dict[Part, Size] = {}
        for name in in_bytes:
            part = PART_OF.get(name, "results")
            before = parts.get(part, Size(0, 0))
            parts[part] = Size(before.bytes + in_bytes[name], before.tokens + in_tokens[name])
        requests.append({**parts, "code": Size(*(each.written[number] for each in measured))})
    return requests
