"""Recordings show what was run: that of the README the demo, that of docs/approvals.md a form of Claude Code."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from docs import record_approval, record_terminal
from ipybox.cli.demo import CHAIN_WITH_FILES, PLOT
from tests.servers import ROOT

TEXT = "{http://www.w3.org/2000/svg}text"


def shown(document: str) -> list[str]:
    """Returns the texts of a recording, as the terminal had them."""
    return [element.text or "" for element in ET.fromstring(document).iter(TEXT)]


def test_recording_has_the_text_with_its_colors_and_follows_its_end(tmp_path: Path):
    script = tmp_path / "script.sh"
    script.write_text("printf '\\033[31m<red>\\033[0m plain\\nspin\\rdone\\n'; seq 50")

    recording = record_terminal.record(["sh", str(script)])
    document = record_terminal.svg(recording, "a title")

    texts = shown(document)
    assert texts[0] == "$"
    assert texts[-53:] == ["<red>", " plain", "done", *(str(number) for number in range(1, 51))]
    assert f'fill="{record_terminal.COLORS["red"]}"' in document
    last_offset = re.findall(r"100\.00%\{transform:translateY\(-(\d+)px", document)[-1]
    assert int(last_offset) == (len(recording.rows) - record_terminal.ROWS) * record_terminal.HEIGHT


def test_command_that_fails_is_no_recording():
    with pytest.raises(RuntimeError, match="false failed with status 1"):
        record_terminal.record(["false"])


def test_recording_of_the_readme_is_that_of_the_demo():
    text = "\n".join(shown((ROOT / "docs" / "demo.svg").read_text()))
    words = set(re.findall(r"\w+", text))

    assert "5 subjects are still here from the cell before" in text
    assert set(re.findall(r"\w+", CHAIN_WITH_FILES + PLOT)) - words == set(), "run `make recording`"


def test_recording_of_an_approval_shows_the_question_its_answer_and_the_result():
    document = (ROOT / "docs" / "approval.svg").read_text()
    text = re.sub(r"\s+", " ", " ".join(shown(document)))

    for each in (
        record_approval.PROMPT,
        "Code calls github.search_repositories",
        "❯ ◯ only this call",
        "❯ Accept",
        "It has 1",
    ):
        assert each in text, "run `make recording`"
    assert re.findall(r"/(?:srv|work|tmp|root)/", document) == []
