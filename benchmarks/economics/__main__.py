"""The command line: `python -m benchmarks.economics`."""

import argparse
from collections.abc import Iterable
from pathlib import Path

from benchmarks.economics.clients import COUNTS
from benchmarks.economics.measure import client, measure, origin
from benchmarks.economics.results import Economics, Session
from benchmarks.economics.tasks import TASKS, WAYS
from benchmarks.economics.tokens import Tokens
from benchmarks.page import DOCS
from tests.servers import ROOT

DATA = ROOT / "benchmarks" / "economics.json"

#: What counts tokens: `make economics` installs it.
TOKENIZER = "anthropic 0.38.0"


def main() -> None:
    """Measures, or writes the part of the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.economics", description="What tasks cost a model.")
    parser.add_argument("--data", type=Path, default=DATA, metavar="FILE", help="(default: benchmarks/economics.json)")
    commands = parser.add_subparsers(dest="command", required=True)
    counted = commands.add_parser("measure", help="run all tasks, which takes half an hour, and write the data")
    counted.add_argument("tokenizer", type=Path, metavar="PYTHON", help="the interpreter of .venv-tokens")
    counted.add_argument("--tasks", nargs="+", choices=[task.name for task in TASKS], help="(default: all)")
    counted.add_argument("--counts", nargs="+", type=int, default=COUNTS, help="numbers of tools")
    counted.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="code and saved action go together")
    write = commands.add_parser("write", help="write the part of docs/benchmarks.md, and its plot")
    write.add_argument("--docs", type=Path, default=DOCS, metavar="DIR", help="where to write (default: docs)")
    arguments = parser.parse_args()
    if arguments.command == "measure":
        tasks = [task for task in TASKS if arguments.tasks is None or task.name in arguments.tasks]
        with Tokens(arguments.tokenizer) as tokens:
            add_to(arguments.data, measure(tasks, arguments.counts, tokens, arguments.ways))
    else:
        from benchmarks.economics.page import write_part

        write_part(Economics.read(arguments.data), arguments.docs)


def add_to(path: Path, sessions: Iterable[Session]) -> None:
    """Writes sessions to the data as they end, in place of earlier ones."""
    earlier = Economics.read(path).sessions if path.exists() else []
    data = Economics(client=client(), tokenizer=TOKENIZER, definitions=origin(), sessions=earlier)
    for session in sessions:
        data.add(session)
        data.write(path)
        print(*session.key, session.total(), flush=True)


main()
