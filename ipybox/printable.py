"""Text that others wrote parts of, as people may read it: in a terminal, a log, a form, an approval, an error.

Whatever a terminal obeys, changes the order of reading or can't be seen at all becomes an escape, as of JSON: nothing
is removed, so that nothing new can come together, and the text can still be read exactly.
"""

import logging
import re
from pathlib import PurePath

_UNUSUAL = re.compile(r"[^ -~]")

#: What counts as printable but shows nothing: fillers, and selectors of a variant, which can hide any text.
#: https://www.unicode.org/reports/tr44/#Default_Ignorable_Code_Point
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def printable(text: str | PurePath, *, lines: bool = False) -> str:
    """Returns the text with escapes in place of what people can't see, or a terminal obeys; what it returns is stable.

    Args:
        text: A text or a path, whatever bytes it has.
        lines: Whether it keeps its line breaks and tabs.
    """
    kept = "\n\t" if lines else ""
    return _UNUSUAL.sub(lambda found: found[0] if found[0] in kept or _shows(found[0]) else escape(found[0]), str(text))


def escape(character: str) -> str:
    """Returns a character as JSON escapes it."""
    data = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{data[start : start + 4]}" for start in range(0, len(data), 4))


def _shows(character: str) -> bool:
    return character.isprintable() and not _INVISIBLE.match(character)


class PrintableFormatter(logging.Formatter):
    """Formats records of a log so that no text in them can look like another record, or be obeyed by a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the record; its lines are indented but for the first one."""
        return printable(super().format(record), lines=True).replace("\n", "\n    ")
