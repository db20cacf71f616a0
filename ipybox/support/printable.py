"""Makes text with untrusted parts safe to show to people: in a terminal, a log, a form, an approval, an error.

Characters that control a terminal, change the reading order or are invisible become escapes, as in JSON. Nothing is
removed, so no new sequence can arise, and the exact text can still be read.
"""

import logging
import re
from pathlib import PurePath

_UNUSUAL = re.compile(r"[^ -~]")

#: Characters that count as printable but show nothing: fillers and variation selectors, which can hide any text.
#: https://www.unicode.org/reports/tr44/#Default_Ignorable_Code_Point
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def printable(text: str | PurePath, *, lines: bool = False) -> str:
    """Returns the text with escapes for characters that are invisible or control a terminal; idempotent.

    `lines` keeps line breaks and tabs.
    """
    kept = "\n\t" if lines else ""
    return _UNUSUAL.sub(lambda found: found[0] if found[0] in kept or _shows(found[0]) else escape(found[0]), str(text))


def escape(character: str) -> str:
    """Returns the JSON escape of a character."""
    data = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{data[start : start + 4]}" for start in range(0, len(data), 4))


def _shows(character: str) -> bool:
    return character.isprintable() and not _INVISIBLE.match(character)


class PrintableFormatter(logging.Formatter):
    """Formats log records so that no text in them can look like another record, or control a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the record as text; all lines except the first are indented."""
        return printable(super().format(record), lines=True).replace("\n", "\n    ")
