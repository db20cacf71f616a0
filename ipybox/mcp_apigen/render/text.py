"""Renders a schema's text as Python source: literals, docstrings, comments. Nothing else may put it there."""

import inspect
import re
import textwrap
import unicodedata
from typing import Any, cast

from ipybox.mcp_apigen.schema.values import elements, is_object, mapping

LINE_LENGTH = 120
_MAX_DOCSTRING = 10_000
# Text in a comment that type checkers, linters, formatters and editors may treat as an instruction: nearly
# all instructions contain a colon, an equals sign or a bracket after a word, and many may follow other text.
_DIRECTIVE = re.compile(
    r"""^\W | [#:=] | \w\[
      | \b(?:no(?:inspection|lint|pep8|qa|sec|semgrep|sonar) | lgtm | pragma | pyre | skipcq | sourcery)""",
    re.IGNORECASE | re.VERBOSE,
)
# At the end of a truncated line: words that say nothing without the next one, and punctuation.
_DANGLING = re.compile(r"(?:[,;:]| (?:a|an|and|as|at|by|for|from|in|of|on|or|that|the|their|to|with|within))*$")
#: Characters that need an escape in a docstring, or may be invisible.
_UNUSUAL = re.compile(r"[^ -\[\]-~]")
_BULLET = re.compile(r"\s*(?:[-*+•]|\d+[.)])?\s*")


def quote(text: str) -> str:
    """Returns a string literal, in double quotes where that needs no escapes."""
    # `repr` escapes whatever is not printable: control characters, lone surrogates, directional marks.
    literal = repr(text)
    if '"' in text or not literal.startswith("'"):
        return literal
    return f'"{literal[1:-1]}"'


def literal(value: Any) -> str:
    """Returns a JSON value as a Python literal on one line."""
    if isinstance(value, str):
        return quote(value)
    if is_object(value):
        items = zip(map(literal, value), map(literal, value.values()), strict=True)
        return "{" + ", ".join(map(": ".join, items)) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(literal, cast("list[Any]", value))) + "]"
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    raise ValueError(f"{type(value).__name__} is not a JSON value")


def block(value: Any, prefix: str, suffix: str = ",", indent: int = 0) -> list[str]:
    """Returns the lines of `prefix`, a JSON value and `suffix`: one line if it fits."""
    margin = " " * indent
    line = f"{margin}{prefix}{literal(value)}{suffix}"
    if len(line) <= LINE_LENGTH or not (mapping(value) or elements(value)):
        return [line]
    items: list[tuple[str, Any]] = [(f"{literal(key)}: ", item) for key, item in mapping(value).items()]
    brackets = "{}" if items else "[]"
    items += (("", item) for item in elements(value))
    lines = [f"{margin}{prefix}{brackets[0]}"]
    for item_prefix, item in items:
        lines += block(item, item_prefix, ",", indent + 4)
    return [*lines, f"{margin}{brackets[1]}{suffix}"]


def docstring(text: str, indent: int = 0, *, wrap: bool = True) -> list[str]:
    """Returns the lines of a docstring; none for an empty text. Only wrapped text is bounded."""
    if wrap and len(text) > _MAX_DOCSTRING:
        text = text[:_MAX_DOCSTRING] + "…"
    text = inspect.cleandoc(re.sub(r"\r\n?", "\n", text))
    lines: list[str] = []
    for line in re.sub(r"\n(?:[ \t]*\n){2,}", "\n\n", text).strip().split("\n"):
        escaped = _UNUSUAL.sub(_escaped, line.rstrip()).replace('"""', '\\"\\"\\"')
        bullet = _BULLET.match(escaped)
        # Leaves room for the quotes on the first or the last line.
        width = LINE_LENGTH - indent - 3 if wrap else len(escaped) + 1
        lines += textwrap.wrap(
            escaped,
            width,
            subsequent_indent=" " * (len(bullet[0]) if bullet and len(bullet[0]) < width // 2 else 0),
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
    if lines == [""]:
        return []
    lines[0] = ('""" ' if lines[0].startswith('"') else '"""') + lines[0]
    lines[-1] += ' """' if lines[-1].endswith('"') else '"""'
    return textwrap.indent("\n".join(lines), " " * indent).split("\n")


def commented(line: str, text: str) -> str | None:
    """Returns a line of code with a text as its comment; None if the text does not fit or is not safe there.

    Safe text can't end the comment, and is no instruction to any tool that reads comments.
    """
    text = text.strip()
    whole = f"{line}  # {text}"
    safe = text.isprintable() and not _DIRECTIVE.search(text)
    # As formatters count columns.
    width = len(whole) + sum(unicodedata.east_asian_width(character) in "WF" for character in whole)
    return whole if text and safe and width <= LINE_LENGTH else None


def summary(text: str, width: int) -> str:
    """Returns the first sentence of a description on one line of at most `width` characters."""
    beginning = text.lstrip()[:_MAX_DOCSTRING].rstrip()
    paragraph = " ".join(re.split(r"\n\s*\n", beginning, maxsplit=1)[0].split())
    sentence = re.match(r".+?(?<!e\.g)(?<!i\.e)[.!?](?=\s+[^\sa-z]|$)", paragraph)
    line = sentence[0] if sentence else paragraph
    if len(line) > width:
        line = _DANGLING.sub("", line[: width - 1].rsplit(" ", 1)[0]) + "…"
    return line


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if character == "\t" or unicodedata.category(character) == "Zs":
        return " "
    if unicodedata.category(character) == "Cs":  # a lone surrogate, which pydantic's docstrings can't hold
        return "\N{REPLACEMENT CHARACTER}"
    return "\\\\" if character == "\\" else repr(character)[1:-1]
