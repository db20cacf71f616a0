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
#: Letters and signs next to Latin letters, which they imitate: Cyrillic, Armenian, Greek, Cherokee, Coptic, Lisu,
#: phonetic and mathematical ones, Roman numerals, and what looks like a full stop, a colon or a slash. Letters in one
#: word are of one script.
_SIMILAR = (
    "[\u0251\u0261\u0391\u0392\u0395-\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03bd\u03bf\u03c1"
    "\u03f2\u03f3\u03f9\u0400-\u058f\u13a0-\u13ff\u1c80-\u1c8f\u1d00-\u1d7f\u2024\u2044\u2139\u212a\u212e\u2160-\u217f"
    "\u2215\u2236\u29f8\u2c80-\u2cff\ua4d0-\ua4ff\ua640-\ua69f\ua731\ua789\uab30-\uabbf\U0001d400-\U0001d7ff]"
)
#: A word of Cyrillic letters that all look like Latin ones, before Latin ones, as in the name of a host.
_SAME = (
    r"(?<!\w)[\u0405\u0406\u0408\u0410\u0412\u0415\u041a\u041c-\u041e\u0420-\u0423\u0425\u0430\u0435\u043e\u0440\u0441\u0443\u0445"
    r"\u0455\u0456\u0458\u0475\u04bb\u04cf\u0501\u051b\u051d]+(?=[.@-][A-Za-z])"
)
_IMITATING = re.compile(f"(?<=[A-Za-z]){_SIMILAR}|{_SIMILAR}(?=[A-Za-z])|{_SAME}")
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


def escape(characters: str) -> str:
    """Returns the JSON escapes of characters."""
    data = characters.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{data[start : start + 4]}" for start in range(0, len(data), 4))


class PrintableFormatter(logging.Formatter):
    """Formats log records so that no text in them can look like another record, or control a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the record as text; all lines except the first are indented."""
        return printable(super().format(record), lines=True).replace("\n", "\n    ")
