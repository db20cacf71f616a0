"""Makes text with untrusted parts safe to show to people: in a terminal, a log, a form, an approval, an error.

Characters that control a terminal, change the reading order or are invisible become escapes, as in JSON. Nothing is
removed, so no new sequence can arise, and the exact text can still be read.
"""

import logging
import re
from pathlib import PurePath

#: Characters that count as printable but show nothing: fillers and variation selectors, which can hide any text.
#: https://www.unicode.org/reports/tr44/#Default_Ignorable_Code_Point
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_BACKTICKS = re.compile("`+")
#: Cyrillic, Armenian and Greek letters next to Latin ones, which they imitate: those in one word are of one script.
_SIMILAR = (
    "[\u0391\u0392\u0395-\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03bd\u03bf\u03c1\u0400-\u058f]"
)
_IMITATING = re.compile(f"(?<=[A-Za-z]){_SIMILAR}|{_SIMILAR}(?=[A-Za-z])")
#: Longer texts, which take time, are not searched for them.
_MAX_SEARCHED = 1 << 18

#: Maximum escapes that are kept; a text can contain a million different characters.
_MAX_KEPT = 10_000


class _Shown(dict[int, str]):
    """What `str.translate` shows for each character, which takes it a twentieth of the time and memory of `re.sub`."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        shown = character if character.isprintable() and not _INVISIBLE.match(character) else escape(character)
        if len(self) < _MAX_KEPT:
            self[code] = shown
        return shown


_SHOWN, _SHOWN_IN_LINES = _Shown(), _Shown({ord("\n"): "\n", ord("\t"): "\t"})


def printable(text: str | PurePath, *, lines: bool = False) -> str:
    """Returns the text with escapes for characters that are invisible or control a terminal; idempotent.

    `lines` keeps line breaks and tabs.
    """
    text = str(text)
    if text.isprintable() and (text.isascii() or not _INVISIBLE.search(text)):
        return text
    return text.translate(_SHOWN_IN_LINES if lines else _SHOWN)


def unmistakable(text: str, *, lines: bool = False) -> str:
    """Returns what `printable` does, for decisions: letters that make a word look like another are escapes, too."""
    text = printable(text, lines=lines)
    if text.isascii() or len(text) > _MAX_SEARCHED:
        return text
    return _IMITATING.sub(lambda found: escape(found[0]), text)


def as_markdown(text: str) -> str:
    """Returns Markdown that shows a text as it is: a code block that nothing in the text can end."""
    fence = "`" * (1 + max([2, *map(len, _BACKTICKS.findall(text))]))
    return f"{fence}\n{text}\n{fence}"


def escape(character: str) -> str:
    """Returns the JSON escape of a character."""
    data = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{data[start : start + 4]}" for start in range(0, len(data), 4))


class PrintableFormatter(logging.Formatter):
    """Formats log records so that no text in them can look like another record, or control a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the record as text; all lines except the first are indented."""
        return printable(super().format(record), lines=True).replace("\n", "\n    ")
