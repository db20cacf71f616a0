"""What comes from outside is read in linear time and bounded memory, whatever it is.

`FUZZ_READERS` sets how many inputs are made up for each reader; `SEED` makes other ones.
"""

import json
import os
import subprocess
import sys
from collections import defaultdict
from typing import Any

import pytest

from tests.fuzz_readers.measure import MOST, SHORT
from tests.fuzz_readers.table import READERS
from tests.seed import SEED
from tests.servers import ROOT

COUNT = os.environ.get("FUZZ_READERS", "0")


@pytest.fixture(scope="module")
def measured() -> dict[str, list[dict[str, Any]]]:
    """What each reader needed, from processes of their own."""
    command = [sys.executable, "-m", "tests.fuzz_readers.measure", str(SEED), COUNT]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600 + 60 * int(COUNT))
    assert done.returncode == 0, done.stderr
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in map(json.loads, done.stdout.splitlines()):
        found[line["reader"]].append(line)
    return found


@pytest.mark.parametrize("name", READERS)
def test_a_reader_takes_linear_time_and_bounded_memory(measured: dict[str, list[dict[str, Any]]], name: str):
    *_, ended = measured[name]
    inputs = [line for line in measured[name] if "small" in line]

    assert ended["status"] == 0, f"it ended at {measured[name][-2]}"
    assert [line for line in measured[name] if "error" in line] == []
    assert inputs
    assert [line for line in inputs if line["large"] > max(SHORT, MOST * line["small"])] == []
