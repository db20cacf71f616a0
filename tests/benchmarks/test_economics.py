"""`docs/benchmarks.md` is what its data make, and a task of it runs in the real client."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.conversation import BYTES
from benchmarks.economics.measure import measure, origin
from benchmarks.economics.results import Economics, Part, Session, Size
from benchmarks.economics.tasks import ONE_CALL
from tests.servers import ROOT

DATA = ROOT / "benchmarks" / "economics.json"
PAGE = ("benchmarks.md", "pictures/tokens.svg")


@pytest.fixture
def data() -> Economics:
    """What was measured."""
    return Economics.read(DATA)


def test_the_page_in_docs_is_what_its_data_make(tmp_path: Path):
    # In a process of its own, because matplotlib keeps the files of fonts open.
    command = [sys.executable, "-m", "benchmarks.economics", "write", "--docs", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=60)

    for name in PAGE:
        assert (tmp_path / name).read_text() == (ROOT / "docs" / name).read_text(), "run `make economics`"


def test_a_task_takes_as_many_bytes_as_the_data_say(data: Economics):
    (session,) = measure([ONE_CALL], [10], BYTES, ways=["tool search"])

    recorded = data.find(*session.key)
    assert len(session.requests) == len(recorded.requests) == 3
    assert [request.keys() for request in session.requests] == [request.keys() for request in recorded.requests]
    if data.definitions == origin():  # otherwise the definitions are other ones
        assert session.total().bytes == recorded.total().bytes


def test_the_price_counts_what_is_new_repeated_and_written():
    first: dict[Part, Size] = {"definitions": Size(40, 10), "code": Size(0, 0)}
    second: dict[Part, Size] = {"definitions": Size(40, 10), "code": Size(8, 2)}
    session = Session(task="loop", way="code", tools=10, requests=[first, second])

    assert session.price() == pytest.approx(12 * 1.25 + 10 * 0.1 + 2 * 5)
