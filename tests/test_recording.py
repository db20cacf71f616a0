"""The recordings show what their script types, and the tokens that were measured."""

import re
import xml.etree.ElementTree as ET

import pytest

from benchmarks.economics.results import Economics
from docs.recording import BARS, SESSIONS, TOOL_COUNT
from tests.servers import ROOT

DOCUMENTS = {name: (ROOT / "docs" / f"{name}.svg").read_text() for name in SESSIONS}
TEXT = "{http://www.w3.org/2000/svg}text"

#: Texts of a recording's form and answer.
SHOWN = {
    "session": ("Code calls github.list_commits", "the sandbox only lets code write to this project"),
    "approvals": ("Code calls github.create_issue 12 times", "12 of the 30 repositories had no commits"),
}


def shown(name: str) -> str:
    """The texts of a recording, in one line."""
    return re.sub(r"\s+", " ", " ".join(element.text or "" for element in ET.fromstring(DOCUMENTS[name]).iter(TEXT)))


@pytest.mark.parametrize("name", SESSIONS)
def test_the_recording_shows_prompt_cell_approval_and_answer(name: str):
    session = SESSIONS[name]
    code = (" ".join(line.split()) for line in session.code.splitlines())

    for each in (session.prompt, *code, *SHOWN[name], f"❯ ◯ {session.allowed}", "❯ Accept"):
        assert each in shown(name), "run `make recording`"


def test_the_recording_of_the_readme_shows_the_tokens():
    tokens = Economics.read(ROOT / "benchmarks" / "economics.json")

    for way, _, _ in BARS:
        count = f"{tokens.find('loop', way, TOOL_COUNT).total().tokens:,}"
        assert count in shown("session"), "run `make recording`"


@pytest.mark.parametrize("name", SESSIONS)
def test_the_recording_shows_no_path_of_the_machine_that_made_it(name: str):
    assert re.findall(r"/(?:srv|work|tmp|root)/", DOCUMENTS[name]) == []
