"""The recording in the README shows what its script types, and the tokens that were measured."""

import re
import xml.etree.ElementTree as ET

from benchmarks.economics.results import Economics
from docs.recording import BARS, CODE, PROMPT, TOOLS
from tests.servers import ROOT

DOCUMENT = (ROOT / "docs" / "session.svg").read_text()
TEXT = "{http://www.w3.org/2000/svg}text"


def test_the_recording_shows_the_cell_the_approval_the_denial_and_the_tokens():
    shown = re.sub(r"\s+", " ", " ".join(element.text or "" for element in ET.fromstring(DOCUMENT).iter(TEXT)))
    tokens = Economics.read(ROOT / "benchmarks" / "economics.json")
    counts = [f"{tokens.find('loop', way, TOOLS).total().tokens:,}" for way, _, _ in BARS]

    for each in (
        PROMPT,
        *(" ".join(line.split()) for line in CODE.splitlines()),
        "Code calls github.list_commits",
        "❯ ◯ the rest of this cell",
        "❯ Accept",
        "the sandbox only lets code write to this project",
        *counts,
    ):
        assert each in shown, "run `make recording`"


def test_the_recording_shows_no_path_of_the_machine_that_made_it():
    assert re.findall(r"/(?:srv|work|tmp|root)/", DOCUMENT) == []
