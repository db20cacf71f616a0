"""The command line: `python -m benchmarks.search`."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.search.judged import HALVES, Half, judged
from benchmarks.search.recall import SCHEMAS, add_github, add_servers, cards, ranked, recall

#: Ranks that are reported, and up to which misses are listed.
RANKS = (1, 3)


def main() -> None:
    """Prints the recall of each half, and on request the queries that miss."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description="Measures the search of tools().")
    parser.add_argument("--half", choices=HALVES, help="only this half: while you tune, leave 'held out' alone")
    parser.add_argument("--misses", action="store_true", help="list the queries without an answer at rank 1")
    arguments = parser.parse_args()
    if not SCHEMAS.exists():
        print(f"benchmarks.search: the definitions of GitHub's server are not present: put them into {SCHEMAS}")
        sys.exit(2)
    with tempfile.TemporaryDirectory(prefix="ipybox-search-") as name:
        add_github(Path(name))
        add_servers(Path(name))
        report(Path(name), [arguments.half] if arguments.half else HALVES, misses=arguments.misses)


def report(workspace: Path, halves: "tuple[Half, ...] | list[Half]", *, misses: bool) -> None:
    """Prints a line for each half."""
    tools = cards(workspace)
    print(f"{len(tools)} tools of {len({card.name.category for card in tools})} servers")
    for half in halves:
        started = time.perf_counter()
        results = ranked(tools, judged(half))
        seconds = (time.perf_counter() - started) / len(results)
        figures = ", ".join(f"recall@{count} {recall(results, count):.3f}" for count in RANKS)
        print(f"{half}: {len(results)} queries, {figures}, {seconds * 1000:.0f} ms per search")
        for each in results if misses else ():
            if not each.found(1):
                mark = " " if each.found(3) else "!"
                print(f"  {mark} {each.judged.query!r}: {', '.join(each.hits[:4])}")


if __name__ == "__main__":
    main()
