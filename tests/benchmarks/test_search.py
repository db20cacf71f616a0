"""The measurement of the search: its queries, its halves, and that those about servers that tests have are answered.

What it measures with GitHub's 117 tools, which are not part of the repository, is in `docs/benchmarks.md`.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.search.judged import HALVES, judged
from benchmarks.search.recall import add_servers, cards, ranked, recall
from ipybox.codeact.tool_info import ToolInfo
from tests.servers import ROOT


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> list[ToolInfo]:
    workspace = tmp_path_factory.mktemp("search")
    add_servers(workspace)
    return cards(workspace)


def test_there_are_enough_queries_in_each_half_and_none_twice():
    halves = [[each.query for each in judged(half)] for half in HALVES]
    everything = [query for half in halves for query in half]

    assert all(len(half) >= 50 for half in halves)
    assert len(everything) == len(set(everything))


def test_the_search_finds_what_queries_about_files_git_and_the_time_are_about(tools: list[ToolInfo]):
    known = {str(card.name) for card in tools}
    results = ranked(tools, [each for half in HALVES for each in judged(half) if each.answers <= known])

    assert len(results) >= 50
    assert recall(results, 1) >= 0.9
    assert recall(results, 3) >= 0.97


def test_without_the_definitions_the_command_says_what_is_missing(tmp_path: Path):
    script = (
        "import pathlib, runpy, sys\n"
        "import benchmarks.search.recall as recall\n"
        f"recall.SCHEMAS = pathlib.Path({str(tmp_path)!r}, 'none.json')\n"
        "sys.argv = ['benchmarks.search']\n"
        "runpy.run_module('benchmarks.search', run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120)

    assert done.returncode == 2
    assert "the definitions of GitHub's server are not present" in done.stdout
