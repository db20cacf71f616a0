"""Short descriptions stand behind their fields, as comments; no others do."""

import io
import tokenize
from typing import Any

import pytest

from ipybox.mcp_apigen.package.files import ToolSpec, render_module
from tests.mcp_apigen.hostile import DIRECTIVES
from tests.mcp_apigen.test_package import LINE_LENGTH


def source(description: str, schema: dict[str, Any] | None = None) -> str:
    field = {"type": "string", **(schema or {}), "description": description}
    source, _, _ = render_module(ToolSpec("find", None, {"type": "object", "properties": {"where": field}}), "find", {})
    return source


def comments(text: str) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT]


@pytest.mark.parametrize(
    "description",
    [
        "Directory that is searched",
        "  Directory, may have `*` in it; all if missing.\n",
        "Verzeichnis, in dem gesucht wird („.“ für alle)",
        "目录",
    ],
    ids=ascii,
)
def test_short_description_stands_behind_its_field(description: str) -> None:
    assert f"    where: str = UNSET  # {description.strip()}\n" in source(description)


@pytest.mark.parametrize(
    "description",
    [
        "x" * 100,
        "目录" * 40,
        "One line\nand another",
        *(f"One line{separator}import os" for separator in "\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"),
        "Nothing\0",
        "Right \u202eto left",
        "Half a pair \ud83d",
        "No-break\u00a0space",
        *DIRECTIVES,
    ],
    ids=lambda text: ascii(text)[:40],
)
def test_other_descriptions_stand_below(description: str) -> None:
    text = source(description)
    assert comments(text) == []
    assert '    where: str = UNSET\n    """' in text


def test_comment_ends_where_the_line_does() -> None:
    lines = [len(line) for n in range(80, 100) for line in source("x" * n).splitlines() if "  # " in line]
    assert max(lines) == LINE_LENGTH


def test_field_of_several_lines_has_its_description_below() -> None:
    schema = {"pattern": "^" + "a" * LINE_LENGTH}
    assert '    ] = UNSET\n    """Place of it"""\n' in source("Place of it", schema)
