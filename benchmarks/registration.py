"""The generation of packages, compared with the least that it needs: a list of the server's tools."""

import json
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measurement import Limit, Measurement, Samples, Setting, Side, UnavailableError, take_turns
from benchmarks.subject import SUBJECTS, environment, start_seconds, started

EVERYTHING = Path(__file__).parent.parent / ".npm/node_modules/@modelcontextprotocol/server-everything/dist/index.js"

#: Tools of the server that is already running.
TOOLS = 20


def measurements() -> list[Measurement]:
    """Returns the measurements of this module."""
    group, client = "tool calls", "mcp.Client"
    return [
        Measurement("generate", group, "generate a package", client, measure_generation),
        Measurement("generate-fresh", group, "generate it in a new process", client, measure_fresh_generation),
        Measurement(
            "generate-running", group, f"generate {TOOLS} tools, server runs", client, measure_running, (Limit(1.1),)
        ),
    ]


def measure_generation(setting: Setting) -> Samples:
    return _measure_again(setting, _everything())


def measure_fresh_generation(setting: Setting) -> Samples:
    server = json.dumps(_everything())
    sides: dict[Side, Callable[[], list[float]]] = {
        side: partial(start_seconds, script, server, python=python)
        for side, (script, python) in _generators(setting).items()
    }
    return Samples(take_turns(setting, sides))


def measure_running(setting: Setting) -> Samples:
    with _serving() as url:
        return _measure_again(setting, {"url": url})


def _measure_again(setting: Setting, server: dict[str, Any]) -> Samples:
    with ExitStack() as stack:
        sides: dict[Side, Callable[[], list[float]]] = {}
        for side, (script, python) in _generators(setting).items():
            subject, _ = stack.enter_context(started(script, json.dumps(server), python=python))
            sides[side] = lambda subject=subject: [subject.ask("again")]
        return Samples(take_turns(setting, sides))


@contextmanager
def _serving() -> Generator[str]:
    """Runs a server of HTTP and yields its URL."""
    command = [sys.executable, str(SUBJECTS / "tool_server.py"), str(TOOLS)]
    with subprocess.Popen(command, env=environment(sys.executable), stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["url"]
        finally:
            server.terminate()


def _everything() -> dict[str, Any]:
    if not EVERYTHING.exists():
        raise UnavailableError("npm's @modelcontextprotocol/server-everything is not in .npm/")
    return {"command": "node", "args": [str(EVERYTHING), "stdio"]}


def _generators(setting: Setting) -> dict[Side, tuple[str, str]]:
    """Returns each side's script and interpreter."""
    generators: dict[Side, tuple[str, str]] = {"floor": ("tool_listing.py", sys.executable)}
    for side, python in setting.interpreters.items():
        generators[side] = ("generation.py", python)
    return generators
