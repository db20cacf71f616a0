"""The command line: `python -m benchmarks.codegen`."""

import argparse
import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from rich.console import Console

from benchmarks.codegen.corpora import CorpusError, read
from benchmarks.codegen.measure import measure
from benchmarks.codegen.report import Report, lines, record, table
from benchmarks.codegen.sides import Generator, Ours, Peer
from benchmarks.codegen.typecheck import TypeCheckError, check, require_pyright
from benchmarks.measurement import Side
from benchmarks.subject import SubjectError
from ipybox.mcp_apigen.render.naming import module_names


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    arguments = argparse.ArgumentParser(
        prog="python -m benchmarks.codegen", description="Measures the generator of tool APIs on corpora of tools."
    )
    arguments.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="a dump of tools/list, a directory of them, or the folder of the JSON-Schema-Test-Suite",
    )
    arguments.add_argument("--rounds", type=int, default=3, metavar="N", help="how often the sides take turns")
    arguments.add_argument("--no-types", action="store_true", help="leave pyright out")
    arguments.add_argument(
        "--peer", metavar="PYTHON", help="an interpreter that has datamodel-code-generator, see README.md"
    )
    arguments.add_argument("--json", type=Path, metavar="FILE", help="where to write everything")
    return arguments


def main() -> None:
    """Measures, and prints the report."""
    arguments = parser().parse_args()
    try:
        report = _measure(arguments)
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(record(report), indent=1) + "\n", encoding="utf-8")
    except (CorpusError, TypeCheckError, SubjectError, _UsageError) as exc:
        print(f"benchmarks.codegen: {exc}", file=sys.stderr)
        sys.exit(2)
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table(report))
    for line in lines(report):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


class _UsageError(Exception):
    pass


def _measure(arguments: argparse.Namespace) -> Report:
    if arguments.rounds < 1:
        raise _UsageError("--rounds must be at least 1")
    if arguments.json is not None and not arguments.json.absolute().parent.is_dir():
        raise _UsageError(f"{arguments.json}: no such directory")
    if not arguments.no_types:
        require_pyright()
    corpora = [corpus for path in arguments.files for corpus in read(path)]
    with tempfile.TemporaryDirectory(prefix="ipybox-codegen-") as directory:
        root = Path(directory).resolve()
        ours = Ours(root / "ipybox")
        sides: dict[Side, Generator] = {"ipybox": ours}
        versions: dict[Side, str] = {"ipybox": version("ipybox")}
        if arguments.peer is not None:
            peer = sides["peer"] = Peer(arguments.peer, root / "peer")
            versions["peer"] = f"datamodel-code-generator {peer.version}"
        packages = module_names([corpus.name for corpus in corpora], {})
        measured = [measure(*each, sides, arguments.rounds) for each in zip(corpora, packages, strict=True)]
        return Report(measured, None if arguments.no_types else check(ours.root), versions)


if __name__ == "__main__":
    main()
