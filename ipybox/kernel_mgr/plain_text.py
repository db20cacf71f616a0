"""Converts a kernel's text for readers without a terminal: no control sequences, `\\n` as the only line end.

`OutputCollector` and `Execution` use it.
"""

import re

from ipybox.support.printable import escape

# ECMA-48 control sequences: CSI, OSC (titles, links) and two-character escapes.
_ANSI = re.compile(r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]|\][^\x07\x1b]*+(?:\x07|\x1b\\)|[ -/]*+[0-Z\\^-~])")
# An unfinished one, or half a line end, at the end of a text. A longer one is not a control sequence.
_STARTED = re.compile(r"(?:\x1b(?:\[[0-?]{0,256}+[ -/]{0,16}+|\][^\x07\x1b]{0,4096}+\x1b?|[ -/]{0,16}+)?|\r)\Z")
_STARTED_LENGTH = 4100
#: Escapes for control characters outside of control sequences, and a replacement for lone surrogates.
_SHOWN = {
    chr(code): "\N{REPLACEMENT CHARACTER}" if code >= 0xD800 else escape(chr(code))
    for code in (*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), *range(0x7F, 0xA0), *range(0xD800, 0xE000))
}
_FEW = 40
_HARMLESS = bytes([*b"\t\n\r", *range(0x20, 0x7F)])


def plain(text: str, *, stream: bool = False) -> str:
    """Returns `text` without terminal control sequences and lone surrogates, and with `\\n` line ends.

    Other control characters become escapes, except a carriage return, and in a stream a backspace: progress bars rely
    on their effect in a terminal. A `!command` writes to a terminal, which ends lines with `\\r\\n`.
    """
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if "\r" in text:  # much faster than a search for two characters
        text = text.replace("\r\n", "\n")
    if text.isascii() and not text.encode().translate(None, _HARMLESS):  # much faster than the expression
        return text
    found = ({*text} & _SHOWN.keys()) - ({"\b"} if stream else set())
    if len(found) > _FEW:
        return text.translate(str.maketrans({character: _SHOWN[character] for character in found}))
    for character in found:  # much faster, because there may be millions of one
        text = text.replace(character, _SHOWN[character])
    return text


def split_unfinished(text: str) -> tuple[str, str]:
    """Splits an incomplete control sequence or line end from the end of `text`; returns both parts.

    A sequence may be split across messages: its start waits for the rest.
    """
    started = None
    if text.endswith("\r") or "\x1b" in text:
        started = _STARTED.search(text, max(0, len(text) - _STARTED_LENGTH))
    return (text, "") if started is None else (text[: started.start()], text[started.start() :])
