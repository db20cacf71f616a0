"""Makes text with untrusted parts safe to show to people: in a terminal, a log, a form, an approval, an error.

Characters that control a terminal, change the reading order or are invisible become escapes, as in JSON. Nothing is
removed, so no new sequence can arise, and the exact text can still be read.
"""

import logging
import re
from pathlib import PurePath

_UNUSUAL = re.compile(r"[^ -~]")
_UNUSUAL_IN_LINES = re.compile(r"[^ -~\n\t]")

#: Characters that count as printable but show nothing: fillers and variation selectors, which can hide any text.
#: https://www.unicode.org/reports/tr44/#Default_Ignorable_Code_Point
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def printable(text: str | PurePath, *, lines: bool = False) -> str:
    """Returns the text with escapes for characters that are invisible or control a terminal; idempotent.

    `lines` keeps line breaks and tabs.
    """
    return (_UNUSUAL_IN_LINES if lines else _UNUSUAL).sub(_shown, str(text))


def escape(character: str) -> str:
    """Returns the JSON escape of a character."""
    data = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{data[start : start + 4]}" for start in range(0, len(data), 4))


def _shown(found: re.Match[str]) -> str:
    return found[0] if found[0].isprintable() and not _INVISIBLE.match(found[0]) else escape(found[0])


class PrintableFormatter(logging.Formatter):
    """Formats log records so that no text in them can look like another record, or control a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the record as text; all lines except the first are indented."""
        return printable(super().format(record), lines=True).replace("\n", "\n    ")
