"""What others wrote is shown as text: nothing of it is obeyed by a terminal, changes the order, or is hidden."""

import html
import json
import logging
import random
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from ipybox import ApprovalRequest, CodeExecutionError, CodeExecutor
from ipybox.audit.redaction import Redactor, shortened
from ipybox.errors import ExecutionTimeoutError, MCPServerError, ToolRunnerError
from ipybox.kernel_mgr.display_forms import plain
from ipybox.mcp_server.question import Question
from ipybox.support.printable import PrintableFormatter, as_markdown, printable
from ipybox.tool_exec.approval.policy import ApprovalPolicy
from tests.conftest import Mode

#: The code points with all that is special, and few of those that have no character.
SPECIAL = "".join(
    map(
        chr, (*range(0x3200), *range(0xD7F0, 0xD810), *range(0xFDF0, 0x10010), *range(0xDFFF0, 0xE01FF), sys.maxunicode)
    )
)

#: What makes sequences that a terminal obeys, also when another one inside is removed.
PARTS = [
    "\x1b",
    "[",
    "]",
    "31m",
    "0;",
    "\x07",
    "\\",
    "\x9b",
    "\x9d",
    "\b",
    "\r",
    "\u202e",
    "\u200f",
    "\ufe0f",
    "x",
    "\\u001b",
]


def hidden(text: str) -> list[str]:
    """The characters that a person does not see, or not where they stand."""
    return [each for each in text if unicodedata.category(each) in ("Cc", "Cf", "Cs", "Cn", "Zl", "Zp")]


async def nothing(_: object) -> bool:
    return True


def request(text: str) -> ApprovalRequest:
    return ApprovalRequest(text, text, {text: text, "nested": [{text: text}]}, nothing)


def form(text: str) -> str:
    policy = ApprovalPolicy()
    question = Question(policy.decide_on(request(text)), policy, Redactor(shortened))
    return question.form().message.replace("\n", "")


def error(kind: type[Exception]) -> Callable[[str], str]:
    return lambda text: re.sub(r"[\n\t]", "", str(kind(text)))


def in_lines(text: str) -> str:
    return re.sub(r"[\n\t]", "", printable(text, lines=True))


def call(text: str) -> str:
    return f"{request(text)} {request(text)!r}"


SHOWN: list[Callable[[str], str]] = [
    printable,
    in_lines,
    call,
    form,
    *map(error, (MCPServerError, ToolRunnerError, CodeExecutionError, ExecutionTimeoutError)),
]


@pytest.mark.slow
def test_every_code_point_is_seen_or_escaped_exactly():
    text = " ".join(character for character in map(chr, range(sys.maxunicode + 1)) if character not in '\\"')
    shown = printable(text)

    assert shown.isprintable()
    assert hidden(shown) == []
    assert json.loads(f'"{shown}"') == text


@pytest.mark.parametrize("show", SHOWN)
def test_no_code_point_is_hidden_or_obeyed_wherever_it_is_shown(show: Callable[[str], str]):
    # A form shows the beginning and the end of a long text only.
    shown = "".join(show(SPECIAL[start : start + 50]) for start in range(0, len(SPECIAL), 50))

    assert shown.isprintable()
    assert hidden(shown) == []
    assert not re.search("[\u115f\u1160\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]", shown)


def test_nothing_comes_together_by_what_is_taken_out():
    chance = random.Random(17)
    for _ in range(5000):
        text = "".join(chance.choices(PARTS, k=12))
        assert printable(printable(text)) == printable(text)
        assert not re.search("[\x00-\x08\x0e-\x1f\x7f-\x9f]", plain(text)), ascii(text)


def test_text_of_many_languages_is_left_alone():
    text = "Ärger, naïve, Ελληνικά, 日本語, हिन्दी, עברית, العربية, ✓ → 🎉"
    assert printable(text) == text
    assert printable("a\tb\nc", lines=True) == "a\tb\nc"


def test_no_text_in_a_record_of_the_log_looks_like_another_record():
    handler = logging.Handler()
    handler.setFormatter(PrintableFormatter("%(levelname)s %(message)s"))
    try:
        raise ValueError("first\nERROR forged\x1b[2J")
    except ValueError:
        record = logging.LogRecord("x", 30, "", 0, "%s", ("a\nERROR forged\x9b2J\u202e",), sys.exc_info())

    first, *more = handler.format(record).split("\n")
    assert first == "WARNING a"
    assert more[0] == r"    ERROR forged\u009b2J\u202e"
    assert r"    ERROR forged\u001b[2J" in more
    assert all(line.startswith("    ") for line in more)


def test_the_log_of_the_command_line_is_such(tmp_path: Path):
    code = (
        "import logging, sys; from ipybox.cli.command import ipybox; "
        "ipybox.main(['--workspace', sys.argv[1], 'tools'], standalone_mode=False); "
        r"logging.getLogger('any.library').warning('%s', 'a\nforged\x1b[2J')"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert done.stderr.endswith("WARNING any.library: a\n    forged\\u001b[2J\n")


async def test_errors_of_code_are_text_only(tmp_path: Path, mode: Mode):
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox) as executor:
        with pytest.raises(CodeExecutionError) as raised:
            await executor.execute(r"raise ValueError('\x1b[\x1b[31m31m \x9b31m \b \u202e end')")
        result = await executor.execute(r"print('\x1b[\x1b[31m31m \x9b31m \b \u202e end')")

    assert str(raised.value).endswith(r"ValueError: \u001b[31m \u009b31m \u0008 \u202e end")
    assert result.text == "\\u001b[31m \\u009b31m \b \u202e end"


@pytest.mark.parametrize("flavor", ["commonmark", "gfm-like"])
def test_markdown_shows_a_text_as_it_is(flavor: str):
    chance = random.Random(40)
    pieces = [
        "a",
        "1",
        " ",
        "  ",
        "\\",
        '"',
        *"_*`~$&#|!<>[](){}:.-=+@",
        "https://",
        "www.",
        "&#x202e;",
        "<!--",
        "-->",
        "](",
    ]
    hidden = [
        "All is fine [.](http://evil.example 'SECRET')",
        "![](http://evil.example/SECRET)",
        "rm *.log *.bak",
        "a | b\n| --- | ---\n| c | d | SECRET",
    ]
    texts = [*hidden, *("".join(chance.choices(pieces, k=20)).strip() for _ in range(2000))]
    markdown = MarkdownIt(flavor, {"linkify": False})
    for text in texts:
        text = f"Code calls fs.write\n| {text}\n  #1 {text}"
        shown = markdown.render(as_markdown(text))
        assert re.fullmatch(r"<pre><code>[^<]*</code></pre>\n", shown), text
        assert html.unescape(re.sub(r"<[^>]+>", "", shown)) == f"{text}\n\n"
